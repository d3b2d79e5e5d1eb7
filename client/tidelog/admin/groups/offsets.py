"""Requests that read, set and delete committed offsets from outside the group (KIP-396, KIP-496), and the lag of groups
by partition, as ``kafka-consumer-groups --describe`` shows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from tidelog.admin.attempts import ATTEMPT_MS, ask_coordinators, settle_each
from tidelog.admin.groups.descriptions import describe_groups
from tidelog.admin.groups.model import (
    ConsumerGroupDescription,
    ConsumerGroupTopicPartitions,
    MemberDescription,
    PartitionLag,
)
from tidelog.admin.offsets import IsolationLevel
from tidelog.admin.operations import Outcomes
from tidelog.cluster import (
    LATEST_TIMESTAMP,
    ClusterClient,
    Connection,
    Coordinators,
    OffsetAndTimestamp,
    TopicPartitionKey,
)
from tidelog.cluster.answers import error_of, errors_in, group_by_topic
from tidelog.cluster.offsets import search_offsets
from tidelog.message import OFFSET_INVALID, TopicPartition
from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError, error_for

_OF_GROUP = frozenset(
    (
        *(ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        *(ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID, ErrorCode.NON_EMPTY_GROUP),
        *(ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH),
        *(ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.REQUEST_TIMED_OUT),
    )
)
"""Errors of the whole group that a response repeats for each partition."""


class GroupOffsets:
    """The requests for committed offsets of groups. Runs on the network thread."""

    def __init__(self, cluster: ClusterClient, coordinators: Coordinators, timeout_ms: float) -> None:
        self._cluster = cluster
        self._coordinators = coordinators
        self._timeout_ms = timeout_ms

    async def fetch(
        self, groups: Sequence[ConsumerGroupTopicPartitions], require_stable: bool
    ) -> Outcomes[str, ConsumerGroupTopicPartitions]:
        """Return the committed offsets of the named partitions, or of all that have one; OFFSET_INVALID marks the
        others.
        """
        wanted = {group.group_id: _fetch_group(group) for group in groups}

        async def ask(
            connection: Connection, group_ids: list[str], timeout_s: float
        ) -> Outcomes[str, ConsumerGroupTopicPartitions]:
            request = pb.OffsetFetchRequest(groups=[wanted[g] for g in group_ids], require_stable=require_stable)
            response = await connection.groups.OffsetFetch(request, timeout=timeout_s)
            return {group.group_id: _fetched(group) for group in response.groups}

        return await ask_coordinators(
            self._coordinators, wanted, ask, backoff=self._cluster.backoff, timeout_ms=self._timeout_ms
        )

    async def commit(
        self, groups: Sequence[ConsumerGroupTopicPartitions]
    ) -> Outcomes[str, ConsumerGroupTopicPartitions]:
        """Set offsets of groups without members; the result holds each partition's own error."""
        by_id = {group.group_id: group for group in groups}

        async def commit_one(group_id: str) -> ConsumerGroupTopicPartitions:
            request = _commit_request(by_id[group_id])
            response = await self._coordinators.ask(
                group_id,
                lambda c, t: c.groups.OffsetCommit(request, timeout=t),
                lambda r: errors_in(r.topics),
                timeout_ms=self._timeout_ms,
                attempt_ms=ATTEMPT_MS,
            )
            return _answer(by_id[group_id], response.topics)

        return await settle_each(by_id, commit_one)

    async def delete(
        self, groups: Sequence[ConsumerGroupTopicPartitions]
    ) -> Outcomes[str, ConsumerGroupTopicPartitions]:
        """Delete offsets; the result holds each partition's own error."""
        by_id = {group.group_id: group for group in groups}

        async def delete_one(group_id: str) -> ConsumerGroupTopicPartitions:
            request = pb.OffsetDeleteRequest(group_id=group_id, topics=_topics(by_id[group_id]))
            response = await self._coordinators.ask(
                group_id,
                lambda c, t: c.groups.OffsetDelete(request, timeout=t),
                lambda r: (*errors_in(r.topics), r.error) if r.HasField("error") else errors_in(r.topics),
                timeout_ms=self._timeout_ms,
                attempt_ms=ATTEMPT_MS,
            )
            if (error := error_of(response)) is not None:
                raise error
            return _answer(by_id[group_id], response.topics)

        return await settle_each(by_id, delete_one)


def _topics(group: ConsumerGroupTopicPartitions) -> list[pb.OffsetFetchTopic]:
    by_topic = group_by_topic((item.topic, item.partition) for item in group.topic_partitions or ())
    return [pb.OffsetFetchTopic(name=name, partitions=indexes) for name, indexes in by_topic.items()]


def _fetch_group(group: ConsumerGroupTopicPartitions) -> pb.OffsetFetchGroup:
    is_all = group.topic_partitions is None
    return pb.OffsetFetchGroup(group_id=group.group_id, topics=_topics(group), all_topics=is_all)


def _fetched(group: pb.OffsetFetchGroupResult) -> ConsumerGroupTopicPartitions | TidelogError:
    if (error := error_of(group)) is not None:
        return error
    results = [(topic.name, result) for topic in group.topics for result in topic.partitions]
    for _, result in results:
        # The offset may be stable soon, so the whole request is retried.
        if result.error.code == ErrorCode.UNSTABLE_OFFSET_COMMIT.code:
            return error_for(result.error.code, result.error.message)
    partitions = sorted(_offset_of(topic, result) for topic, result in results)
    return ConsumerGroupTopicPartitions(group.group_id, partitions)


def _offset_of(topic: str, result: pb.OffsetFetchPartitionResult) -> TopicPartition:
    offset = result.committed_offset if result.committed_offset >= 0 else OFFSET_INVALID
    epoch = result.committed_leader_epoch if result.committed_leader_epoch >= 0 else None
    found = TopicPartition(topic, result.index, offset, result.metadata or None, epoch)
    found.error = KafkaError(result.error.code, result.error.message) if result.HasField("error") else None
    return found


def _commit_request(group: ConsumerGroupTopicPartitions) -> pb.OffsetCommitRequest:
    by_topic = group_by_topic(
        (
            item.topic,
            pb.OffsetCommitPartition(
                index=item.partition,
                committed_offset=item.offset,
                committed_leader_epoch=item.leader_epoch,
                committed_metadata=item.metadata or "",
            ),
        )
        for item in group.topic_partitions or ()
    )
    return pb.OffsetCommitRequest(
        group_id=group.group_id,
        generation_id_or_member_epoch=-1,
        topics=[pb.OffsetCommitTopic(name=name, partitions=items) for name, items in by_topic.items()],
    )


def _answer(
    group: ConsumerGroupTopicPartitions, topics: Iterable[pb.OffsetCommitTopicResult]
) -> ConsumerGroupTopicPartitions:
    """Return the given partitions with their errors.

    Raises:
        TidelogError: an error of the whole group.
    """
    results = {(topic.name, p.index): p for topic in topics for p in topic.partitions}
    answered: list[TopicPartition] = []
    for given in group.topic_partitions or ():
        item = TopicPartition(given.topic, given.partition, given.offset, given.metadata, given.leader_epoch)
        result = results.get((given.topic, given.partition))
        if result is None:
            item.error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the coordinator's answer does not contain it")
        elif result.HasField("error"):
            item.error = KafkaError(result.error.code, result.error.message)
            if item.error.error_code() in _OF_GROUP:
                raise error_for(result.error.code, result.error.message)
        answered.append(item)
    return ConsumerGroupTopicPartitions(group.group_id, answered)


async def group_lags(
    cluster: ClusterClient,
    coordinators: Coordinators,
    group_ids: Iterable[str],
    isolation_level: IsolationLevel,
    timeout_ms: float,
) -> Outcomes[str, list[PartitionLag]]:
    """Return the partitions of each group in order: those that have an offset or that a member owns.

    Raises:
        TidelogError: no node answered the request for metadata.
    """
    wanted = list(dict.fromkeys(group_ids))
    described, fetched = await asyncio.gather(
        describe_groups(cluster, coordinators, wanted, timeout_ms),
        GroupOffsets(cluster, coordinators, timeout_ms).fetch(
            [ConsumerGroupTopicPartitions(g) for g in wanted], require_stable=False
        ),
    )
    parts = {g: _parts(described[g], fetched[g]) for g in wanted}
    keys = {key for part in parts.values() if not isinstance(part, TidelogError) for key in part}
    latest = dict.fromkeys(keys, LATEST_TIMESTAMP)
    ends = await search_offsets(
        cluster, latest, read_committed=isolation_level.is_read_committed, timeout_ms=timeout_ms
    )
    return {
        group: part if isinstance(part, TidelogError) else [_lag(k, *part[k], ends[k]) for k in sorted(part)]
        for group, part in parts.items()
    }


_Part = tuple[TopicPartition | None, MemberDescription | None]


def _parts(
    description: ConsumerGroupDescription | TidelogError, offsets: ConsumerGroupTopicPartitions | TidelogError
) -> dict[TopicPartitionKey, _Part] | TidelogError:
    if isinstance(description, TidelogError):
        return description
    if isinstance(offsets, TidelogError):
        return offsets
    owners = {
        (p.topic, p.partition): member for member in description.members for p in member.assignment.topic_partitions
    }
    committed = {(p.topic, p.partition): p for p in offsets.topic_partitions or ()}
    return {key: (committed.get(key), owners.get(key)) for key in {*owners, *committed}}


def _lag(
    key: TopicPartitionKey,
    committed: TopicPartition | None,
    member: MemberDescription | None,
    end: OffsetAndTimestamp | TidelogError,
) -> PartitionLag:
    has_offset = committed is not None and committed.offset >= 0
    error = end if isinstance(end, TidelogError) else None
    if committed is not None and committed.error is not None:
        error = error_for(ErrorCode.of(committed.error.code()), committed.error.str())
    return PartitionLag(
        *key,
        committed_offset=committed.offset if committed is not None and has_offset else None,
        log_end_offset=None if isinstance(end, TidelogError) else end.offset,
        leader_epoch=committed.leader_epoch if committed is not None else None,
        metadata=(committed.metadata or "") if committed is not None else "",
        member=member,
        error=error,
    )

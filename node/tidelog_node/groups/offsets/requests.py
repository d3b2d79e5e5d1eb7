"""OffsetCommit, OffsetFetch and OffsetDelete (Kafka's OffsetMetadataManager). Callers check permissions first."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from operator import itemgetter

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.groups.events import AllOffsets, TopicInfo
from tidelog_node.groups.messages import (
    OffsetCommitPartition,
    OffsetCommitPartitionResult,
    OffsetCommitTopic,
    OffsetCommitTopicResult,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchGroup,
    OffsetFetchGroupResult,
    OffsetFetchPartitionResult,
    OffsetFetchTopicResult,
)
from tidelog_node.groups.offsets.committed import CommittedOffsets, OffsetChange, TopicPartition
from tidelog_node.groups.records import OffsetCommitValue
from tidelog_node.groups.step import Step
from tidelog_node.groups.value_formats import NO_LEADER_EPOCH, NO_TIMESTAMP

_LAST_TIMESTAMP = 2**63 - 1
"""The latest timestamp, which limits the expiry of offsets with very long retention times."""


def commit(
    requested: Iterable[OffsetCommitTopic], retention_ms: int | None, step: Step
) -> tuple[list[OffsetChange], tuple[OffsetCommitTopicResult, ...]]:
    """Return the changes of a commit and its results. Partitions that cannot be committed have an error there."""
    changes: list[OffsetChange] = []
    topics: list[OffsetCommitTopicResult] = []
    expires_ms = NO_TIMESTAMP if retention_ms is None else min(step.wall_ms + retention_ms, _LAST_TIMESTAMP)
    for topic in requested:
        results = []
        for partition in topic.partitions:
            error = _refused(topic.name, partition, step)
            results.append(OffsetCommitPartitionResult(partition.index, error))
            if error is None:
                changes.append(
                    (TopicPartition(topic.name, partition.index), _value(partition, step.wall_ms, expires_ms))
                )
        topics.append(OffsetCommitTopicResult(topic.name, tuple(results)))
    return changes, tuple(topics)


def failed_commit(
    topics: Iterable[OffsetCommitTopicResult], error: TidelogError
) -> tuple[OffsetCommitTopicResult, ...]:
    """Return the results of a commit that could not be written."""
    return tuple(
        replace(topic, partitions=tuple(p if p.error else replace(p, error=error) for p in topic.partitions))
        for topic in topics
    )


def fetch(request: OffsetFetchGroup, offsets: CommittedOffsets | None) -> OffsetFetchGroupResult | AllOffsets:
    """Return the committed offsets of all partitions, or of the named ones with -1 where there is none."""
    committed = {} if offsets is None else offsets.committed
    unstable: set[TopicPartition] = set()
    if offsets is not None and request.require_stable:
        unstable = offsets.unstable
    if request.all_topics:
        return AllOffsets(request.group_id, list(committed.items()), unstable=frozenset(unstable))
    topics = (
        OffsetFetchTopicResult(
            named.name,
            tuple(
                _unstable(p) if partition in unstable else _fetched(p, committed.get(partition))
                for p in named.partitions
                for partition in (TopicPartition(named.name, p),)
            ),
        )
        for named in request.topics
    )
    return OffsetFetchGroupResult(request.group_id, topics=tuple(topics))


def result_in_steps(found: AllOffsets) -> Generator[None, None, OffsetFetchGroupResult]:
    """Return the result of all offsets of a group in order, one partition per step."""
    topics: dict[str, list[tuple[int, OffsetCommitValue]]] = {}
    for (topic, partition), value in found.committed:
        topics.setdefault(topic, []).append((partition, value))
        yield
    results = []
    for topic in sorted(topics):
        partitions = []
        for partition, value in sorted(topics[topic], key=itemgetter(0)):
            is_unstable = (topic, partition) in found.unstable
            partitions.append(_unstable(partition) if is_unstable else _fetched(partition, value))
            yield
        results.append(OffsetFetchTopicResult(topic, tuple(partitions)))
    return OffsetFetchGroupResult(found.group_id, found.error, tuple(results))


def delete(
    request: OffsetDeleteRequest, offsets: CommittedOffsets, is_subscribed_to: Callable[[str], bool]
) -> tuple[list[OffsetChange], OffsetDeleteResponse]:
    """Return the deleted offsets and the response. A topic with subscribers keeps its offsets (KIP-496)."""
    changes: list[OffsetChange] = []
    topics: list[OffsetCommitTopicResult] = []
    known = offsets.known
    for topic in request.topics:
        subscribed = is_subscribed_to(topic.name)
        error = error_for(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC) if subscribed else None
        results = tuple(OffsetCommitPartitionResult(partition, error) for partition in topic.partitions)
        topics.append(OffsetCommitTopicResult(topic.name, results))
        if not subscribed:
            partitions = (TopicPartition(topic.name, partition) for partition in topic.partitions)
            changes.extend((partition, None) for partition in partitions if partition in known)
    return changes, OffsetDeleteResponse(topics=tuple(topics))


def deletions(partitions: Iterable[TopicPartition]) -> list[OffsetChange]:
    """Return the changes that delete the offsets of these partitions, in order."""
    return [(partition, None) for partition in sorted(partitions)]


def _refused(topic: str, partition: OffsetCommitPartition, step: Step) -> TidelogError | None:
    limit = step.settings.offset_metadata_max_bytes
    # Kafka counts characters too.
    if len(partition.committed_metadata) > limit:
        said = f"metadata of {len(partition.committed_metadata)} characters, offset.metadata.max.bytes is {limit}"
        return error_for(ErrorCode.OFFSET_METADATA_TOO_LARGE, said)
    if step.topics is not None and not _exists(step.topics.get(topic), partition.index):
        return error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{partition.index}")
    return None


def _exists(topic: TopicInfo | None, partition: int) -> bool:
    return topic is not None and 0 <= partition < topic.partitions


def _value(partition: OffsetCommitPartition, wall_ms: int, expires_ms: int) -> OffsetCommitValue:
    epoch = partition.committed_leader_epoch
    return OffsetCommitValue(
        offset=partition.committed_offset,
        leader_epoch=NO_LEADER_EPOCH if epoch is None else epoch,
        metadata=partition.committed_metadata,
        commit_timestamp=wall_ms,
        expire_timestamp=expires_ms,
    )


def _unstable(partition: int) -> OffsetFetchPartitionResult:
    text = "a transaction that may change the committed offset is open"
    return OffsetFetchPartitionResult(partition, error_for(ErrorCode.UNSTABLE_OFFSET_COMMIT, text))


def _fetched(partition: int, value: OffsetCommitValue | None) -> OffsetFetchPartitionResult:
    if value is None:
        return OffsetFetchPartitionResult(partition)
    return OffsetFetchPartitionResult(partition, None, value.offset, value.leader_epoch, value.metadata)

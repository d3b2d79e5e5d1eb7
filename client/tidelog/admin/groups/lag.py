"""The lag of groups by partition, as ``kafka-consumer-groups --describe`` shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tidelog.admin.groups.descriptions import describe_groups
from tidelog.admin.groups.model import (
    ConsumerGroupDescription,
    ConsumerGroupTopicPartitions,
    MemberDescription,
    PartitionLag,
)
from tidelog.admin.groups.offsets import GroupOffsets
from tidelog.admin.offsets import IsolationLevel, search_offsets
from tidelog.admin.operations import Outcomes
from tidelog.cluster import (
    LATEST_TIMESTAMP,
    ClusterClient,
    Coordinators,
    OffsetAndTimestamp,
    TopicPartitionKey,
)
from tidelog.message import TopicPartition
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for


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
    ends = await search_offsets(cluster, latest, isolation_level=isolation_level, timeout_ms=timeout_ms)
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

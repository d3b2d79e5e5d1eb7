"""Requests to the leaders of many partitions: searches for offsets by timestamp, with retries after changes of leader,
and the ends of leader epochs (OffsetForLeaderEpoch, KIP-320).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tidelog.cluster.answers import error_of, group_by_topic
from tidelog.cluster.attempts import Outcomes, TopicPartitionKey, ask_leaders
from tidelog.cluster.connections import Connection
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import TopicId

if TYPE_CHECKING:
    from tidelog.cluster.client import ClusterClient

_ATTEMPT_MS = 5_000
"""The longest wait for a leader's answer. The client then refreshes its metadata, since the leader may be replaced."""

_ANY_TOPIC: Final[Mapping[str, TopicId]] = MappingProxyType({})
LATEST_TIMESTAMP = -1
"""The timestamp that stands for the high watermark, the offset of the next committed record."""
EARLIEST_TIMESTAMP = -2
"""The timestamp that stands for the first offset of the log."""
MAX_TIMESTAMP = -3
"""The timestamp that stands for the record with the largest timestamp (KIP-734)."""


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """A result of ListOffsets: offset -1 if every record is older; timestamp -1 if unknown."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


async def search_offsets(
    cluster: ClusterClient,
    timestamps_ms: Mapping[TopicPartitionKey, int],
    *,
    read_committed: bool = False,
    timeout_ms: float,
    needs_all: bool = False,
    topic_ids: Mapping[str, TopicId] = _ANY_TOPIC,
) -> dict[TopicPartitionKey, OffsetAndTimestamp | TidelogError]:
    """Return an offset of each partition by timestamp, or its error; see :meth:`ClusterClient.list_offsets`.

    With ``needs_all``, the search ends once a partition has failed. A topic that does not have its id in ``topic_ids``
    fails at once with INCONSISTENT_TOPIC_ID.
    """
    isolation_level = pb.ISOLATION_LEVEL_READ_COMMITTED if read_committed else pb.ISOLATION_LEVEL_READ_UNCOMMITTED

    async def ask(
        connection: Connection, keys: list[TopicPartitionKey], left_ms: float
    ) -> Outcomes[TopicPartitionKey, OffsetAndTimestamp]:
        items = group_by_topic((key[0], _offset_request(cluster, key, timestamps_ms[key])) for key in keys)
        request = pb.ListOffsetsRequest(
            isolation_level=isolation_level,
            topics=[
                pb.ListOffsetsTopic(name=name, partitions=partitions, topic_id=topic_ids.get(name, b""))
                for name, partitions in items.items()
            ],
        )
        timeout_s = min(left_ms, cluster.request_timeout_ms, _ATTEMPT_MS) / 1000
        response = await connection.call(lambda c: c.log.ListOffsets(request, timeout=timeout_s))
        return {
            (topic.name, r.index): error_of(r) or OffsetAndTimestamp(r.offset, r.timestamp_ms, r.leader_epoch)
            for topic in response.topics
            for r in topic.partitions
        }

    return await ask_leaders(
        cluster,
        timestamps_ms,
        ask,
        timeout_ms=timeout_ms,
        may_pass=lambda _, error: error.code.retriable and error.code is not ErrorCode.INCONSISTENT_TOPIC_ID,
        needs_all=needs_all,
    )


def _offset_request(cluster: ClusterClient, key: TopicPartitionKey, timestamp_ms: int) -> pb.ListOffsetsPartition:
    known = cluster.metadata.partition(*key)
    epoch = known.leader_epoch if known is not None and known.leader_epoch >= 0 else None
    return pb.ListOffsetsPartition(index=key[1], timestamp_ms=timestamp_ms, current_leader_epoch=epoch)


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The leader's largest epoch not above the requested one, and its end (exclusive); both -1 if it knows none."""

    leader_epoch: int
    end_offset: int


async def ask_epoch_ends(
    cluster: ClusterClient, node_id: int, epochs: Mapping[TopicPartitionKey, tuple[int, int]]
) -> dict[TopicPartitionKey, EpochEnd | TidelogError]:
    """Return the ends of epochs in a leader's log, or errors, in one call (KIP-320).

    Requested values are (epoch, current leader epoch).

    Raises:
        TidelogError: the whole call failed, or the node is unknown.
    """
    items = group_by_topic((name, _epoch_request(index, *wanted)) for (name, index), wanted in epochs.items())
    request = pb.OffsetForLeaderEpochRequest(
        topics=[pb.OffsetForLeaderTopic(name=name, partitions=partitions) for name, partitions in items.items()]
    )
    timeout_s = min(cluster.request_timeout_ms, _ATTEMPT_MS) / 1000
    connection = cluster.connection(node_id)
    response = await connection.call(lambda c: c.log.OffsetForLeaderEpoch(request, timeout=timeout_s))
    found = {
        (topic.name, r.index): error_of(r) or EpochEnd(r.leader_epoch, r.end_offset)
        for topic in response.topics
        for r in topic.partitions
    }
    return {key: found[key] if key in found else _missing(*key) for key in epochs}


def _epoch_request(index: int, epoch: int, current: int) -> pb.OffsetForLeaderPartition:
    return pb.OffsetForLeaderPartition(
        index=index, leader_epoch=epoch, current_leader_epoch=current if current >= 0 else None
    )


def _missing(name: str, index: int) -> TidelogError:
    text = f"the OffsetForLeaderEpoch response does not contain {name}-{index}"
    return error_for(ErrorCode.NETWORK_EXCEPTION, text)

"""Requests for the ends of leader epochs in a leader's log (OffsetForLeaderEpoch, KIP-320)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.cluster.connections import Connection
from tidelog.cluster.offsets import TopicPartitionKey
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

_ATTEMPT_MS = 5_000
"""The longest wait for a leader's answer. The client then refreshes its metadata, since the leader may be replaced."""


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The leader's largest epoch not above the requested one, and its end (exclusive); both -1 if it knows none."""

    leader_epoch: int
    end_offset: int


async def ask_epoch_ends(
    connection: Connection, epochs: Mapping[TopicPartitionKey, tuple[int, int]], timeout_ms: float
) -> dict[TopicPartitionKey, EpochEnd | TidelogError]:
    """Return the end or the error of each partition; requested values are (epoch, current leader epoch).

    Raises:
        TidelogError: the whole call failed.
    """
    request = _request(epochs)
    timeout_s = min(timeout_ms, _ATTEMPT_MS) / 1000
    response = await connection.call(lambda c: c.log.OffsetForLeaderEpoch(request, timeout=timeout_s))
    found = {(topic.name, r.index): _end(r) for topic in response.topics for r in topic.partitions}
    return {(name, index): found.get((name, index), _missing(name, index)) for name, index in epochs}


def _request(epochs: Mapping[TopicPartitionKey, tuple[int, int]]) -> pb.OffsetForLeaderEpochRequest:
    topics: defaultdict[str, list[pb.OffsetForLeaderPartition]] = defaultdict(list)
    for (name, index), (epoch, current) in epochs.items():
        item = pb.OffsetForLeaderPartition(index=index, leader_epoch=epoch)
        if current >= 0:
            item.current_leader_epoch = current
        topics[name].append(item)
    return pb.OffsetForLeaderEpochRequest(
        topics=[pb.OffsetForLeaderTopic(name=name, partitions=items) for name, items in topics.items()]
    )


def _end(result: pb.OffsetForLeaderPartitionResult) -> EpochEnd | TidelogError:
    if result.HasField("error"):
        return error_for(result.error.code, result.error.message)
    return EpochEnd(result.leader_epoch, result.end_offset)


def _missing(name: str, index: int) -> TidelogError:
    text = f"the OffsetForLeaderEpoch response does not contain {name}-{index}"
    return error_for(ErrorCode.NETWORK_EXCEPTION, text)

"""Requests to the leaders of many partitions: searches for offsets by timestamp, with retries after changes of leader,
and the ends of leader epochs (OffsetForLeaderEpoch, KIP-320).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.cluster.answers import error_of
from tidelog.cluster.backoff import now_ms
from tidelog.cluster.connections import Connection
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

if TYPE_CHECKING:
    from tidelog.cluster.client import ClusterClient


_ATTEMPT_MS = 5_000
"""The longest wait for a leader's answer. The client then refreshes its metadata, since the leader may be replaced."""

TopicPartitionKey = tuple[str, int]

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


class OffsetLookup:
    """One search: it asks each leader for its partitions until all are found or the deadline passes."""

    def __init__(
        self,
        client: ClusterClient,
        timestamps_ms: Mapping[TopicPartitionKey, int],
        deadline_ms: float,
        read_committed: bool = False,
    ) -> None:
        self._client = client
        self._isolation_level = (
            pb.ISOLATION_LEVEL_READ_COMMITTED if read_committed else pb.ISOLATION_LEVEL_READ_UNCOMMITTED
        )
        self._missing = dict(timestamps_ms)
        self._deadline_ms = deadline_ms
        self._found: dict[TopicPartitionKey, OffsetAndTimestamp] = {}
        self._errors: dict[TopicPartitionKey, TidelogError] = {}

    async def run(self, note: Callable[[object], None]) -> dict[TopicPartitionKey, OffsetAndTimestamp]:
        """Return the results of all partitions. Raise as :meth:`ClusterClient.list_offsets`.

        ``note`` receives the reason why an attempt did not find all.
        """
        attempt = 0
        while self._missing:
            self._errors.clear()
            await self._ask_leaders()
            if not self._missing:
                break
            attempt += 1
            note(next(iter(self._errors.values()), "no leader answered"))
            await self._back_off(attempt)
        return self._found

    async def _ask_leaders(self) -> None:
        by_leader: defaultdict[int, list[TopicPartitionKey]] = defaultdict(list)
        for topic, partition in self._missing:
            leader = await self._client.leader(topic, partition, timeout_ms=self._left_ms())
            by_leader[leader.node_id].append((topic, partition))
        async with asyncio.TaskGroup() as tasks:
            for node_id, partitions in by_leader.items():
                tasks.create_task(self._ask(node_id, partitions), name=f"list-offsets-{node_id}")

    async def _ask(self, node_id: int, partitions: list[TopicPartitionKey]) -> None:
        request = self._request(partitions)
        timeout_s = min(self._left_ms(), self._client.request_timeout_ms, _ATTEMPT_MS) / 1000
        try:
            connection = self._client.connection(node_id)
            response = await connection.call(lambda c: c.log.ListOffsets(request, timeout=timeout_s))
        except TidelogError as error:
            self._errors.update(dict.fromkeys(partitions, error))
            return
        for topic in response.topics:
            for result in topic.partitions:
                self._take(topic.name, result)
        for name, index in self._missing.keys() & set(partitions) - self._errors.keys():
            text = f"the ListOffsets response of node {node_id} does not contain {name}-{index}"
            self._errors[name, index] = error_for(ErrorCode.NETWORK_EXCEPTION, text)

    def _request(self, partitions: list[TopicPartitionKey]) -> pb.ListOffsetsRequest:
        by_topic: defaultdict[str, list[pb.ListOffsetsPartition]] = defaultdict(list)
        for topic, partition in partitions:
            timestamp_ms = self._missing[topic, partition]
            item = pb.ListOffsetsPartition(index=partition, timestamp_ms=timestamp_ms)
            known = self._client.metadata.partition(topic, partition)
            if known is not None and known.leader_epoch >= 0:
                item.current_leader_epoch = known.leader_epoch
            by_topic[topic].append(item)
        return pb.ListOffsetsRequest(
            isolation_level=self._isolation_level,
            topics=[pb.ListOffsetsTopic(name=name, partitions=items) for name, items in by_topic.items()],
        )

    def _take(self, topic: str, result: pb.ListOffsetsPartitionResult) -> None:
        key = (topic, result.index)
        if (error := error_of(result)) is not None:
            self._errors[key] = error
        elif key in self._missing:
            self._found[key] = OffsetAndTimestamp(result.offset, result.timestamp_ms, result.leader_epoch)
            del self._missing[key]

    async def _back_off(self, attempt: int) -> None:
        for error in self._errors.values():
            if not error.code.retriable:
                raise error
        wait_ms = self._client.backoff.wait_ms(attempt)
        if self._left_ms() <= wait_ms and self._errors:
            raise next(iter(self._errors.values()))
        await asyncio.sleep(wait_ms / 1000)
        await self._client.refresh({topic for topic, _ in self._missing}, timeout_ms=self._left_ms())

    def _left_ms(self) -> float:
        return max(self._deadline_ms - now_ms(), 1)


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
    return error_of(result) or EpochEnd(result.leader_epoch, result.end_offset)


def _missing(name: str, index: int) -> TidelogError:
    text = f"the OffsetForLeaderEpoch response does not contain {name}-{index}"
    return error_for(ErrorCode.NETWORK_EXCEPTION, text)

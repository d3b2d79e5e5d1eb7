"""The internal topics of a mirror: created compacted, read as a whole, and appended to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Final

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.records import RecordBatchBuilder, data_batches, iter_headers, read_records
from tidelog_mirror.batches import Producer, SourceBatch, source_batches
from tidelog_mirror.cluster import MirrorCluster, Topics
from tidelog_mirror.target_writer import Lane, TargetWriter
from tidelog_node.fetching import FetchRequest
from tidelog_node.replication.fetch_session import FetchSpec
from tidelog_node.replication.fetch_session import PartitionKey as FetchKey

Pair = tuple[bytes, bytes]
_COMPACTED: Final[Mapping[str, str | None]] = {"cleanup.policy": "compact"}
_FETCH_BYTES: Final = 4 * 1024 * 1024
_WAIT_MS: Final = 100
_TIMEOUT_S: Final = 10.0
_BACKOFF_S: Final = 0.1
_REQUEST_BYTES: Final = 1024 * 1024
_BATCH_BYTES: Final = 512 * 1024
_START: Final = -2


async def create_compacted(cluster: MirrorCluster, topic: str, partitions: int, replication_factor: int) -> int:
    """Create a compacted topic, unless it exists, and return its number of partitions once brokers know it.

    Raises:
        TidelogError: The cluster refuses, for example because it has too few nodes.
    """
    found = (await cluster.describe([topic])).counts.get(topic)
    if found is None:
        await cluster.create_topic(topic, partitions, replication_factor, _COMPACTED)
    deadline = time.monotonic() + _TIMEOUT_S
    while not found:
        # A broker can know a topic later than others do, which have perhaps had it with other partitions for long.
        found = (await cluster.describe([topic])).counts.get(topic)
        if not found:
            if time.monotonic() >= deadline:
                raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} has been created and is unknown")
            await asyncio.sleep(_BACKOFF_S)
    return found


async def read_topic(
    cluster: MirrorCluster, topic: str, ends: Mapping[int, int] | None = None
) -> AsyncIterator[tuple[bytes | None, bytes | None]]:
    """Yield keys and values of all committed records, in order within each partition.

    ``ends`` has an offset of each partition that is known to be committed, or will soon be, and up to which it is read
    at least. Only such an offset shows that a leader is not one of the past, which lacks the newest records.

    Raises:
        TidelogError: The cluster does not answer, or refuses; UNKNOWN_TOPIC_OR_PARTITION: it has no such topic.
    """
    described = await cluster.describe([topic])
    if topic not in described.topics:
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
    for partition in described.topics[topic].leaders:
        end = None if ends is None else ends.get(partition, 0)
        async for pair in _read_partition(cluster, described, topic, partition, end):
            yield pair


async def _read_partition(
    cluster: MirrorCluster, topics: Topics, topic: str, partition: int, known_end: int | None
) -> AsyncIterator[tuple[bytes | None, bytes | None]]:
    leader = topics.leader(topic, partition)
    if leader is None:
        raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
    address, epoch = leader
    position = (await cluster.start_offsets(address, [(topic, partition)], _START)).get((topic, partition), 0)
    end = await cluster.stable_end(address, (topic, partition), epoch) if known_end is None else known_end
    topic_id = topics.topics[topic].id
    deadline = time.monotonic() + _TIMEOUT_S
    while position < end:
        wanted: dict[FetchKey, FetchSpec] = {(topic_id, partition): FetchSpec(topic_id, position, _FETCH_BYTES, epoch)}
        request = FetchRequest(wanted, _FETCH_BYTES, _WAIT_MS, min_bytes=1, is_read_committed=True)
        response = await cluster.fetch(address, request, _TIMEOUT_S)
        if not response.results:
            # The client's quota delays it.
            await asyncio.sleep(response.throttle_time_ms / 1000)
            continue
        ((_, result),) = response.results.items()
        if result.error is not None:
            raise result.error
        records = memoryview(result.records)
        if len(records):
            deadline = time.monotonic() + _TIMEOUT_S
        elif time.monotonic() >= deadline:
            text = f"{topic}-{partition} ends at {position} on its leader {address}, and not at {end}"
            raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, text)
        for at, header in data_batches(records, result.aborted or ()):  # type: ignore[arg-type]  # any buffer will do
            for record in read_records(bytes(records[at : at + header.size_in_bytes])):
                if record.offset >= position:
                    yield record.key, record.value
        for _, header in iter_headers(records):
            position = max(position, header.next_offset)


def record_batch(pairs: Iterable[Pair], timestamp_ms: int) -> SourceBatch:
    """Return a batch of records."""
    builder = RecordBatchBuilder()
    for key, value in pairs:
        builder.append(key, value, (), timestamp_ms)
    (batch,), _ = source_batches(builder.build(), None, 0)
    return batch


class InternalAppender:
    """Appends records to internal topics of one cluster, at least once."""

    def __init__(self, cluster: MirrorCluster) -> None:
        self._cluster = cluster
        self._writer = TargetWriter(cluster, _REQUEST_BYTES, _TIMEOUT_S)
        self._producer: Producer | None = None
        self._lanes: dict[tuple[str, int], Lane] = {}

    async def append(self, topic: str, by_partition: Mapping[int, Iterable[Pair]], timestamp_ms: int) -> None:
        """Append records to partitions of a topic.

        Raises:
            TidelogError: The records may not be written.
        """
        if self._producer is None:
            self._producer = await self._cluster.new_producer(None, round(_TIMEOUT_S * 1000))
            self._lanes.clear()
        used = []
        for partition, pairs in by_partition.items():
            lane = self._lanes.setdefault((topic, partition), Lane(topic, partition))
            for part in _parts(pairs):
                lane.add(record_batch(part, timestamp_ms))
            lane.begin()
            used.append(lane)
        try:
            await self._writer.write(self._producer, used)
        except (TidelogError, OSError):
            self._producer = None
            raise


def _parts(pairs: Iterable[Pair]) -> Iterable[list[Pair]]:
    part: list[Pair] = []
    size = 0
    for key, value in pairs:
        if part and size + len(key) + len(value) > _BATCH_BYTES:
            yield part
            part, size = [], 0
        part.append((key, value))
        size += len(key) + len(value)
    if part:
        yield part

"""The internal topics of a mirror: created compacted, read as a whole, and appended to."""

from __future__ import annotations

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
_REQUEST_BYTES: Final = 1024 * 1024
_BATCH_BYTES: Final = 512 * 1024
_START: Final = -2


async def create_compacted(cluster: MirrorCluster, topic: str, partitions: int, replication_factor: int) -> int:
    """Create a compacted topic, unless it exists, and return its number of partitions.

    Raises:
        TidelogError: The cluster refuses, for example because it has too few nodes.
    """
    found = (await cluster.describe([topic])).counts.get(topic)
    if found is None:
        await cluster.create_topic(topic, partitions, replication_factor, _COMPACTED)
    return found or partitions


async def read_topic(cluster: MirrorCluster, topic: str) -> AsyncIterator[tuple[bytes | None, bytes | None]]:
    """Yield keys and values of all committed records, in order within each partition; nothing for a missing topic.

    Raises:
        TidelogError: The cluster does not answer, or refuses.
    """
    described = await cluster.describe([topic])
    if topic not in described.topics:
        return
    for partition in described.topics[topic].leaders:
        async for pair in _read_partition(cluster, described, topic, partition):
            yield pair


async def _read_partition(
    cluster: MirrorCluster, topics: Topics, topic: str, partition: int
) -> AsyncIterator[tuple[bytes | None, bytes | None]]:
    leader = topics.leader(topic, partition)
    if leader is None:
        raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
    address, epoch = leader
    position = (await cluster.start_offsets(address, [(topic, partition)], _START)).get((topic, partition), 0)
    topic_id = topics.topics[topic].id
    while True:
        wanted: dict[FetchKey, FetchSpec] = {(topic_id, partition): FetchSpec(topic_id, position, _FETCH_BYTES, epoch)}
        request = FetchRequest(wanted, _FETCH_BYTES, _WAIT_MS, min_bytes=1, is_read_committed=True)
        response = await cluster.fetch(address, request, _TIMEOUT_S)
        ((_, result),) = response.results.items()
        if result.error is not None:
            raise result.error
        records = memoryview(result.records)
        for at, header in data_batches(records, result.aborted or ()):  # type: ignore[arg-type]  # any buffer will do
            for record in read_records(bytes(records[at : at + header.size_in_bytes])):
                if record.offset >= position:
                    yield record.key, record.value
        for _, header in iter_headers(records):
            position = max(position, header.next_offset)
        if position >= result.last_stable_offset:
            return


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

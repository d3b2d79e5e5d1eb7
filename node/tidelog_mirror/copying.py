"""The copying of one flow: rounds of writes to the target, positions, and the offset syncs that follow from them.

At least once: positions are written to the target at intervals, and when the copying ends. Exactly once: each round is
a transaction of the target that contains the records and their positions. A new transaction's producer fences the
former process and ends its transaction before the positions are read, so that no record is lost or copied twice. A
record that it writes to each partition of positions, and aborts, shows up to where they must be read.

Any error that does not pass ends the attempt. The next one begins with a new producer at the last certain positions.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_mirror.batches import Producer, SourceBatch
from tidelog_mirror.cluster import MirrorCluster, PartitionKey
from tidelog_mirror.internal_records import OffsetSync, decode_position, encode_fence, encode_position
from tidelog_mirror.internal_topics import InternalAppender, Pair, create_compacted, read_topic, record_batch
from tidelog_mirror.offset_syncs import SyncPacing
from tidelog_mirror.policy import offsets_topic
from tidelog_mirror.positions import partition_of
from tidelog_mirror.settings import Flow
from tidelog_mirror.source_reader import PartitionCopy, SourceReader
from tidelog_mirror.target_writer import Lane, TargetWriter

logger = logging.getLogger(__name__)
T = TypeVar("T")
_TRANSACTION_RETRY_S: Final = 0.02
_FIRST_RETRY_S: Final = 0.5
_LAST_RETRY_S: Final = 30.0
_CONCURRENT: Final = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class FlowCopier:
    """Copies the partitions that :meth:`assign` names, from :meth:`run` to :meth:`stop`.

    ``on_sync`` receives offset syncs of records that the target has for certain.
    """

    def __init__(
        self, flow: Flow, source: MirrorCluster, target: MirrorCluster, on_sync: Callable[[OffsetSync], None]
    ) -> None:
        self._flow = flow
        self._config = flow.config
        self._target = target
        self._on_sync = on_sync
        self._wanted: dict[PartitionKey, str] = {}
        self._positions: dict[PartitionKey, int] | None = None
        """The source's offsets behind the last records that the target has; None before they are read."""
        self._copies: dict[tuple[PartitionKey, str], PartitionCopy] = {}
        """The copies of this attempt by partition and remote topic, those included that are not wanted any more.

        A broker may not know a topic for a time. Its lanes then keep their sequence and what is being written.
        """
        self._stored: dict[PartitionKey, int] = {}
        """The positions that the topic has."""
        self._position_lanes: dict[int, Lane] = {}
        self._position_partitions = flow.config.offset_storage_partitions
        self._is_stopping = False
        self._appender = InternalAppender(target)
        self.reader = SourceReader(flow.name, source, flow.config)
        self.failures = 0

    @property
    def topic(self) -> str:
        """The topic of positions."""
        return offsets_topic(self._flow.source)

    def assign(self, wanted: Mapping[PartitionKey, str]) -> None:
        """Copy these partitions of the source to the named topics, and no others."""
        self._wanted = dict(wanted)
        if self._positions is not None:
            self._update_partitions()

    def stop(self) -> None:
        """Let :meth:`run` end after the present round."""
        self._is_stopping = True
        self.reader.has_records.set()

    async def run(self) -> None:
        """Copy until :meth:`stop`."""
        delay = _FIRST_RETRY_S
        while not self._is_stopping:
            begin = time.monotonic()
            try:
                await self._copy()
            except TidelogError as error:
                self.failures += 1
                delay = _FIRST_RETRY_S if time.monotonic() - begin > _LAST_RETRY_S else min(2 * delay, _LAST_RETRY_S)
                logger.error("%s: copying ended and starts again in %.1f s: %s", self._flow.name, delay, error)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(delay):
                        await self._stopped()

    async def _stopped(self) -> None:
        while not self._is_stopping:
            self.reader.has_records.clear()
            await self.reader.has_records.wait()

    async def _copy(self) -> None:
        config = self._config
        self._position_partitions = await create_compacted(
            self._target, self.topic, config.offset_storage_partitions, config.offset_storage_replication_factor
        )
        producer = await self._new_producer()
        writer = TargetWriter(
            self._target, config.producer_max_request_size, config.producer_delivery_timeout_ms / 1000
        )
        self._position_lanes = {}
        if self._positions is None or config.is_exactly_once:
            ends = await self._ends_of_positions(producer, writer) if config.is_exactly_once else None
            self._stored = await self._read_positions(ends)
            self._positions = dict(self._stored)
        self._copies = {}
        self._update_partitions()
        reading = asyncio.create_task(self.reader.run(), name=f"mirror-read-{self._flow.name}")
        reading.add_done_callback(lambda _: self.reader.has_records.set())
        try:
            await self._rounds(producer, writer, reading)
        finally:
            reading.cancel()
            await asyncio.wait([reading])
            if not config.is_exactly_once:
                with contextlib.suppress(TidelogError):
                    await self._flush()

    async def _new_producer(self) -> Producer:
        config = self._config
        name = f"tidelog-mirror-{self._flow.name}" if config.is_exactly_once else None
        timeout_ms = config.producer_transaction_timeout_ms
        return await self._until_done(lambda: self._target.new_producer(name, timeout_ms))

    async def _ends_of_positions(self, producer: Producer, writer: TargetWriter) -> dict[int, int]:
        """Return an offset of each partition of positions that is behind all positions of former producers.

        A leader that its cluster has lost would return old positions, and records would be copied again. It can have
        no record behind those that are committed now: an acknowledged one, which is aborted, has a higher offset.
        """
        now_ms = time.time_ns() // 1_000_000
        lanes = [Lane(self.topic, partition) for partition in range(self._position_partitions)]
        for lane in lanes:
            lane.add(record_batch([encode_fence(self._flow.source)], now_ms))
            lane.begin()
        await self._write_transaction(producer, writer, lanes, is_committed=False)
        self._position_lanes = {lane.partition: lane for lane in lanes}
        ends = {lane.partition: base_offset + 1 for lane in lanes for _, base_offset in lane.written}
        if unknown := [partition for partition, end in ends.items() if not end]:
            text = f"the offsets of records in the partitions {unknown} of {self.topic} are unknown"
            raise error_for(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, text)
        return ends

    async def _read_positions(self, ends: Mapping[int, int] | None) -> dict[PartitionKey, int]:
        found: dict[PartitionKey, int] = {}
        async for key, value in read_topic(self._target, self.topic, ends):
            position = decode_position(self._flow.source, key, value)
            if position is None:
                continue
            topic, partition, last_offset = position
            if last_offset is None:
                found.pop((topic, partition), None)
            else:
                found[topic, partition] = last_offset + 1
        return found

    def _update_partitions(self) -> None:
        for key, remote in self._wanted.items():
            if (key, remote) not in self._copies:
                self._copies[key, remote] = self._new_copy(key, remote)
        self.reader.partitions = {key: self._copies[key, remote] for key, remote in self._wanted.items()}
        self.reader.changed.set()
        self.reader.has_room.set()

    def _new_copy(self, key: PartitionKey, remote: str) -> PartitionCopy:
        assert self._positions is not None, "positions are read first"
        topic, partition = key
        position = self._positions.get(key)
        pacing = SyncPacing(self._config.offset_lag_max)
        return PartitionCopy(topic, partition, Lane(remote, partition), pacing, position, position)

    async def _rounds(self, producer: Producer, writer: TargetWriter, reading: asyncio.Task[None]) -> None:
        interval_s = self._config.offset_flush_interval_ms / 1000
        flush_at = time.monotonic() + interval_s
        while not self._is_stopping:
            if reading.done():
                reading.result()
            self.reader.has_records.clear()
            copies = [copy for copy in self.reader.partitions.values() if copy.lane.pending]
            if copies:
                await self._round(producer, writer, copies)
                self.reader.has_room.set()
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(flush_at - time.monotonic(), 0)):
                        await self.reader.has_records.wait()
            if time.monotonic() >= flush_at:
                flush_at = time.monotonic() + interval_s
                if not self._config.is_exactly_once:
                    await self._flush()

    async def _round(self, producer: Producer, writer: TargetWriter, copies: list[PartitionCopy]) -> None:
        """Write what has been fetched until now."""
        assert self._positions is not None, "positions are read first"
        positions = {copy.key: copy.lane.begin() for copy in copies}
        lanes = [copy.lane for copy in copies]
        if producer.transactional_id is None:
            await writer.write(producer, lanes)
        else:
            await self._write_transaction(
                producer, writer, [*lanes, *self._lanes_of_positions(positions)], is_committed=True
            )
        now_ms = time.time_ns() // 1_000_000
        for copy in copies:
            written = copy.lane.written
            if written:
                self._positions[copy.key] = copy.copied = written[-1][0].next_offset
                copy.latency_ms = max(now_ms - written[-1][0].max_timestamp, 0)
            for batch, base_offset in written:
                copy.record_count += batch.record_count
                copy.byte_count += batch.size
                if base_offset >= 0:
                    self._sync(copy, batch, base_offset)

    async def _write_transaction(
        self, producer: Producer, writer: TargetWriter, lanes: Sequence[Lane], *, is_committed: bool
    ) -> None:
        used = [(lane.topic, lane.partition) for lane in lanes]
        await self._until_done(lambda: self._target.add_to_transaction(producer, used))
        await writer.write(producer, lanes)
        await self._until_done(lambda: self._target.end_transaction(producer, is_committed=is_committed))

    async def _until_done(self, request: Callable[[], Awaitable[T]]) -> T:
        """Repeat a request to the coordinator while its failure passes."""
        deadline = time.monotonic() + self._config.producer_delivery_timeout_ms / 1000
        while True:
            try:
                return await request()
            except TidelogError as error:
                is_passing = error.error.retriable() or error.code in _CONCURRENT
                if not is_passing or time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(_TRANSACTION_RETRY_S)

    def _lanes_of_positions(self, positions: Mapping[PartitionKey, int]) -> list[Lane]:
        lanes = []
        now_ms = time.time_ns() // 1_000_000
        for partition, pairs in self._records_of(positions).items():
            lane = self._position_lanes.setdefault(partition, Lane(self.topic, partition))
            lane.add(record_batch(pairs, now_ms))
            lane.begin()
            lanes.append(lane)
        return lanes

    def _records_of(self, positions: Mapping[PartitionKey, int]) -> dict[int, list[Pair]]:
        by_partition: dict[int, list[Pair]] = {}
        for (topic, partition), position in positions.items():
            key, value = encode_position(self._flow.source, topic, partition, position - 1)
            index = partition_of(key, self._position_partitions)
            by_partition.setdefault(index, []).append((key, value))
        return by_partition

    async def _flush(self) -> None:
        """Write the positions that have changed since the last time, without exactly once."""
        assert self._positions is not None, "positions are read first"
        changed = {key: value for key, value in self._positions.items() if self._stored.get(key) != value}
        if changed:
            await self._appender.append(self.topic, self._records_of(changed), time.time_ns() // 1_000_000)
            self._stored |= changed

    def _sync(self, copy: PartitionCopy, batch: SourceBatch, base_offset: int) -> None:
        if batch.offsets:
            pairs = ((offset, base_offset + number) for number, offset in enumerate(batch.offsets))
            found = [pair for pair in pairs if copy.pacing.needs_sync(*pair)]
        else:
            found = copy.pacing.batch_syncs(batch.base_offset, base_offset, batch.record_count)
        for offsets in found:
            self._on_sync(OffsetSync(copy.topic, copy.partition, *offsets))

"""A partition's log with a cleaner on a disk in memory, and the invariants of both.

Its histories contain plain batches, transactions, tombstones, keyless records, cleanings, clock changes and crashes. It
remembers every record, so that :meth:`CleanedLog.check` knows the view of a consumer.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cleaner_batches import NOW_MS, Pair, data_batch, marker_batch
from memory_disk import MemoryFiles

from tidelog_foundation.records import Record, iter_headers, read_records, validate_batch
from tidelog_foundation.records.control import ControlType
from tidelog_node.log import LogConfig, PartitionLog
from tidelog_node.log.cleaner.job import CleanerMemory, Cleaning, LogToClean, SourceSegment, Throttle
from tidelog_node.log.cleaner.log_cleaner import LogCleaner
from tidelog_node.log.cleaner.policy import LogState, SealedSegment, cleanable_range
from tidelog_node.log.directory.offset_checkpoint_file import CLEANER_OFFSETS, OffsetCheckpointFile
from tidelog_node.log.disk.files import storage_errors
from tidelog_node.log.segments.segment import Segment

DIRECTORY = Path("/logs/t-0")
KEY = ("t", 0)
RETENTION_MS = 1000
CONFIG = LogConfig(
    cleanup_policy=("compact",),
    segment_bytes=900,
    index_interval_bytes=200,
    delete_retention_ms=RETENTION_MS,
    min_cleanable_dirty_ratio=0.0,
)


@dataclass
class Written:
    """An appended record and its outcome."""

    record: Record
    producer_id: int | None
    outcome: ControlType | None = None
    cleaned_at_ms: int | None = None
    """The time of the first cleaning that processed it, completed or not."""

    @property
    def is_committed(self) -> bool:
        return self.producer_id is None or self.outcome is ControlType.COMMIT


@dataclass
class CleanedLog:
    """The log, its disk, its clock, and all records ever appended."""

    disk: MemoryFiles = field(default_factory=MemoryFiles)
    config: LogConfig = CONFIG
    max_keys: int = 1000
    now_ms: int = NOW_MS
    seed: int = 1
    written: list[Written] = field(default_factory=list)
    open_transactions: set[int] = field(default_factory=set)
    sequences: dict[int, int] = field(default_factory=dict)
    clean_below: int = 0

    def __post_init__(self) -> None:
        self.disk.mkdir(DIRECTORY)
        self.open(is_clean=False)

    def open(self, *, is_clean: bool, recovery_point: int = 0) -> None:
        self.log = PartitionLog.open(
            DIRECTORY,
            self.config,
            files=self.disk,
            clean=is_clean,
            recovery_point=recovery_point,
            now_ms=self.now_ms,
        )
        self.checkpoint = OffsetCheckpointFile(self.disk, DIRECTORY.parent / CLEANER_OFFSETS, {KEY})

    def append(self, pairs: Sequence[Pair], *, compression: str = "none", producer_id: int | None = None) -> None:
        """Append a batch of plain records, or of a producer's transaction."""
        base_offset, producer = self.log.log_end_offset, None
        if producer_id is not None:
            producer = (producer_id, 0, self.sequences.get(producer_id, 0))
            self.sequences[producer_id] = producer[2] + len(pairs)
            self.open_transactions.add(producer_id)
        batch = data_batch(
            base_offset,
            *pairs,
            timestamp_ms=self.now_ms,
            compression=compression,
            producer=producer,
            is_transactional=producer is not None,
        )
        self.log.append_as_follower(batch, self.now_ms)
        self.written += [Written(record, producer_id) for record in read_records(batch)]

    def end_transaction(self, producer_id: int, kind: ControlType) -> None:
        self.open_transactions.remove(producer_id)
        self.log.append_as_follower(
            marker_batch(self.log.log_end_offset, kind, producer_id, 0, self.now_ms), self.now_ms
        )
        for written in self.written:
            if written.producer_id == producer_id and written.outcome is None:
                written.outcome = kind

    def clean(self, max_keys: int | None = None) -> Cleaning | None:
        """Clean the log as far as allowed, or return None if there is nothing to clean."""
        self.log.flush()
        cleaner = make_cleaner(self.disk, self.max_keys if max_keys is None else max_keys, self.seed)
        task = self.task()
        if task is None:
            return None
        for written in self.written:
            if written.record.offset < task.first_uncleanable_offset and written.cleaned_at_ms is None:
                written.cleaned_at_ms = self.now_ms
        cleaning = cleaner.clean(task, self.now_ms, self.replace)
        self.checkpoint.put(KEY, cleaning.end_offset)
        self.clean_below = max(self.clean_below, cleaning.end_offset)
        return cleaning

    def task(self) -> LogToClean | None:
        """Return the segments to clean, or None.

        Raises:
            TidelogError: A file cannot be read.
        """
        with storage_errors("Reading the state of", DIRECTORY):
            return self._task()

    def _task(self) -> LogToClean | None:
        log = self.log
        state = LogState(
            tuple(SealedSegment(segment.base_offset, segment.size) for segment in log.sealed_segments()),
            log.log_start_offset,
            log.active_base_offset,
            log.log_end_offset,
            log.last_stable_offset(log.log_end_offset),
            log.recovery_point,
            self.checkpoint.get(KEY),
        )
        found = cleanable_range(state, self.config, self.now_ms)
        end_offset = found.first_uncleanable_offset
        segments = [segment for segment in log.sealed_segments() if segment.base_offset < end_offset]
        if not found.is_due(self.config.min_cleanable_dirty_ratio):
            return None
        return LogToClean(
            "t-0",
            DIRECTORY,
            self.config,
            tuple(map(SourceSegment.of, segments)),
            found.first_dirty_offset,
            end_offset,
            tuple(log.aborted_transactions(segments[0].base_offset, end_offset)),
            {producer.producer_id: producer for producer in log.active_producers()},
        )

    def replace(self, cleaned: Segment, sources: Sequence[SourceSegment]) -> bool:
        return self.log.replace_segments(cleaned, [source.segment for source in sources], self.now_ms)

    def crash(self, rng: random.Random) -> None:
        """Crash the machine and open the log again. Unflushed records may be lost and are then forgotten here."""
        recovery_point = self.log.recovery_point
        self.disk.crash(rng)
        self.open(is_clean=False, recovery_point=recovery_point)
        assert self.log.log_end_offset >= recovery_point
        self.written = [written for written in self.written if written.record.offset < self.log.log_end_offset]

    def batches(self) -> list[bytes]:
        """Return every batch, read as a fetch does."""
        log, offset, found = self.log, self.log.log_start_offset, []
        while offset < log.log_end_offset:
            data = log.read(offset, 1 << 20, log.log_end_offset)
            if not data:
                break
            for position, header in iter_headers(data):
                validate_batch(data, position)
                found.append(data[position : position + header.size_in_bytes])
                offset = header.next_offset
        return found

    def visible(self) -> list[Record]:
        """Return the records that a READ_COMMITTED consumer sees."""
        log = self.log
        end_offset = log.last_stable_offset(log.log_end_offset)
        aborted = log.aborted_transactions(log.log_start_offset, end_offset)
        records: list[Record] = []
        for batch in self.batches():
            ((_, header),) = iter_headers(batch)
            is_aborted = header.is_transactional and any(
                t.producer_id == header.producer_id and t.first_offset <= header.base_offset <= t.last_offset
                for t in aborted
            )
            if not header.is_control and not is_aborted and header.base_offset < end_offset:
                records += read_records(batch)
        return records

    def check(self) -> None:
        """Assert that a consumer sees the required records of each key and no record that was never written."""
        self.log.check_invariants()
        visible = self.visible()
        end_offset = self.log.last_stable_offset(self.log.log_end_offset)
        committed = {w.record.offset: w for w in self.written if w.is_committed and w.record.offset < end_offset}
        offsets = [record.offset for record in visible]
        assert offsets == sorted(set(offsets)), "the order"
        for record in visible:
            assert record == committed[record.offset].record, (record, committed[record.offset])
        seen = set(offsets)
        latest: dict[bytes, Written] = {}
        for written in committed.values():
            if written.record.key is not None:
                latest[written.record.key] = written
            elif written.record.offset >= self.clean_below:
                assert written.record.offset in seen, f"the keyless {written.record} is not compacted yet"
        for key, last in latest.items():
            self._check_key(key, last, [record.offset for record in visible if record.key == key])
        self._check_every_offset()

    def _check_key(self, key: bytes, last: Written, offsets: list[int]) -> None:
        assert len([offset for offset in offsets if offset < self.clean_below]) <= 1, (key, offsets, self.clean_below)
        if offsets:
            assert offsets[-1] == last.record.offset, f"the last of {key!r} is {last}, not {offsets}"
            return
        assert last.record.value is None, f"{last} is gone"
        horizon = math.inf if last.cleaned_at_ms is None else last.cleaned_at_ms + RETENTION_MS
        assert horizon <= self.now_ms, f"the tombstone {last} is gone before {horizon}"

    def _check_every_offset(self) -> None:
        log = self.log
        headers = [header for batch in self.batches() for _, header in iter_headers(batch)]
        for offset in range(log.log_start_offset, log.log_end_offset):
            expected = next((header for header in headers if header.next_offset > offset), None)
            data = log.read(offset, 1, log.log_end_offset)
            first = next((header for _, header in iter_headers(data)), None)
            assert first == expected, (offset, first, expected)


def make_cleaner(disk: MemoryFiles, max_keys: int, seed: int = 1, buffer_bytes: int = 300) -> LogCleaner:
    """Return a cleaner that never waits and whose map has room for ``max_keys``."""
    memory = CleanerMemory(24 * (max_keys + 1), 1.0, buffer_bytes)
    throttle = Throttle(math.inf, lambda: 0.0, lambda seconds: None)
    return LogCleaner(disk, memory, throttle, lambda: seed, lambda: 0.0)


def with_segments_of(segment_bytes: int) -> LogConfig:
    """Return the settings with another segment size."""
    return replace(CONFIG, segment_bytes=segment_bytes)

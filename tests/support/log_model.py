"""A model of a partition's log without segments, files or indexes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tidelog_foundation.records import Record, RecordBatchHeader, iter_headers, parse_header, read_records
from tidelog_node.log import LogConfig, PartitionLog
from tidelog_node.log.producers.entries import read_marker

MAX_SEQUENCE = 2**31 - 1
RETAINED_BATCHES = 5


@dataclass(frozen=True)
class ModelBatch:
    """A batch, byte for byte as the log has it."""

    data: bytes

    @cached_property
    def header(self) -> RecordBatchHeader:
        return parse_header(self.data)

    @cached_property
    def records(self) -> list[Record]:
        return read_records(self.data)

    @property
    def base(self) -> int:
        return self.header.base_offset

    @property
    def end(self) -> int:
        return self.header.next_offset

    def __repr__(self) -> str:
        header = self.header
        return f"[{self.base},{self.end}) e{header.partition_leader_epoch} p{header.producer_id}"


@dataclass(frozen=True)
class LogState:
    """One state of a log. ``batches`` includes those below ``start`` that may still be on the disk.

    The end is exact, or anywhere from ``least_end`` on if no batch lies between, after a truncation to an offset that
    no batch has.
    """

    start: int
    end: int
    batches: tuple[ModelBatch, ...] = ()
    least_end: int = -1

    @property
    def visible(self) -> list[ModelBatch]:
        """The batches that have a record at or above the start."""
        return [batch for batch in self.batches if batch.end > self.start]

    @property
    def records(self) -> list[Record]:
        """The records from the start on."""
        return [record for batch in self.visible for record in batch.records if record.offset >= self.start]

    @property
    def lower_end(self) -> int:
        return self.end if self.least_end < 0 else self.least_end

    def append(self, batches: Iterable[bytes]) -> LogState:
        added = tuple(map(ModelBatch, batches))
        return LogState(self.start, added[-1].end, self.batches + added)

    def truncate(self, offset: int) -> LogState:
        if offset < self.start:
            return LogState(offset, offset)
        if offset >= self.end:
            return self
        kept = self.keep(self.start, offset)
        cut = [batch.base for batch in self.batches if batch.base < self.start and batch.end > offset]
        if cut:
            return LogState(self.start, self.start, least_end=cut[0])
        return dataclasses.replace(kept, least_end=max([self.start, *(batch.end for batch in kept.batches)]))

    def keep(self, start: int, end: int) -> LogState:
        """Return this log with another start and end."""
        return LogState(start, end, tuple(batch for batch in self.batches if batch.end <= end))

    def without(self, removed: set[ModelBatch]) -> LogState:
        return LogState(self.start, self.end, tuple(batch for batch in self.batches if batch not in removed))

    def batches_of(self, producer_id: int) -> list[ModelBatch]:
        """Return the visible batches with records of an idempotent producer."""
        return [b for b in self.visible if b.header.producer_id == producer_id and not b.header.is_control]


def content(log: PartitionLog) -> list[bytes]:
    """Read a log from its start to its end."""
    found: list[bytes] = []
    offset = log.log_start_offset
    while chunk := log.read(offset, 1 << 20, log.log_end_offset):
        batches = [chunk[position : position + header.size_in_bytes] for position, header in iter_headers(chunk)]
        assert b"".join(batches) == chunk, "a part of a batch was read"
        found += batches
        assert parse_header(batches[-1]).next_offset > offset, f"no progress at {offset}"
        offset = parse_header(batches[-1]).next_offset
    return found


def find_state(log: PartitionLog, candidates: Iterable[LogState], starts: range, ends: range) -> LogState:
    """Return the candidate that equals the log, with its start and end in the given ranges.

    Raises:
        AssertionError: No candidate equals the log.
    """
    start, end = log.log_start_offset, log.log_end_offset
    assert start in starts, f"the log starts at {start}, not in {starts}"
    assert end in ends, f"the log ends at {end}, not in {ends}"
    found = content(log)
    cuts = [candidate.keep(start, end) for candidate in candidates]
    for cut in cuts:
        if [batch.data for batch in cut.visible] == found:
            return cut
    text = f"[{start}, {end}) has {[ModelBatch(data) for data in found]}, which is none of"
    raise AssertionError("\n  ".join([text, *(str(cut.visible) for cut in cuts)]))


def segment_bases(log: PartitionLog) -> list[int]:
    """Return the base offset of each segment."""
    return [*(segment.base_offset for segment in log.sealed_segments()), log.active_base_offset]


@dataclass(frozen=True)
class _SegmentModel:
    base: int
    end: int
    size: int
    max_timestamp: int


def retained_start(state: LogState, bases: Sequence[int], config: LogConfig, now_ms: int, high_watermark: int) -> int:
    """Return the log's start after Kafka's ``deleteOldSegments`` (UnifiedLog)."""
    segments = list(_segments(state, bases))
    is_all = len(segments)
    while len(segments) > 1 and segments[1].base <= min(state.start, high_watermark):
        segments.pop(0)
    if config.is_deleted and config.retention_bytes >= 0:
        excess = sum(segment.size for segment in segments) - config.retention_bytes
        while _is_deletable(segments, high_watermark) and excess - segments[0].size >= 0:
            excess -= segments.pop(0).size
    if config.is_deleted and config.retention_ms >= 0:
        while _is_deletable(segments, high_watermark) and now_ms - segments[0].max_timestamp > config.retention_ms:
            segments.pop(0)
    if len(segments) == is_all:
        return state.start
    return max(state.start, segments[0].base if segments else state.end)


def _segments(state: LogState, bases: Sequence[int]) -> Iterator[_SegmentModel]:
    for base, end in zip(bases, [*bases[1:], state.end], strict=True):
        batches = [batch for batch in state.batches if base <= batch.base < end]
        newest = max((batch.header.max_timestamp for batch in batches), default=-1)
        yield _SegmentModel(base, end, sum(len(batch.data) for batch in batches), newest)


def _is_deletable(segments: Sequence[_SegmentModel], high_watermark: int) -> bool:
    if not segments or segments[0].end > high_watermark:
        return False
    return len(segments) > 1 or segments[0].size > 0


@dataclass(frozen=True)
class ModelTransaction:
    """A transaction. ``marker`` is the offset of its end marker, None while it is open."""

    producer_id: int
    first: int
    marker: int | None = None
    is_abort: bool = False


def transactions(batches: Iterable[ModelBatch]) -> list[ModelTransaction]:
    """Return the transactions of a log: the ended ones in the order of their markers, then the open ones."""
    ended: list[ModelTransaction] = []
    first: dict[int, int] = {}
    for batch in batches:
        header = batch.header
        marker = read_marker(batch.data)
        if header.is_transactional and not header.is_control:
            first.setdefault(header.producer_id, batch.base)
        elif marker is not None and header.producer_id in first:
            begun = first.pop(header.producer_id)
            ended.append(ModelTransaction(header.producer_id, begun, batch.base, not marker.is_commit))
    return ended + [ModelTransaction(producer, begun) for producer, begun in first.items()]


def next_sequence(batch: ModelBatch | None) -> int:
    """Return the sequence number that follows a producer's last batch."""
    if batch is None:
        return 0
    return (batch.header.base_sequence + batch.header.last_offset_delta + 1) & MAX_SEQUENCE

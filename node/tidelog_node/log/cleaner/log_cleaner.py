"""Cleans one log: builds the offset map of its dirty part, rewrites its segments and replaces them.

It runs in its own thread, concurrently with appends and reads. It reads only files that no longer change, and writes
files that nobody sees before ``replace`` swaps them in. Groups are replaced in log order, each durably before the next,
and the checkpoint follows at the end. So after a crash at any point, no record is missing whose later replacement is
missing, no tombstone is missing while records that it deletes remain, and the unfinished part is still dirty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tidelog_foundation.records import RecordBatchHeader, validate_batch
from tidelog_foundation.records.compression import decompress
from tidelog_foundation.records.control import read_control
from tidelog_foundation.records.validation import record_section
from tidelog_node.log.cleaner._engine import engine
from tidelog_node.log.cleaner.batch_filter import BatchFilter
from tidelog_node.log.cleaner.job import (
    CleanerMemory,
    Cleaning,
    CleaningStatistics,
    LogToClean,
    SourceSegment,
    Throttle,
)
from tidelog_node.log.cleaner.output import CleanedOutput
from tidelog_node.log.cleaner.policy import SegmentSize, group_segments
from tidelog_node.log.cleaner.source import BatchSource, CleaningAborted
from tidelog_node.log.cleaner.transactions import CleanedTransactions
from tidelog_node.log.disk.files import Files, storage_error
from tidelog_node.log.segments.file_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from tidelog_node.log.segments.segment import Segment

ReplaceSegments = Callable[[Segment, Sequence[SourceSegment]], bool]
"""Replaces the source segments with a cleaned one, on the log's thread, and returns when it is done.

False, or CleaningAborted, means that the log has changed meanwhile and the cleaned segment is not used. After any other
error it may be in use.
"""


class LogCleaner:
    """The cleaner of one thread, for one log after another. It holds the offset map only during a cleaning."""

    def __init__(
        self,
        files: Files,
        memory: CleanerMemory,
        throttle: Throttle,
        seed: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        """``seed`` returns a random 64-bit number for each cleaning; ``clock`` returns seconds, for the statistics."""
        self._files = files
        self._memory = memory
        self._throttle = throttle
        self._seed = seed
        self._clock = clock

    def clean(
        self, log: LogToClean, now_ms: int, replace: ReplaceSegments, check: Callable[[], None] = lambda: None
    ) -> Cleaning:
        """Clean a log until the offset map is full; ``check`` runs often and may raise CleaningAborted.

        Raises:
            CleaningAborted: ``check`` raised it, or the log has changed meanwhile. Some groups may be replaced; the
                rest is unchanged, and its new files are removed.
            CorruptRecordError: a batch on the disk has changed since it was written.
            TidelogError: KAFKA_STORAGE_ERROR, the disk refuses; INVALID_CONFIG, the buffer has no space for one key.
        """
        source = BatchSource(self._files, self._memory.buffer_bytes, self._throttle, check)
        run = _Run(log, self._files, self._memory, self._throttle, source, self._seed())
        started = self._clock()
        try:
            run.index()
            indexed = self._clock()
            run.rewrite(now_ms, replace)
        except FileNotFoundError as cause:
            raise CleaningAborted(f"the folder of {log.name} is gone") from cause
        except OSError as cause:
            raise storage_error("Cleaning", log.directory, cause) from cause
        run.statistics.index_ms = (indexed - started) * 1000
        run.statistics.duration_ms = (self._clock() - started) * 1000
        return Cleaning(run.end_offset, run.statistics)


class _Run:
    """One cleaning of one log: :meth:`index`, then :meth:`rewrite`."""

    def __init__(
        self,
        log: LogToClean,
        files: Files,
        memory: CleanerMemory,
        throttle: Throttle,
        source: BatchSource,
        seed: int,
    ) -> None:
        self.statistics = CleaningStatistics()
        self.end_offset = log.first_dirty_offset
        self._log = log
        self._files = files
        self._memory = memory
        self._throttle = throttle
        self._source = source
        map_bytes = memory.map_bytes_for(log.first_uncleanable_offset - log.first_dirty_offset)
        self._offset_map = engine.OffsetMap(map_bytes, memory.load_factor, seed)

    def index(self) -> None:
        """Fill the offset map from the dirty part, until the part ends or the map is full."""
        log, offset_map = self._log, self._offset_map
        transactions = CleanedTransactions(t for t in log.aborted if t.last_offset >= log.first_dirty_offset)
        offset_map.advance(log.first_dirty_offset - 1)
        for segment, end_offset in zip(log.segments, log.ends, strict=True):
            if end_offset <= log.first_dirty_offset:
                continue
            if not self._index_segment(segment, transactions):
                break
            # Offsets that an earlier cleaning removed from the end of the segment have no batch; count them as indexed.
            offset_map.advance(end_offset - 1)
        self.end_offset = offset_map.latest_offset + 1
        self.statistics.keys = offset_map.size
        self.statistics.map_fill = offset_map.size / self._memory.max_keys

    def rewrite(self, now_ms: int, replace: ReplaceSegments) -> None:
        """Rewrite the segments that begin below ``end_offset``, group by group."""
        log = self._log
        transactions = CleanedTransactions(log.aborted)
        batch_filter = BatchFilter(
            self._offset_map,
            transactions,
            log.producers,
            end_offset=log.first_uncleanable_offset,
            now_ms=now_ms,
            delete_retention_ms=log.config.delete_retention_ms,
        )
        segments = [segment for segment in log.segments if segment.base_offset < self.end_offset]
        groups = group_segments(
            [self._measure(segment) for segment in segments],
            max_log_bytes=log.config.segment_bytes,
            max_index_bytes=log.config.segment_index_bytes,
            end_offset=log.first_uncleanable_offset,
        )
        for group in groups:
            self._rewrite_group(segments[group], batch_filter, transactions, replace)
        self.statistics.records_read = batch_filter.records_read
        self.statistics.records_written = batch_filter.records_kept
        self.statistics.keyless_records = batch_filter.keyless

    def _index_segment(self, segment: SourceSegment, transactions: CleanedTransactions) -> bool:
        """Index a segment's dirty batches. Return False if the map becomes full first."""
        start_offset, offset_map = self._log.first_dirty_offset, self._offset_map
        with self._source.batches(segment.path, segment.size) as batches:
            for buffer, position in batches:
                header = validate_batch(buffer, position)
                self.statistics.indexed_bytes += header.size_in_bytes
                if header.next_offset <= start_offset:
                    continue
                if _has_keys(buffer, position, header, transactions):
                    section = decompress(header.compression, record_section(buffer, position, header))
                    if not offset_map.index(section, header, start_offset):
                        return False
                offset_map.advance(header.last_offset)
        return True

    def _rewrite_group(
        self,
        sources: Sequence[SourceSegment],
        batch_filter: BatchFilter,
        transactions: CleanedTransactions,
        replace: ReplaceSegments,
    ) -> None:
        log = self._log
        output = CleanedOutput(self._files, log, sources[0].base_offset, self._memory.buffer_bytes, self._throttle)
        try:
            for segment in sources:
                self._rewrite_segment(segment, batch_filter, output)
                output.append_aborted(transactions.take_retained())
            cleaned = output.finish(sources[-1].modified_ms)
        except BaseException:
            output.discard()
            raise
        self._put_in_place(cleaned, sources, output, replace)
        self.statistics.bytes_written += output.size

    def _put_in_place(
        self, cleaned: Segment, sources: Sequence[SourceSegment], output: CleanedOutput, replace: ReplaceSegments
    ) -> None:
        try:
            is_replaced = replace(cleaned, sources)
        except CleaningAborted:
            output.discard()
            raise
        except BaseException:
            # The swap may be half done, and this segment may hold the only copy. The next opening of the log resolves
            # it.
            output.close()
            raise
        if not is_replaced:
            output.discard()
            raise CleaningAborted(f"the segments of {self._log.name} have changed")

    def _rewrite_segment(self, segment: SourceSegment, batch_filter: BatchFilter, output: CleanedOutput) -> None:
        with self._source.batches(segment.path, segment.size) as batches:
            for buffer, position in batches:
                kept = batch_filter.filter(buffer, position)
                if kept is not None:
                    output.append(*kept)
        self.statistics.bytes_read += segment.size

    def _measure(self, segment: SourceSegment) -> SegmentSize:
        index, time_index = (segment.path.with_suffix(suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX))
        return SegmentSize(segment.base_offset, segment.size, self._size_of(index), self._size_of(time_index))

    def _size_of(self, path: Path) -> int:
        """Return the size of an index file; a missing one counts as empty."""
        try:
            handle = self._files.open(path)
        except FileNotFoundError:
            return 0
        try:
            return self._files.size(handle)
        finally:
            self._files.close(handle)


def _has_keys(buffer: bytes, position: int, header: RecordBatchHeader, transactions: CleanedTransactions) -> bool:
    """Pass a batch to the transactions and return whether its keys count: not for markers and aborted batches."""
    if header.is_control:
        transactions.may_discard_marker(header, read_control(buffer, position))
        return False
    return not transactions.may_discard_data(header)

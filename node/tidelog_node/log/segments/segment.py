"""One segment of a partition: its batches, its two indexes and the index of aborted transactions.

Owns the positions of batches and the truncation of files. Knows nothing of other segments, epochs or recovery. ``size``
and ``next_offset`` grow only after all bytes of an append are written, and nothing reads beyond them, so a batch is
never half visible. Offsets ascend from batch to batch and may have gaps anywhere, because compaction removes batches.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tidelog_foundation.errors import CorruptRecordError
from tidelog_foundation.records import RecordBatchHeader
from tidelog_node.log.config import LogConfig
from tidelog_node.log.disk.files import Buffer, Files, remove_if_there
from tidelog_node.log.segments.batch_file import BatchFile, UncachedBytes
from tidelog_node.log.segments.file_names import (
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    SegmentPaths,
    segment_name,
)
from tidelog_node.log.segments.indexes import MAX_RELATIVE_OFFSET, NO_TIMESTAMP, CorruptIndexError
from tidelog_node.log.segments.segment_indexes import GrowingIndexes, SegmentIndexes
from tidelog_node.log.segments.transaction_index import TransactionIndex


class Segment:
    """The batches from ``base_offset`` to ``next_offset`` (exclusive); owned by one log, on its thread.

    An opened segment is sealed: it has not been read, and ``next_offset``, once its log has set it, is an upper bound,
    the base of its successor. :meth:`load_tail`, :meth:`rebuild` and :meth:`truncated_to` make it growable, with an
    exact ``next_offset``. ``indexes`` has the offset index and the time index. ``created_ms`` is the time when this
    process opened or created it; its log sets it. Methods raise OSError if the disk refuses.
    """

    __slots__ = (
        "_batches",
        "_config",
        "_files",
        "_first_timestamp",
        "_last_stop",
        "_paths",
        "_tail",
        "_transaction_index",
        "base_offset",
        "created_ms",
        "indexes",
        "next_offset",
    )

    def __init__(
        self, files: Files, directory: Path, base_offset: int, config: LogConfig, batches: BatchFile, suffix: str
    ) -> None:
        self._files = files
        self._config = config
        self._paths = SegmentPaths(directory, base_offset, suffix)
        self._batches = batches
        self.indexes = SegmentIndexes(files, batches, base_offset, config, self._paths)
        self._transaction_index: TransactionIndex | None = None
        self._first_timestamp: int | None = None
        # The position where the last read stopped, for a reader that continues there.
        self._last_stop: tuple[int, RecordBatchHeader] | None = None
        # The start offset and size of the last appended batch, for followers that keep up.
        self._tail: tuple[int, int] | None = None
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.created_ms = 0

    @classmethod
    def open(cls, files: Files, directory: Path, base_offset: int, config: LogConfig, suffix: str = "") -> Segment:
        """Open the file of a segment without reading it."""
        path = directory / segment_name(base_offset, LOG_SUFFIX + suffix)
        return cls(files, directory, base_offset, config, BatchFile.open(files, path), suffix)

    @classmethod
    def create(
        cls,
        files: Files,
        directory: Path,
        base_offset: int,
        config: LogConfig,
        suffix: str = "",
        *,
        is_made_later: bool = False,
    ) -> Segment:
        """Create an empty segment, replacing the files that an earlier attempt left under its name.

        With ``preallocate`` the file has its full size at once, unless it is a cleaner's. With ``is_made_later`` the
        directory does not exist yet, and the caller calls :meth:`make_file` before the first append.
        """
        path = directory / segment_name(base_offset, LOG_SUFFIX + suffix)
        allocated = config.segment_bytes if config.preallocate and not suffix else 0
        if is_made_later:
            segment = cls(files, directory, base_offset, config, BatchFile.create_later(files, path, allocated), suffix)
            segment.indexes.start()
            return segment
        for index_suffix in INDEX_SUFFIXES:
            remove_if_there(files, directory / segment_name(base_offset, index_suffix + suffix))
        try:
            batches = BatchFile.create(files, path, allocated)
        except OSError:
            # After a crash, recovery would take an empty file behind a gap for the log's end.
            with contextlib.suppress(OSError):
                files.remove(path)
            raise
        segment = cls(files, directory, base_offset, config, batches, suffix)
        segment.indexes.start()
        return segment

    def make_file(self) -> None:
        """Create the file of a segment that was created without one; any thread."""
        self._batches.make()

    @property
    def size(self) -> int:
        """The size of the batches in bytes."""
        return self._batches.size

    @property
    def path(self) -> Path:
        """The segment's log file."""
        return self._paths.of(LOG_SUFFIX)

    @property
    def transaction_index(self) -> TransactionIndex:
        """The index of transactions aborted in this segment."""
        if self._transaction_index is None:
            self._transaction_index = TransactionIndex(self._files, self._paths.of(TRANSACTION_INDEX_SUFFIX))
        return self._transaction_index

    @property
    def suffix(self) -> str:
        """The suffix of the segment's state; "" for a segment of a log."""
        return self._paths.state

    def file_path(self, suffix: str) -> Path:
        """Return the path of the segment's file with a suffix, in the segment's current state."""
        return self._paths.of(suffix)

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of the segment in milliseconds, or -1."""
        return self.indexes.max_timestamp

    @property
    def last_modified_ms(self) -> int:
        """The time of the last write to the segment, in milliseconds since 1970."""
        return self._batches.modified_ms if self._batches.is_there else self.created_ms

    @property
    def largest_timestamp(self) -> int:
        """The time that gives the segment's age (Kafka's largestTimestamp): its records', or else its last write's."""
        newest = self.max_timestamp
        return newest if newest >= 0 else self.last_modified_ms

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch, or -1 (Kafka's rollingBasedTimestamp)."""
        if self._first_timestamp is None:
            if self._batches.size == 0:
                return NO_TIMESTAMP
            self._first_timestamp = next(self.headers())[1].max_timestamp
        return self._first_timestamp

    @property
    def is_whole(self) -> bool:
        """True if the index files exist. They are written once the batches are on the disk."""
        return self.indexes.has_files

    def has_room_for(self, size: int, last_offset: int, segment_bytes: int) -> bool:
        """Return whether batches can be added, by bytes, index entries and the range of relative offsets."""
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return False
        held = self._batches.size
        if held == 0:
            return True
        growing = self.indexes.growing
        return held + size <= segment_bytes and growing is not None and not growing.is_full

    def append(self, data: Buffer, headers: Iterable[RecordBatchHeader]) -> None:
        """Append whole batches, which ``headers`` describe.

        After an error none of them is visible, but the file may be longer; :meth:`cut_excess` repairs that.
        """
        growing = self._growing()
        position = self._batches.size
        self._batches.append(data)
        self._tail = None
        for header in headers:
            growing.add(header, position)
            position += header.size_in_bytes
            self._note(header.last_offset, header.max_timestamp)

    def append_batch(self, parts: Sequence[Buffer], size: int, last_offset: int, max_timestamp: int) -> None:
        """Append one batch of ``size`` bytes that consists of several parts. Raise the errors of :meth:`append`."""
        growing, batches = self._growing(), self._batches
        position = batches.size
        batches.append_parts(parts, size)
        growing.add_batch(last_offset, max_timestamp, position, size)
        self._tail = self.next_offset, position
        self.next_offset = last_offset + 1
        if position == 0:
            self._first_timestamp = max_timestamp

    def cut_excess(self) -> None:
        """Truncate the file behind the last batch after a failed append."""
        self._batches.cut_excess()

    def read(self, offset: int, max_bytes: int, end_offset: int) -> bytes | None:
        """Return whole batches from the first one that ends above ``offset``, all below ``end_offset``.

        At least one if it is below the end, else nothing; None if no batch ends above ``offset``.
        """
        if self._tail is not None and self._tail[0] <= offset < self.next_offset <= end_offset:
            return self._batches.read(self._batches.size - self._tail[1], self._tail[1])
        found = self._stop_at(offset) or self.locate(offset)
        if found is None:
            return None
        start, first = found
        if first.next_offset > end_offset:
            return b""
        stop = self._batches.size
        if end_offset < self.next_offset:
            limit = self.locate(end_offset)
            stop = stop if limit is None else limit[0]
        if stop - start > max_bytes:
            stop = self._stop_before(start + max_bytes, start + first.size_in_bytes)
        return self._batches.read(stop - start, start)

    def uncached(self, offset: int, max_bytes: int) -> UncachedBytes | None:
        """Return the bytes of :meth:`read` that it would wait for, or those to read ahead; None if there are neither.

        The end of a former read gives the position of the first batch, or else the entries of the index around it do.

        Raises OSError, and CorruptRecordError for wrong indexes.
        """
        stop = self._stop_at(offset)
        if stop is not None:
            return self._batches.uncached(max(max_bytes, stop[1].size_in_bytes), stop[0])
        position, following = self.indexes.lookup()[0].around(offset)
        return self._batches.uncached(following - position + max_bytes, position)

    def _stop_at(self, offset: int) -> tuple[int, RecordBatchHeader] | None:
        """Return the batch before which the last read has stopped, if it contains ``offset``."""
        stop = self._last_stop
        return stop if stop is not None and stop[1].base_offset <= offset <= stop[1].last_offset else None

    def read_at(self, position: int, size: int) -> bytes:
        """Return exactly ``size`` bytes from a position."""
        return self._batches.read(size, position)

    def locate(self, offset: int) -> tuple[int, RecordBatchHeader] | None:
        """Return position and header of the first batch that ends above ``offset``; None if there is none.

        Raises CorruptRecordError if the batches on the way cannot be read.
        """
        for position, header in self.indexes.headers_from(lambda index: index.lookup(offset)):
            if header.next_offset > offset:
                return position, header
        return None

    def headers(self, position: int = 0) -> Iterator[tuple[int, RecordBatchHeader]]:
        """Yield position and header of each batch from a batch's position to the end.

        Raises CorruptRecordError where no whole batch follows.
        """
        return self._batches.headers(position)

    def truncated_to(self, offset: int) -> Segment:
        """Remove the batch that contains ``offset`` and all later ones, durably, and return the segment to continue.

        The result is another object for the same file; this one still describes data that the log no longer has.
        """
        segment = copy.copy(self)
        segment._last_stop = segment._tail = None
        segment.indexes = SegmentIndexes(self._files, self._batches, self.base_offset, self._config, self._paths)
        segment.indexes.take(self.indexes)
        segment._truncate(offset)
        return segment

    def truncate_bytes(self, size: int) -> None:
        """Truncate the file, durably, to the size that :meth:`rebuild` found valid."""
        self.indexes.discard_files()
        self._batches.truncate(size)
        if size == 0:
            self._first_timestamp = None

    def load_tail(self) -> str | None:
        """Prepare the last segment after a clean shutdown: read its indexes, check the batches behind the last entry.

        Return a description of the fault, or None; after a fault :meth:`rebuild` must follow.
        """
        try:
            growing = self.indexes.load()
            scan = self._batches.scan(growing.offset_index.last_entry[1])
            self._replay_tail(growing, ((position, header) for position, header, _ in scan))
        except (CorruptIndexError, CorruptRecordError) as cause:
            return str(cause)
        return None

    def rebuild(
        self, end_bound: int, *, keeps_files: bool = False
    ) -> Iterator[tuple[int, RecordBatchHeader, memoryview]]:
        """Rebuild the segment's state from its batches alone, yielding each that is whole, unaltered and in order.

        Yields position, header and bytes; the bytes are valid until the next step. No batch may reach ``end_bound``.
        Raises CorruptRecordError at the first invalid batch; ``next_offset`` is then the end of the valid part. Only
        the index files are removed from the disk; with ``keeps_files`` they stay for :meth:`SegmentIndexes.confirm`.
        """
        growing = self.indexes.start_beside_files() if keeps_files else self.indexes.start_anew()
        add_batch = growing.add_batch
        self.next_offset, self._first_timestamp = self.base_offset, None
        # This loop visits each batch of possibly gigabytes: besides the checksum, lookups and calls are its cost.
        for batch in self._batches.scan():
            position, header, data = batch
            last_offset = header.base_offset + header.last_offset_delta
            if header.base_offset < self.next_offset:
                self._check_order(header, position)
            if last_offset >= end_bound:
                text = f"batch at byte {position} ends at offset {last_offset + 1}, above {end_bound}"
                raise CorruptRecordError(text)
            add_batch(last_offset, header.max_timestamp, position, len(data))
            self.next_offset = last_offset + 1
            if position == 0:
                self._first_timestamp = header.max_timestamp
            yield batch

    def is_allocated_only(self, position: int) -> bool:
        """Return whether everything behind a position is allocated space that was never written."""
        return self._config.preallocate and self._batches.is_zero_from(position)

    def seal(self) -> bool:
        """Complete the indexes, because a successor follows, and release unneeded space.

        Return whether the file was ever truncated; it must then be synced before its end counts as the end of the
        batches.
        """
        self.indexes.seal()
        return self._batches.trim()

    def fsync(self) -> None:
        """Put the batches and the aborted transactions on the disk."""
        self._batches.fsync()
        if self._transaction_index is not None:
            self._transaction_index.flush()

    def set_modified_ms(self, modified_ms: int) -> None:
        """Set the time of the last write to the segment's records, which determines the segment's age."""
        self._batches.set_modified_ms(modified_ms)

    def renamed(self, suffix: str) -> None:
        """Record that all files now have this state suffix."""
        self._paths.state = suffix
        if self._transaction_index is not None:
            self._transaction_index.path = self._paths.of(TRANSACTION_INDEX_SUFFIX)

    def close(self) -> None:
        """Close the files, once; the segment cannot be used afterwards."""
        self._batches.close()
        self.indexes.close()

    def remove(self) -> None:
        """Close and remove the segment's files."""
        self.close()
        self._files.remove(self.path)
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            remove_if_there(self._files, self.file_path(suffix))
        self.transaction_index.remove()

    def _growing(self) -> GrowingIndexes:
        growing = self.indexes.growing
        assert growing is not None, f"{self.path} is sealed"
        if self.indexes.may_have_files:
            self.indexes.discard_files()
        return growing

    def _note(self, last_offset: int, max_timestamp: int) -> None:
        self.next_offset = last_offset + 1
        if self._first_timestamp is None:
            self._first_timestamp = max_timestamp

    def _truncate(self, offset: int) -> None:
        growing, found = self.indexes.grow(), self.locate(offset)
        if found is not None:
            position, header = found
            self.indexes.discard_files()
            self._batches.truncate(position)
            growing.truncate(position, header.base_offset)
            self._first_timestamp = None
        self.transaction_index.truncate(offset)
        self._replay_tail(growing, self.headers(growing.offset_index.last_entry[1]))

    def _stop_before(self, target: int, least: int) -> int:
        """Return the end of the last batch that is not beyond ``target``; at least ``least``, where a batch ends."""
        if target < least:
            return least
        for position, header in self.indexes.headers_from(lambda index: index.before(target)):
            if position + header.size_in_bytes > target:
                self._last_stop = position, header
                return position
        return self._batches.size

    def _replay_tail(self, growing: GrowingIndexes, batches: Iterable[tuple[int, RecordBatchHeader]]) -> None:
        """Restore next offset and largest timestamp from the indexes and the batches from their last entry on."""
        entries = len(growing.offset_index)
        last_offset, tail = growing.offset_index.last_entry
        growing.resume()
        self.next_offset = self.base_offset
        for position, header in batches:
            if position == tail > 0 and header.last_offset != last_offset:
                raise CorruptRecordError(f"the index has offset {last_offset} at byte {tail}, the batch {header}")
            self._check_order(header, position)
            growing.add(header, position)
            self.next_offset = header.next_offset
        if len(growing.offset_index) != entries:
            self.indexes.discard_files()

    def _check_order(self, header: RecordBatchHeader, position: int) -> None:
        if header.base_offset < self.next_offset:
            raise CorruptRecordError(
                f"batch at byte {position} has base offset {header.base_offset}, the one before ends at"
                f" {self.next_offset}"
            )

"""One segment of a partition: its batches, its two indexes and the index of aborted transactions.

Owns positions: which batch lies where, and where a file is cut. Knows nothing of other segments, epochs or recovery.
``size`` and ``next_offset`` grow only after all bytes of an append are written, and nothing reads beyond them, so a
batch is never half visible. Offsets ascend from batch to batch and may have gaps anywhere, since compaction removes
batches.

The indexes of the growing segment are in memory. A sealed segment's are written by :meth:`Segment.save_indexes`, after
the batches are on the disk: that the files are there says that the segment is whole. From then on they are mapped and
searched in place. What an index says is compared with the batch it names; it is rebuilt where they differ.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidelog.errors import CorruptRecordError
from tidelog.ids import LeaderEpoch
from tidelog.records import RecordBatchHeader, read_records
from tidelog_node.log.batch_file import BatchFile
from tidelog_node.log.config import LogConfig
from tidelog_node.log.files import TEMPORARY_SUFFIX, Buffer, Files, read_file, remove_if_there, write_file
from tidelog_node.log.growing_indexes import GrowingIndexes
from tidelog_node.log.indexes import MAX_RELATIVE_OFFSET, NO_TIMESTAMP, CorruptIndexError, OffsetIndex, TimeIndex
from tidelog_node.log.segment_files import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_name,
)
from tidelog_node.log.transaction_index import TransactionIndex

logger = logging.getLogger(__name__)

_UNBOUNDED = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TimestampAndOffset:
    """A record found by its timestamp."""

    timestamp_ms: int
    offset: int
    leader_epoch: LeaderEpoch


class Segment:
    """The batches from ``base_offset`` to ``next_offset`` (exclusive); owned by one log, on its thread.

    A segment that was opened is sealed: nothing of it was read, and ``next_offset`` is an upper bound, the base of its
    successor. :meth:`load_tail`, :meth:`rebuild` and :meth:`truncate_to` make it one that grows. ``first_timestamp`` and
    ``created_ms`` decide when it has grown for long enough. Methods raise OSError for what the disk refuses.
    """

    __slots__ = (
        "_batches",
        "_config",
        "_directory",
        "_files",
        "_first_timestamp",
        "_growing",
        "_indexes_saved",
        "_mapped",
        "_suffix",
        "base_offset",
        "created_ms",
        "next_offset",
        "transaction_index",
    )

    def __init__(
        self,
        files: Files,
        directory: Path,
        base_offset: int,
        config: LogConfig,
        batches: BatchFile,
        suffix: str = "",
        created_ms: int = 0,
    ) -> None:
        self._files = files
        self._directory = directory
        self._config = config
        self._suffix = suffix
        self._batches = batches
        self._growing: GrowingIndexes | None = None
        self._mapped: tuple[OffsetIndex, TimeIndex] | None = None
        self._indexes_saved = True
        self._first_timestamp: int | None = None
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.created_ms = created_ms
        self.transaction_index = TransactionIndex(files, self.file_path(TRANSACTION_INDEX_SUFFIX))

    @classmethod
    def open(
        cls,
        files: Files,
        directory: Path,
        base_offset: int,
        config: LogConfig,
        suffix: str = "",
        *,
        created_ms: int = 0,
    ) -> Segment:
        """Open the file of a segment; what it holds is not looked at."""
        path = directory / segment_name(base_offset, LOG_SUFFIX + suffix)
        return cls(files, directory, base_offset, config, BatchFile.open(files, path), suffix, created_ms)

    @classmethod
    def create(
        cls,
        files: Files,
        directory: Path,
        base_offset: int,
        config: LogConfig,
        suffix: str = "",
        *,
        created_ms: int = 0,
    ) -> Segment:
        """Create an empty segment in place of what an earlier attempt left under its name.

        With ``preallocate`` the file has its full size at once, unless it is a cleaner's.
        """
        path = directory / segment_name(base_offset, LOG_SUFFIX + suffix)
        allocated = config.segment_bytes if config.preallocate and not suffix else 0
        batches = BatchFile.create(files, path, allocated)
        segment = cls(files, directory, base_offset, config, batches, suffix, created_ms)
        try:
            for index_suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
                remove_if_there(files, segment.file_path(index_suffix))
        except OSError:
            batches.close()
            raise
        segment._grow()
        return segment

    @property
    def size(self) -> int:
        """The bytes of the batches."""
        return self._batches.size

    @property
    def path(self) -> Path:
        """The segment's log file."""
        return self._batches.path

    def file_path(self, suffix: str) -> Path:
        """Return the path of the segment's file with a suffix, in the state that the segment is in."""
        return self._directory / segment_name(self.base_offset, suffix + self._suffix)

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of the segment in milliseconds, or -1."""
        if self._growing is None:
            self._indexes()
        if self._growing is not None:
            return self._growing.max_timestamp
        return self._indexes()[1].last_entry[0]

    @property
    def last_modified_ms(self) -> int:
        """When the segment was last written."""
        return self._batches.modified_ms

    @property
    def largest_timestamp(self) -> int:
        """By what the segment's age is told (Kafka's largestTimestamp): of its records, or else of its last write."""
        newest = self.max_timestamp
        return newest if newest >= 0 else self.last_modified_ms

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch, or -1 (Kafka's rollingBasedTimestamp)."""
        if self._first_timestamp is None:
            if self.size == 0:
                return NO_TIMESTAMP
            self._first_timestamp = next(self.headers())[1].max_timestamp
        return self._first_timestamp

    @property
    def index_sizes(self) -> tuple[int, int]:
        """The bytes of the offset index and of the time index."""
        offset_index, time_index = self._indexes()
        return len(offset_index.to_bytes()), len(time_index.to_bytes())

    def offset_entries(self) -> list[tuple[int, int]]:
        """Return the entries (offset, position) of the offset index."""
        return self._indexes()[0].entries()

    def time_entries(self) -> list[tuple[int, int]]:
        """Return the entries (timestamp, offset) of the time index."""
        return self._indexes()[1].entries()

    def has_room_for(self, size: int, last_offset: int, segment_bytes: int) -> bool:
        """Return whether batches can be added: by bytes, index entries and the range of relative offsets."""
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return False
        if self._batches.size == 0:
            return True
        return self._batches.size + size <= segment_bytes and not self._require_growing().is_full

    def append(self, data: Buffer, headers: Iterable[RecordBatchHeader]) -> None:
        """Write whole batches, which ``headers`` describe, at the end.

        When it raises, nothing is visible of them, but the file may be longer: :meth:`cut_excess` mends that.
        """
        growing = self._require_growing()
        self._remove_saved_indexes()
        position = self._batches.size
        self._batches.append(data)
        for header in headers:
            growing.add(header, position)
            position += header.size_in_bytes
            self.next_offset = header.next_offset
            if self._first_timestamp is None:
                self._first_timestamp = header.max_timestamp

    def append_batch(self, parts: Sequence[Buffer], size: int, last_offset: int, max_timestamp: int) -> None:
        """Write one batch that is given in parts. Raises as :meth:`append`."""
        growing = self._require_growing()
        if self._indexes_saved:
            self._remove_saved_indexes()
        batches = self._batches
        position = batches.size
        batches.append_parts(parts, size)
        growing.add_batch(last_offset, max_timestamp, position, size)
        self.next_offset = last_offset + 1
        if self._first_timestamp is None:
            self._first_timestamp = max_timestamp

    def cut_excess(self) -> None:
        """Cut off the file what a failed append left behind."""
        self._batches.cut_excess()

    def read(self, offset: int, max_bytes: int, end_offset: int) -> bytes | None:
        """Return whole batches from the first one that ends above ``offset``, all below ``end_offset``.

        At least one, if it is below the end, else nothing; None when no batch ends above ``offset``.
        """
        found = self.locate(offset)
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
            stop = max(start + first.size_in_bytes, self._last_boundary(start, start + max_bytes))
        return self._batches.read(stop - start, start)

    def read_at(self, position: int, size: int) -> bytes:
        """Return exactly so many bytes from a position."""
        return self._batches.read(size, position)

    def locate(self, offset: int) -> tuple[int, RecordBatchHeader] | None:
        """Return position and header of the first batch that ends above ``offset``; None when there is none.

        An index that turns out to be wrong is rebuilt. Raises CorruptRecordError when the batches themselves are.
        """
        for position, header in self._headers_from(self._indexes()[0].lookup(offset)):
            if header.next_offset > offset:
                return position, header
        return None

    def headers(self, position: int = 0) -> Iterator[tuple[int, RecordBatchHeader]]:
        """Yield position and header of each batch from a batch's position to the end.

        Raises CorruptRecordError where no whole batch follows.
        """
        return self._batches.headers(position)

    def scan(self) -> Iterator[tuple[int, RecordBatchHeader, memoryview]]:
        """See :meth:`BatchFile.scan`."""
        return self._batches.scan()

    def find_by_timestamp(self, timestamp_ms: int, min_offset: int) -> TimestampAndOffset | None:
        """Return the first record from ``min_offset`` on whose timestamp is at least ``timestamp_ms``."""
        start = self.locate(max(self._offset_before(timestamp_ms), min_offset))
        if start is None:
            return None
        for position, header in self.headers(start[0]):
            if header.max_timestamp < timestamp_ms:
                continue
            for record in read_records(self._batches.read(header.size_in_bytes, position)):
                if record.timestamp_ms >= timestamp_ms and record.offset >= min_offset:
                    epoch = LeaderEpoch(header.partition_leader_epoch)
                    return TimestampAndOffset(record.timestamp_ms, record.offset, epoch)
        return None

    def truncate_to(self, offset: int) -> None:
        """Remove the batch that contains ``offset`` and all after it, durably; the segment grows from there."""
        found = self.locate(offset)
        growing = self._growing or self._load_growing(_UNBOUNDED)
        if found is not None:
            position, header = found
            self._remove_saved_indexes()
            self._batches.truncate(position)
            growing.truncate(position, header.base_offset)
            self._first_timestamp = self._first_timestamp if position else None
        self.transaction_index.truncate(offset)
        self._replay_tail(growing)

    def truncate_bytes(self, size: int) -> None:
        """Cut the file, durably, to what :meth:`rebuild` found to be valid."""
        self._batches.truncate(size)

    def load_tail(self) -> str | None:
        """Make the last segment ready after a clean stop: read its indexes and the batches behind their last entry.

        Returns what is wrong, or None; after a fault :meth:`rebuild` must follow.
        """
        try:
            growing = self._load_growing(_UNBOUNDED)
            self._replay_tail(growing)
            _, offset = growing.time_index.last_entry
            if offset >= self.next_offset > self.base_offset:
                return f"the time index ends at offset {offset}, the segment before {self.next_offset}"
        except (CorruptIndexError, CorruptRecordError) as cause:
            return str(cause)
        return None

    def rebuild(self) -> Iterator[tuple[RecordBatchHeader, memoryview]]:
        """Make the segment ready from its batches alone: yield each that is whole, unchanged and above the one before.

        Raises CorruptRecordError at the first that is not. ``size`` is then still that of the file, and ``next_offset``
        the end of what is valid. Nothing is removed from the disk but the indexes.
        """
        self._indexes_saved = True
        self._remove_saved_indexes()
        growing = self._grow()
        self.next_offset = self.base_offset
        for position, header, data in self._batches.scan():
            self._check_order(header, position)
            growing.add(header, position)
            self.next_offset = header.next_offset
            yield header, data

    def rest_is_allocated(self, position: int) -> bool:
        """Return whether what is behind a position is space that was allocated only."""
        return self._config.preallocate and self._batches.is_zero_from(position, self._batches.size)

    @property
    def is_saved(self) -> bool:
        """Whether the files of the indexes are there as the segment is, which says that it is whole on the disk."""
        return self._indexes_saved

    @property
    def has_index_files(self) -> bool:
        """Whether both files of the indexes are there."""
        names = self._files.listdir(self._directory)
        return all(self.file_path(suffix).name in names for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX))

    def save_indexes(self) -> None:
        """Replace both index files, each in one step, unless they have these entries already.

        To be called when the batches are on the disk. The new files are found after a crash when the directory was
        synced since. A segment that is sealed uses its files from then on.
        """
        growing = self._growing
        if self._indexes_saved or growing is None:
            return
        growing.seal()
        self._replace(INDEX_SUFFIX, growing.offset_index.to_bytes())
        self._replace(TIME_INDEX_SUFFIX, growing.time_index.to_bytes())
        self._indexes_saved = True

    def seal(self) -> None:
        """Complete the indexes, for a successor begins to grow; space that was not needed is given back."""
        self._require_growing().seal()
        self._batches.trim()

    def release_indexes(self) -> None:
        """Forget the indexes in memory that are in their files, so that those are mapped when they are needed."""
        if self._indexes_saved:
            self._growing = None

    def fsync(self) -> None:
        """Return when the batches and the aborted transactions are on the disk."""
        self._batches.fsync()
        self.transaction_index.flush()

    def set_modified_ms(self, modified_ms: int) -> None:
        """Say when the records of the segment were last written, for those who tell its age by that."""
        self._batches.set_modified_ms(modified_ms)

    def renamed(self, suffix: str) -> None:
        """Take note that all files have this suffix of state now."""
        self._suffix = suffix
        self._batches.path = self.file_path(LOG_SUFFIX)
        self.transaction_index.path = self.file_path(TRANSACTION_INDEX_SUFFIX)

    def close(self) -> None:
        """Close the log file, once; the segment cannot be used afterwards."""
        self._batches.close()
        self._mapped = None

    def remove(self) -> None:
        """Close and remove the segment's files."""
        self.close()
        self._files.remove(self.path)
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            remove_if_there(self._files, self.file_path(suffix))
        self.transaction_index.remove()

    def check_invariants(self) -> None:
        """Assert that batches are in order and whole and that the indexes point at them."""
        positions: dict[int, RecordBatchHeader] = {}
        end = self.base_offset
        for position, header in self.headers():
            assert header.base_offset >= end, (self.path, header, end)
            positions[position] = header
            end = header.next_offset
        assert end <= self.next_offset, (self.path, end, self.next_offset)
        for offset, position in self.offset_entries():
            assert positions[position].last_offset == offset, (self.path, offset, position)
        last_offsets = {header.last_offset: header for header in positions.values()}
        for timestamp, offset in self.time_entries():
            assert last_offsets[offset].max_timestamp == timestamp, (self.path, offset, timestamp)
        newest = max((header.max_timestamp for header in positions.values()), default=NO_TIMESTAMP)
        assert newest == self.max_timestamp, (self.path, newest, self.max_timestamp)

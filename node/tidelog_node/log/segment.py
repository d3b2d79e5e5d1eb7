"""One segment of a partition: the ``.log`` file and its two indexes.

Owns positions: which batch lies where, and where a file is cut. Knows nothing of other segments, epochs or recovery.
``size`` and ``next_offset`` grow only after all bytes of an append are written, and nothing reads beyond them, so a
batch is never half visible. The indexes of the growing segment are in memory; :meth:`Segment.save_indexes` writes them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tidelog.errors import CorruptRecordError
from tidelog.ids import LeaderEpoch
from tidelog.records import HEADER_SIZE, RecordBatchHeader, parse_header, read_records, validate_batch
from tidelog_node.log.config import LogConfig
from tidelog_node.log.files import TEMPORARY_SUFFIX, Files, read_file, write_file, write_fully
from tidelog_node.log.indexes import MAX_RELATIVE_OFFSET, NO_TIMESTAMP, CorruptIndexError, OffsetIndex, TimeIndex

logger = logging.getLogger(__name__)

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
_HEADER_WINDOW = 8192
_UNBOUNDED = 2**63 - 1
_CLOSED = -1


@dataclass(frozen=True, slots=True)
class TimestampAndOffset:
    """A record found by its timestamp."""

    timestamp_ms: int
    offset: int
    leader_epoch: LeaderEpoch


def segment_name(base_offset: int, suffix: str) -> str:
    """Return the name of a segment's file: the base offset in 20 digits and the suffix."""
    return f"{base_offset:020d}{suffix}"


class Segment:
    """The batches from ``base_offset`` to ``next_offset`` (exclusive); owned by one :class:`PartitionLog`.

    After :meth:`open` the indexes are unread. The last segment of a log is made ready by :meth:`load_tail` or
    :meth:`rebuild`; the others take ``next_offset`` from their successor and read their indexes when first asked.
    Methods raise OSError for what the disk refuses.
    """

    __slots__ = (
        "_bytes_since_entry",
        "_config",
        "_directory",
        "_files",
        "_handle",
        "_indexes_saved",
        "_max_timestamp",
        "_offset_index",
        "_offset_of_max_timestamp",
        "_time_index",
        "base_offset",
        "next_offset",
        "size",
    )

    def __init__(self, files: Files, directory: Path, base_offset: int, config: LogConfig, handle: int) -> None:
        self._files = files
        self._directory = directory
        self._config = config
        self._handle = handle
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = files.size(handle)
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._indexes_saved = False
        self._bytes_since_entry = 0
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = base_offset

    @classmethod
    def open(cls, files: Files, directory: Path, base_offset: int, config: LogConfig) -> Segment:
        """Open the file of a segment; what it holds is not looked at."""
        handle = files.open(directory / segment_name(base_offset, LOG_SUFFIX))
        return cls(files, directory, base_offset, config, handle)

    @classmethod
    def create(cls, files: Files, directory: Path, base_offset: int, config: LogConfig) -> Segment:
        """Create an empty segment; a file of that name that an earlier attempt left is cut to nothing."""
        handle = files.open(directory / segment_name(base_offset, LOG_SUFFIX), create=True)
        try:
            files.truncate(handle, 0)
            segment = cls(files, directory, base_offset, config, handle)
        except OSError:
            files.close(handle)
            raise
        segment._reset_indexes()
        return segment

    @property
    def path(self) -> Path:
        """The segment's log file."""
        return self._path(LOG_SUFFIX)

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of the segment in milliseconds, or -1."""
        self._load_indexes()
        return self._max_timestamp

    def offset_entries(self) -> list[tuple[int, int]]:
        """Return the entries (offset, position) of the offset index."""
        return self._load_indexes()[0].entries()

    def time_entries(self) -> list[tuple[int, int]]:
        """Return the entries (timestamp, offset) of the time index."""
        return self._load_indexes()[1].entries()

    def has_room_for(self, size: int, last_offset: int) -> bool:
        """Return whether a batch can be added: by bytes, index entries and the range of relative offsets."""
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return False
        if self.size == 0:
            return True
        offset_index, time_index = self._load_indexes()
        is_within_size = self.size + size <= self._config.segment_bytes
        return is_within_size and not offset_index.is_full and not time_index.is_full

    def append(self, data: bytes | bytearray | memoryview, headers: Iterable[RecordBatchHeader]) -> None:
        """Write whole batches, which ``headers`` describe, at the end.

        When it raises, nothing is visible of them, but the file may be longer: :meth:`cut_excess` mends that.
        """
        self._remove_saved_indexes()
        write_fully(self._files, self._handle, data, self.size)
        for header in headers:
            self._note(header)

    def cut_excess(self) -> None:
        """Cut off the file what a failed append left behind."""
        self._files.truncate(self._handle, self.size)

    def read(self, offset: int, max_bytes: int, end_offset: int) -> bytes:
        """Return whole batches from the one with ``offset``, all below ``end_offset``: at least one, if it is below.

        ``offset`` must lie in the segment.
        """
        start, first = self.locate(offset)
        if first.next_offset > end_offset:
            return b""
        limit = self.size if end_offset >= self.next_offset else self.locate(end_offset)[0]
        stop = limit
        if limit - start > max_bytes:
            stop = max(start + first.size_in_bytes, self._last_boundary(start, start + max_bytes))
        return self._pread(stop - start, start)

    def locate(self, offset: int) -> tuple[int, RecordBatchHeader]:
        """Return position and header of the batch that contains ``offset``, which must lie in the segment.

        An index that turns out to be wrong is rebuilt. Raises CorruptRecordError when the batches themselves are.
        """
        indexed_offset, position = self._load_indexes()[0].lookup(offset)
        try:
            for found, header in self.headers(position):
                if found == position and position > 0 and header.last_offset != indexed_offset:
                    break
                if header.next_offset > offset:
                    return found, header
        except CorruptRecordError:
            if position == 0:
                raise
        logger.warning("The index of %s is wrong at position %d and is rebuilt", self.path, position)
        self._rebuild_indexes()
        return next(pair for pair in self.headers(0) if pair[1].next_offset > offset)

    def headers(self, position: int) -> Iterator[tuple[int, RecordBatchHeader]]:
        """Yield position and header of each batch from a batch's position to the end.

        Raises CorruptRecordError where no whole batch follows.
        """
        window, window_start = b"", position
        while position < self.size:
            if position + HEADER_SIZE > window_start + len(window):
                window, window_start = self._pread(min(_HEADER_WINDOW, self.size - position), position), position
            header = parse_header(window, position - window_start)
            if header.size_in_bytes > self.size - position:
                remaining = self.size - position
                raise CorruptRecordError(
                    f"batch of {header.size_in_bytes} bytes at byte {position}, {remaining} remain"
                )
            yield position, header
            position += header.size_in_bytes

    def find_by_timestamp(self, timestamp_ms: int, min_offset: int) -> TimestampAndOffset | None:
        """Return the first record from ``min_offset`` on whose timestamp is at least ``timestamp_ms``."""
        if self.size == 0:
            return None
        position, _ = self.locate(self._load_indexes()[1].offset_before(timestamp_ms))
        for found, header in self.headers(position):
            if header.max_timestamp < timestamp_ms or header.next_offset <= min_offset:
                continue
            for record in read_records(self._pread(header.size_in_bytes, found)):
                if record.timestamp_ms >= timestamp_ms and record.offset >= min_offset:
                    epoch = LeaderEpoch(header.partition_leader_epoch)
                    return TimestampAndOffset(record.timestamp_ms, record.offset, epoch)
        return None

    def find_max_timestamp(self) -> TimestampAndOffset | None:
        """Return the first record with the segment's largest timestamp; None when no record has one."""
        self._load_indexes()
        if self._max_timestamp == NO_TIMESTAMP:
            return None
        return self.find_by_timestamp(self._max_timestamp, self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Remove the batch that contains ``offset`` and all after it, durably; ``offset`` must lie in the segment."""
        position, header = self.locate(offset)
        self._remove_saved_indexes()
        self._files.truncate(self._handle, position)
        self.size, self.next_offset = position, header.base_offset
        self._files.fsync(self._handle)
        offset_index, time_index = self._load_indexes()
        offset_index.truncate(position)
        time_index.truncate(header.base_offset)
        self._replay_tail()

    def truncate_bytes(self, size: int) -> None:
        """Cut the file, durably, to what :meth:`rebuild` found to be valid."""
        self._files.truncate(self._handle, size)
        self._files.fsync(self._handle)
        self.size = size

    def load_tail(self) -> str | None:
        """Make the last segment ready after a clean stop: read its indexes and the batches behind their last entry.

        Returns what is wrong, or None; after a fault :meth:`rebuild` must follow.
        """
        try:
            self._read_indexes(_UNBOUNDED)
            self._replay_tail(validate=True)
            self._check_time_index()
        except (CorruptIndexError, CorruptRecordError) as cause:
            return str(cause)
        return None

    def rebuild(self) -> tuple[list[RecordBatchHeader], str | None]:
        """Make the segment ready from its batches alone, each checked with its CRC and for contiguous offsets.

        Returns the headers of the valid batches and, when bytes remain behind them, what is wrong with those.
        ``size`` becomes the size of the valid batches; the file keeps its bytes until :meth:`truncate_bytes`.
        """
        self._indexes_saved = True
        self._remove_saved_indexes()
        self._reset_indexes()
        headers: list[RecordBatchHeader] = []
        file_size, valid = self.size, 0
        try:
            for position, header in self.headers(0):
                self._validate(position, header)
                self._index(header, position)
                headers.append(header)
                valid = position + header.size_in_bytes
        except CorruptRecordError as cause:
            self.size = valid
            return headers, f"{cause.message} ({file_size - valid} bytes from byte {valid} on)"
        return headers, None

    @property
    def has_unsaved_indexes(self) -> bool:
        """Whether the indexes are in memory alone."""
        return self._offset_index is not None and not self._indexes_saved

    def save_indexes(self) -> None:
        """Replace both index files, each in one step, unless they have these entries already.

        The new files are found after a crash when the directory was synced since.
        """
        if self._indexes_saved:
            return
        self.seal()
        offset_index, time_index = self._load_indexes()
        self._replace(INDEX_SUFFIX, offset_index.to_bytes())
        self._replace(TIME_INDEX_SUFFIX, time_index.to_bytes())
        self._indexes_saved = True

    def seal(self) -> None:
        """Complete the time index, so that its last entry is the segment's largest timestamp; nothing is written."""
        self._load_indexes()[1].maybe_append(self._max_timestamp, self._offset_of_max_timestamp)

    def fsync(self) -> None:
        """Return when the batches are on the disk."""
        self._files.fsync(self._handle)

    def close(self) -> None:
        """Close the log file, once; the segment cannot be used afterwards."""
        handle, self._handle = self._handle, _CLOSED
        if handle != _CLOSED:
            self._files.close(handle)

    def remove(self) -> None:
        """Close and remove the segment's files."""
        self.close()
        self._files.remove(self.path)
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            _remove_if_there(self._files, self._path(suffix))

    def check_invariants(self) -> None:
        """Assert that batches are contiguous and whole and that the indexes point at them."""
        positions = {}
        expected = self.base_offset
        for position, header in self.headers(0):
            assert header.base_offset == expected, (self.path, header, expected)
            positions[position] = header
            expected = header.next_offset
        assert expected == self.next_offset, (self.path, expected, self.next_offset)
        for offset, position in self.offset_entries():
            assert positions[position].last_offset == offset, (self.path, offset, position)
        last_offsets = {header.last_offset: header for header in positions.values()}
        for timestamp, offset in self.time_entries():
            assert last_offsets[offset].max_timestamp == timestamp, (self.path, offset, timestamp)
        newest = max((header.max_timestamp for header in positions.values()), default=NO_TIMESTAMP)
        assert newest == self.max_timestamp, (self.path, newest, self.max_timestamp)

    def _replace(self, suffix: str, data: bytes) -> None:
        temporary = self._path(suffix + TEMPORARY_SUFFIX)
        write_file(self._files, temporary, data)
        self._files.rename(temporary, self._path(suffix))

    def _remove_saved_indexes(self) -> None:
        """Remove index files that are about to be outdated: a missing index is rebuilt, an old one would be believed.

        The removal is durable with the next sync of the directory, which the log does before it claims a recovery
        point.
        """
        if self._indexes_saved:
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                _remove_if_there(self._files, self._path(suffix))
            self._indexes_saved = False

    def _path(self, suffix: str) -> Path:
        return self._directory / segment_name(self.base_offset, suffix)

    def _pread(self, size: int, position: int) -> bytes:
        data = self._files.pread(self._handle, size, position)
        if len(data) != size:
            raise OSError(5, f"{len(data)} of {size} bytes could be read at byte {position}")
        return data

    def _last_boundary(self, start: int, target: int) -> int:
        position = max(start, self._load_indexes()[0].position_before(target))
        for found, header in self.headers(position):
            if found + header.size_in_bytes > target:
                return found
        return self.size

    def _note(self, header: RecordBatchHeader) -> None:
        position = self.size
        self.size += header.size_in_bytes
        self._index(header, position)

    def _index(self, header: RecordBatchHeader, position: int) -> None:
        """Take in the batch at a position: the rule of Kafka's LogSegment.append for entries and timestamps."""
        offset_index, time_index = self._load_indexes()
        if header.max_timestamp > self._max_timestamp:
            self._max_timestamp, self._offset_of_max_timestamp = header.max_timestamp, header.last_offset
        if self._bytes_since_entry > self._config.index_interval_bytes and not offset_index.is_full:
            offset_index.append(header.last_offset, position)
            time_index.maybe_append(self._max_timestamp, self._offset_of_max_timestamp)
            self._bytes_since_entry = 0
        self._bytes_since_entry += header.size_in_bytes
        self.next_offset = header.next_offset

    def _validate(self, position: int, header: RecordBatchHeader) -> None:
        if header.base_offset != self.next_offset:
            raise CorruptRecordError(
                f"batch at byte {position} has base offset {header.base_offset}, expected {self.next_offset}"
            )
        validate_batch(self._pread(header.size_in_bytes, position))

    def _reset_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        offset_index = self._offset_index = OffsetIndex(self.base_offset, self._config.segment_index_bytes)
        time_index = self._time_index = TimeIndex(self.base_offset, self._config.segment_index_bytes)
        self._indexes_saved = False
        self._bytes_since_entry = 0
        self._max_timestamp, self._offset_of_max_timestamp = NO_TIMESTAMP, self.base_offset
        self.next_offset = self.base_offset
        return offset_index, time_index

    def _load_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        if self._offset_index is not None and self._time_index is not None:
            return self._offset_index, self._time_index
        try:
            return self._read_indexes(self.next_offset)
        except CorruptIndexError as cause:
            logger.info("The indexes of %s are rebuilt: %s", self.path, cause)
            return self._rebuild_indexes()

    def _read_indexes(self, next_offset: int) -> tuple[OffsetIndex, TimeIndex]:
        offset_index = OffsetIndex(self.base_offset, self._config.segment_index_bytes)
        time_index = TimeIndex(self.base_offset, self._config.segment_index_bytes)
        offset_index.load(self._index_bytes(INDEX_SUFFIX), self.size)
        time_index.load(self._index_bytes(TIME_INDEX_SUFFIX), next_offset)
        self._offset_index, self._time_index = offset_index, time_index
        self._max_timestamp, self._offset_of_max_timestamp = time_index.last_entry
        self._indexes_saved = True
        return offset_index, time_index

    def _index_bytes(self, suffix: str) -> bytes:
        data = read_file(self._files, self._path(suffix))
        if data is None:
            raise CorruptIndexError(f"there is no {self._path(suffix)}")
        return data

    def _rebuild_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        next_offset = self.next_offset
        indexes = self._reset_indexes()
        try:
            for position, header in self.headers(0):
                self._index(header, position)
        finally:
            self.next_offset = next_offset
        return indexes

    def _replay_tail(self, validate: bool = False) -> None:
        """Take next offset and largest timestamp from the indexes and the batches behind their last entry."""
        offset_index, time_index = self._load_indexes()
        entries = len(offset_index)
        self._max_timestamp, self._offset_of_max_timestamp = time_index.last_entry
        self._bytes_since_entry = 0
        last_offset, tail = offset_index.last_entry
        self.next_offset = self.base_offset
        for position, header in self.headers(tail):
            if position == tail and tail > 0:
                if header.last_offset != last_offset:
                    raise CorruptRecordError(f"the index has offset {last_offset} at byte {tail}, the batch {header}")
                self.next_offset = header.base_offset
            if validate:
                self._validate(position, header)
            self._index(header, position)
        if len(offset_index) != entries:
            self._remove_saved_indexes()

    def _check_time_index(self) -> None:
        _, offset = self._load_indexes()[1].last_entry
        if offset >= self.next_offset > self.base_offset:
            raise CorruptIndexError(f"the time index ends at offset {offset}, the segment before {self.next_offset}")


def _remove_if_there(files: Files, path: Path) -> None:
    try:
        files.remove(path)
    except FileNotFoundError:
        return

"""The offset and time index of one segment: in memory while it grows, in files once it is whole, rebuilt if wrong.

The files are written after the batches are on the disk and removed before the batches change, so their existence means
that the segment is whole. Each entry is compared with the batch that it names: if they differ, or a file is missing or
cannot be the segment's, both indexes are rebuilt from the batches. Entries are added as batches are appended, by the
rule of Kafka's LogSegment.append.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from tidelog_foundation.errors import CorruptRecordError
from tidelog_foundation.records import RecordBatchHeader
from tidelog_node.log.config import LogConfig
from tidelog_node.log.disk.files import TEMPORARY_SUFFIX, Files, read_file, remove_if_there, write_file
from tidelog_node.log.segments.batch_file import BatchFile
from tidelog_node.log.segments.file_names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, SegmentPaths
from tidelog_node.log.segments.indexes import NO_TIMESTAMP, CorruptIndexError, OffsetIndex, TimeIndex


class GrowingIndexes:
    """Both indexes in memory, and the state that decides when to add the next entry.

    ``max_timestamp`` is the largest of the batches so far, -1 when none has one, and ``offset_of_max_timestamp`` the
    last offset of the first batch that has it.
    """

    __slots__ = (
        "_bytes_since_entry",
        "_interval_bytes",
        "max_timestamp",
        "offset_index",
        "offset_of_max_timestamp",
        "time_index",
    )

    def __init__(self, base_offset: int, config: LogConfig) -> None:
        self._interval_bytes = config.index_interval_bytes
        self._bytes_since_entry = 0
        self.offset_index = OffsetIndex(base_offset, config.segment_index_bytes)
        self.time_index = TimeIndex(base_offset, config.segment_index_bytes)
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = base_offset

    @property
    def is_full(self) -> bool:
        """True if an index is full, so that the segment must end."""
        return self.offset_index.is_full or self.time_index.is_full

    def load(self, offset_data: bytearray, time_data: bytearray, segment_size: int, next_offset: int) -> None:
        """Load the entries of the files; the caller then adds the batches behind the last entry.

        Raises:
            CorruptIndexError: see :meth:`OffsetIndex.load`.
        """
        self.offset_index.load(offset_data, segment_size)
        self.time_index.load(time_data, next_offset)
        self.resume()

    def resume(self) -> None:
        """Continue behind the last entry of the offset index."""
        self.max_timestamp, self.offset_of_max_timestamp = self.time_index.last_entry
        self._bytes_since_entry = 0

    def add(self, header: RecordBatchHeader, position: int) -> None:
        """Add the batch at a position."""
        self.add_batch(header.last_offset, header.max_timestamp, position, header.size_in_bytes)

    def add_batch(self, last_offset: int, max_timestamp: int, position: int, size: int) -> None:
        """Add a batch whose header the caller has parsed."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp, self.offset_of_max_timestamp = max_timestamp, last_offset
        pending = self._bytes_since_entry
        if pending > self._interval_bytes and self.offset_index.maybe_append(last_offset, position):
            self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
            pending = 0
        self._bytes_since_entry = pending + size

    def truncate(self, position: int, offset: int) -> None:
        """Remove the entries of the batch at ``position``, which begins at ``offset``, and of all after it."""
        self.offset_index.truncate(position)
        self.time_index.truncate(offset)
        self.resume()

    def seal(self) -> bool:
        """Append the segment's largest timestamp to the time index. Return False if the last entry already has it."""
        return self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)


logger = logging.getLogger(__name__)

_UNBOUNDED = 2**63 - 1


class SegmentIndexes:
    """The indexes of one :class:`Segment`; ``growing`` is None until the segment grows or needs a rebuild.

    :meth:`save` and :meth:`release` may run in another thread for a sealed segment.
    """

    __slots__ = (
        "_base_offset",
        "_batches",
        "_config",
        "_files",
        "_mapped",
        "_paths",
        "growing",
        "is_saved",
        "may_have_files",
    )

    def __init__(
        self, files: Files, batches: BatchFile, base_offset: int, config: LogConfig, paths: SegmentPaths
    ) -> None:
        self._files = files
        self._batches = batches
        self._base_offset = base_offset
        self._config = config
        self._paths = paths
        self._mapped: tuple[OffsetIndex, TimeIndex] | None = None
        self.growing: GrowingIndexes | None = None
        self.is_saved = True
        self.may_have_files = True

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of the segment in milliseconds, or -1."""
        if self.growing is None:
            timestamp = self.lookup()[1].last_entry[0]
        # Rebuilt indexes may lack the last entry that sealing adds; mapped ones have it.
        return timestamp if self.growing is None else self.growing.max_timestamp

    @property
    def has_files(self) -> bool:
        """True if both files exist. The segment was complete on the disk when they were written."""
        names = self._files.listdir(self._paths.directory)
        return all(self._paths.of(suffix).name in names for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX))

    def lookup(self) -> tuple[OffsetIndex, TimeIndex]:
        """Return both indexes for searches."""
        growing, mapped = self.growing, self._mapped
        if growing is not None:
            return growing.offset_index, growing.time_index
        if mapped is not None:
            return mapped
        try:
            mapped = self._mapped = self._map()
        except (CorruptIndexError, CorruptRecordError) as cause:
            logger.info("The indexes of %s are rebuilt: %s", self._paths.of(LOG_SUFFIX), cause)
            return self._rebuild()
        return mapped

    def headers_from(self, find: Callable[[OffsetIndex], tuple[int, int]]) -> Iterator[tuple[int, RecordBatchHeader]]:
        """Yield position and header of the batch at the entry that ``find`` selects, and of all later ones.

        Raises CorruptRecordError where no whole batch follows.
        """
        offset, position = find(self.lookup()[0])
        headers = self._batches.headers(position)
        if position:
            first = _first(headers)
            if first is None or first[1].last_offset != offset:
                path = self._paths.of(INDEX_SUFFIX)
                logger.warning("%s is wrong at byte %d of its segment: the indexes are rebuilt", path, position)
                headers = self._batches.headers(find(self._rebuild()[0])[1])
            else:
                yield first
        yield from headers

    def offset_before(self, timestamp_ms: int) -> int:
        """Return an offset before which every record is earlier than ``timestamp_ms``."""
        entry = self.lookup()[1].before(timestamp_ms)
        if entry[0] != NO_TIMESTAMP and not self._is_true(entry, *self.lookup()):
            path = self._paths.of(TIME_INDEX_SUFFIX)
            logger.warning("%s is wrong at offset %d: the indexes are rebuilt", path, entry[1])
            entry = self._rebuild()[1].before(timestamp_ms)
        return entry[1]

    def start(self) -> GrowingIndexes:
        """Start with empty indexes in memory and no files."""
        self.growing = growing = GrowingIndexes(self._base_offset, self._config)
        self._mapped = None
        self.is_saved = self.may_have_files = False
        return growing

    def start_anew(self) -> GrowingIndexes:
        """Start with empty indexes, after removing the files."""
        self.discard_files()
        return self.start()

    def start_beside_files(self) -> GrowingIndexes:
        """Start with empty indexes and keep the files, which still mark the segment as whole."""
        growing = self.start()
        self.may_have_files = True
        return growing

    def seal(self) -> None:
        """Complete the indexes in memory; they stay saved if nothing was missing."""
        growing = self.growing
        assert growing is not None, f"{self._paths.of(LOG_SUFFIX)} is sealed"
        if growing.seal():
            self.is_saved = False

    def confirm(self) -> None:
        """Replace files that differ from the indexes in memory; the files exist at any time."""
        growing = self.growing
        assert growing is not None
        growing.seal()
        rebuilt = (growing.offset_index.to_bytes(), growing.time_index.to_bytes())
        if rebuilt == (bytes(self._read(INDEX_SUFFIX)), bytes(self._read(TIME_INDEX_SUFFIX))):
            self.is_saved = True
        else:
            self.save()

    def load(self) -> GrowingIndexes:
        """Load the files into memory, to add entries.

        Raises:
            CorruptIndexError: they are missing or invalid for the segment.
            CorruptRecordError: the batches cannot be read where the indexes point.
        """
        growing = GrowingIndexes(self._base_offset, self._config)
        offset_data, time_data = self._read(INDEX_SUFFIX), self._read(TIME_INDEX_SUFFIX)
        growing.load(offset_data, time_data, self._batches.size, _UNBOUNDED)
        self._check_newest(growing.offset_index, growing.time_index)
        self.growing, self._mapped, self.is_saved = growing, None, True
        return growing

    def grow(self) -> GrowingIndexes:
        """Return the indexes in memory, from the files or from the batches."""
        if self.growing is None:
            try:
                return self.load()
            except (CorruptIndexError, CorruptRecordError):
                self._rebuild()
        assert self.growing is not None
        return self.growing

    def take(self, other: SegmentIndexes) -> None:
        """Copy the in-memory state of another object for the same segment."""
        self.growing, self.is_saved, self.may_have_files = other.growing, other.is_saved, other.may_have_files

    def save(self) -> None:
        """Replace both files, each atomically, unless they are up to date.

        Call it when the batches are on the disk. The new files survive a crash once the directory is synced.
        """
        growing = self.growing
        if self.is_saved or growing is None:
            return
        growing.seal()
        self._replace(INDEX_SUFFIX, growing.offset_index.to_bytes())
        self.may_have_files = True
        self._replace(TIME_INDEX_SUFFIX, growing.time_index.to_bytes())
        self.is_saved = True

    def release(self) -> None:
        """Drop the indexes in memory if they are saved; the files are mapped when needed."""
        if self.is_saved:
            self.growing = None

    def discard_files(self) -> None:
        """Remove files that are about to be outdated: a missing index is rebuilt, but an old one would be trusted.

        The removal is durable with the next sync of the directory, which the log does before it publishes a recovery
        point; a file created later is durable after the removal.
        """
        if self.may_have_files:
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                remove_if_there(self._files, self._paths.of(suffix))
            self.is_saved = self.may_have_files = False

    def close(self) -> None:
        """Release the mappings."""
        self._mapped = None

    def _map(self) -> tuple[OffsetIndex, TimeIndex]:
        offset_index, time_index = OffsetIndex(self._base_offset), TimeIndex(self._base_offset)
        try:
            offset_index.load(self._files.map(self._paths.of(INDEX_SUFFIX)), self._batches.size)
            time_index.load(self._files.map(self._paths.of(TIME_INDEX_SUFFIX)), _UNBOUNDED)
        except FileNotFoundError as cause:
            raise CorruptIndexError(f"there is no {cause.filename}") from cause
        self._check_newest(offset_index, time_index)
        return offset_index, time_index

    def _check_newest(self, offset_index: OffsetIndex, time_index: TimeIndex) -> None:
        """Compare the largest timestamp, which gives the segment's age, with its batch."""
        entry = time_index.last_entry
        if len(time_index):
            is_true = self._is_true(entry, offset_index, time_index)
        else:
            first = next(self._batches.headers(), None)
            is_true = first is None or first[1].max_timestamp == NO_TIMESTAMP
        if not is_true:
            raise CorruptIndexError(f"the time index ends with {entry}, which no batch has")

    def _is_true(self, entry: tuple[int, int], offset_index: OffsetIndex, time_index: TimeIndex) -> bool:
        timestamp, offset = entry
        try:
            for _, header in self._batches.headers(offset_index.lookup(offset)[1]):
                if header.next_offset > offset:
                    return header.last_offset == offset and header.max_timestamp == timestamp
        except CorruptRecordError:
            return False
        return False

    def _rebuild(self) -> tuple[OffsetIndex, TimeIndex]:
        growing = GrowingIndexes(self._base_offset, self._config)
        for position, header in self._batches.headers():
            growing.add(header, position)
        self.growing, self._mapped, self.is_saved = growing, None, False
        return growing.offset_index, growing.time_index

    def _read(self, suffix: str) -> bytearray:
        data = read_file(self._files, self._paths.of(suffix))
        if data is None:
            raise CorruptIndexError(f"there is no {self._paths.of(suffix)}")
        return bytearray(data)

    def _replace(self, suffix: str, data: bytes) -> None:
        path = self._paths.of(suffix)
        temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        write_file(self._files, temporary, data)
        self._files.rename(temporary, path)


def _first(headers: Iterator[tuple[int, RecordBatchHeader]]) -> tuple[int, RecordBatchHeader] | None:
    try:
        return next(headers, None)
    except CorruptRecordError:
        return None

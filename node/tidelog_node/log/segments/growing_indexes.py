"""Adds index entries to a segment as batches are appended: the rule of Kafka's LogSegment.append. Pure: no I/O."""

from __future__ import annotations

from tidelog_foundation.records import RecordBatchHeader
from tidelog_node.log.config import LogConfig
from tidelog_node.log.segments.indexes import NO_TIMESTAMP, OffsetIndex, TimeIndex


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

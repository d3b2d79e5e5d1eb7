"""The two sparse indexes of a segment, in Kafka's formats: offset to position, timestamp to offset.

Both work on the bytes of the file: on a bytearray while the segment grows, on the mapped file once it is sealed.
Loading checks only the first and last entries, so that opening a large index costs nothing. A caller that uses an entry
compares it with the batch that it names, and rebuilds the index if they differ. Every correct entry is a safe lower
bound, whatever its neighbours contain.
"""

from __future__ import annotations

import bisect
import struct
from typing import ClassVar

OFFSET_ENTRY_SIZE = 8
TIME_ENTRY_SIZE = 12
MAX_RELATIVE_OFFSET = 2**31 - 1
NO_TIMESTAMP = -1
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_SEALED = "the index of a sealed segment does not change"


class CorruptIndexError(Exception):
    """An index file whose bytes cannot be the index of its segment."""


class _Index:
    """The bytes of entries of two numbers, both of which increase strictly."""

    __slots__ = ("_base_offset", "_data", "_max_entries")
    _struct: ClassVar[struct.Struct]

    def __init__(self, base_offset: int, max_bytes: int = 0) -> None:
        self._base_offset = base_offset
        self._max_entries = max_bytes // self._struct.size
        self._data: bytearray | memoryview = bytearray()

    def to_bytes(self) -> bytes:
        """Return the file's bytes."""
        return bytes(self._data)

    def _last_two(self, data: bytearray | memoryview) -> list[tuple[int, ...]]:
        """Return the last entries of a file, at most two, after checking its length and their order."""
        size = self._struct.size
        if len(data) % size:
            raise CorruptIndexError(f"{len(data)} bytes are not a multiple of {size}")
        positions = range(max(0, len(data) - 2 * size), len(data), size)
        entries = [self._struct.unpack_from(data, position) for position in positions]
        if len(entries) == 2 and not (entries[0][0] < entries[1][0] and entries[0][1] < entries[1][1]):
            raise CorruptIndexError(f"entries {entries} do not increase")
        return entries


class OffsetIndex(_Index):
    """A map from the last offsets of some batches to their positions (Kafka's OffsetIndex).

    An entry is a relative offset and a position, both big-endian int32. Offsets and positions increase strictly; a
    lookup returns the greatest entry that is not above a key.
    """

    __slots__ = ()
    _struct = _OFFSET_ENTRY

    def __len__(self) -> int:
        return len(self._data) // OFFSET_ENTRY_SIZE

    @property
    def is_full(self) -> bool:
        """True if the index is full."""
        return len(self._data) // OFFSET_ENTRY_SIZE >= self._max_entries

    def maybe_append(self, last_offset: int, position: int) -> bool:
        """Add the entry of a batch. Return False if the index is full."""
        data = self._data
        assert isinstance(data, bytearray), _SEALED
        if len(data) // OFFSET_ENTRY_SIZE >= self._max_entries:
            return False
        data += _OFFSET_ENTRY.pack(last_offset - self._base_offset, position)
        return True

    @property
    def last_entry(self) -> tuple[int, int]:
        """The last (absolute offset, position); (base offset, 0) when empty."""
        return self._entry(len(self) - 1)

    def lookup(self, offset: int) -> tuple[int, int]:
        """Return the greatest entry (absolute offset, position) not above ``offset``, or (base offset, 0).

        The batch that contains ``offset`` is at that position or behind it.
        """
        return self._entry(self._slot_above(offset) - 1)

    def around(self, offset: int) -> tuple[int, int]:
        """Return the positions of the entries around an offset, between which the batch that contains it begins.

        Behind the last entry, both are its position.
        """
        slot = self._slot_above(offset)
        return self._entry(slot - 1)[1], self._entry(min(slot, len(self) - 1))[1]

    def before(self, position: int) -> tuple[int, int]:
        """Return the greatest entry (absolute offset, position) not behind a position, or (base offset, 0)."""
        return self._entry(self._slot_behind(position) - 1)

    def truncate(self, position: int) -> None:
        """Remove the entries of batches at ``position`` and after."""
        del _own(self._data)[self._slot_behind(position - 1) * OFFSET_ENTRY_SIZE :]

    def entries(self) -> list[tuple[int, int]]:
        """Return (absolute offset, position) of all entries."""
        return [(self._base_offset + o, p) for o, p in _OFFSET_ENTRY.iter_unpack(self._data)]

    def load(self, data: bytearray | memoryview, segment_size: int) -> None:
        """Load a file's bytes: a bytearray that may grow, or a read-only view.

        Raises:
            CorruptIndexError: there is a partial entry, or the last one is invalid for a segment of ``segment_size``
                bytes.
        """
        entries = self._last_two(data)
        if entries and not (entries[-1][0] > 0 and 0 < entries[-1][1] < segment_size):
            raise CorruptIndexError(f"last entry {entries[-1]} in a segment of {segment_size} bytes")
        self._data = data

    def _slot_behind(self, position: int) -> int:
        unpack, data = _OFFSET_ENTRY.unpack_from, self._data
        return bisect.bisect_right(range(len(self)), position, key=lambda row: unpack(data, row * OFFSET_ENTRY_SIZE)[1])

    def _slot_above(self, offset: int) -> int:
        """Return the slot of the first entry above an offset."""
        relative, unpack, data = offset - self._base_offset, _OFFSET_ENTRY.unpack_from, self._data
        return bisect.bisect_right(range(len(self)), relative, key=lambda row: unpack(data, row * OFFSET_ENTRY_SIZE)[0])

    def _entry(self, slot: int) -> tuple[int, int]:
        if slot < 0:
            return self._base_offset, 0
        relative, position = _OFFSET_ENTRY.unpack_from(self._data, slot * OFFSET_ENTRY_SIZE)
        return self._base_offset + relative, position


class TimeIndex(_Index):
    """A map from the largest timestamp so far to the last offset of its batch (Kafka's TimeIndex).

    An entry is a timestamp (big-endian int64, milliseconds) and a relative offset (int32). An entry (t, o) means that
    records later than t lie after o. Both increase strictly.
    """

    __slots__ = ("_last_timestamp",)
    _struct = _TIME_ENTRY

    def __init__(self, base_offset: int, max_bytes: int = 0) -> None:
        super().__init__(base_offset, max_bytes)
        self._last_timestamp = NO_TIMESTAMP

    def __len__(self) -> int:
        return len(self._data) // TIME_ENTRY_SIZE

    @property
    def is_full(self) -> bool:
        """True if the only free entry is the one reserved for sealing the segment."""
        return len(self._data) // TIME_ENTRY_SIZE >= self._max_entries - 1

    @property
    def last_entry(self) -> tuple[int, int]:
        """The last (timestamp, absolute offset); (-1, base offset) when empty."""
        return self._entry(len(self) - 1)

    def maybe_append(self, timestamp_ms: int, offset: int) -> bool:
        """Add an entry unless its timestamp is not above the last one's. Return whether it was added."""
        if timestamp_ms <= self._last_timestamp:
            return False
        assert isinstance(self._data, bytearray), _SEALED
        self._data += _TIME_ENTRY.pack(timestamp_ms, offset - self._base_offset)
        self._last_timestamp = timestamp_ms
        return True

    def before(self, timestamp_ms: int) -> tuple[int, int]:
        """Return the greatest entry (timestamp, absolute offset) below a timestamp, or (-1, base offset).

        Every record before that offset is earlier than ``timestamp_ms``.
        """
        unpack, data = _TIME_ENTRY.unpack_from, self._data
        slot = bisect.bisect_left(
            range(len(self)), timestamp_ms, key=lambda row: unpack(data, row * TIME_ENTRY_SIZE)[0]
        )
        return self._entry(slot - 1)

    def truncate(self, offset: int) -> None:
        """Remove the entries of ``offset`` and after."""
        relative, unpack, data = offset - self._base_offset, _TIME_ENTRY.unpack_from, self._data
        slot = bisect.bisect_left(range(len(self)), relative, key=lambda row: unpack(data, row * TIME_ENTRY_SIZE)[1])
        del _own(self._data)[slot * TIME_ENTRY_SIZE :]
        self._last_timestamp = self.last_entry[0]

    def entries(self) -> list[tuple[int, int]]:
        """Return (timestamp, absolute offset) of all entries."""
        return [(t, self._base_offset + o) for t, o in _TIME_ENTRY.iter_unpack(self._data)]

    def load(self, data: bytearray | memoryview, next_offset: int) -> None:
        """Load a file's bytes: a bytearray that may grow, or a read-only view.

        Raises:
            CorruptIndexError: there is a partial entry, or the last one is invalid for a segment that ends at
                ``next_offset``.
        """
        entries = self._last_two(data)
        if entries and not (entries[-1][0] >= 0 and 0 <= entries[-1][1] < next_offset - self._base_offset):
            raise CorruptIndexError(f"last entry {entries[-1]} in a segment that ends at {next_offset}")
        self._data = data
        self._last_timestamp = self.last_entry[0]

    def _entry(self, slot: int) -> tuple[int, int]:
        if slot < 0:
            return NO_TIMESTAMP, self._base_offset
        timestamp, relative = _TIME_ENTRY.unpack_from(self._data, slot * TIME_ENTRY_SIZE)
        return timestamp, self._base_offset + relative


def _own(data: bytearray | memoryview) -> bytearray:
    assert isinstance(data, bytearray), _SEALED
    return data

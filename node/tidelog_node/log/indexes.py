"""The two sparse indexes of a segment, in Kafka's formats: offset to position, timestamp to offset.

Both live in memory as arrays and reach their file when the segment is sealed: an index can always be rebuilt from the
batches, so the one of the segment that grows is never worth a write. An index that is read back is checked
entry by entry; one that is not strictly increasing, or that points outside of its segment, is refused and rebuilt.
"""

from __future__ import annotations

import bisect
import struct
import sys
from array import array
from collections.abc import Sequence
from itertools import pairwise

OFFSET_ENTRY_SIZE = 8
TIME_ENTRY_SIZE = 12
MAX_RELATIVE_OFFSET = 2**31 - 1
NO_TIMESTAMP = -1
_TIME_ENTRY = struct.Struct(">qi")


class CorruptIndexError(Exception):
    """An index file whose bytes cannot be the index of its segment."""


class OffsetIndex:
    """Maps the last offset of some batches to the batch's position (Kafka's OffsetIndex).

    On disk an entry is a relative offset and a position, both big-endian int32. Offsets and positions
    increase strictly; the search gives the greatest entry that is not above a key.
    """

    __slots__ = ("_base_offset", "_max_entries", "_offsets", "_positions")

    def __init__(self, base_offset: int, max_bytes: int) -> None:
        self._base_offset = base_offset
        self._max_entries = max_bytes // OFFSET_ENTRY_SIZE
        self._offsets = array("i")
        self._positions = array("i")

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        """Whether no entry can be added."""
        return len(self._offsets) >= self._max_entries

    def append(self, last_offset: int, position: int) -> None:
        """Add the entry of a batch."""
        self._offsets.append(last_offset - self._base_offset)
        self._positions.append(position)

    @property
    def last_entry(self) -> tuple[int, int]:
        """The last (absolute offset, position); (base offset, 0) when empty."""
        return self._entry(len(self._offsets) - 1)

    def lookup(self, offset: int) -> tuple[int, int]:
        """Return the greatest entry (absolute offset, position) that is not above ``offset``, or (base offset, 0).

        The batch that contains ``offset`` is at that position or behind it.
        """
        return self._entry(bisect.bisect_right(self._offsets, offset - self._base_offset) - 1)

    def position_before(self, position: int) -> int:
        """Return the greatest indexed position that is not above ``position``; 0 when there is none."""
        slot = bisect.bisect_right(self._positions, position) - 1
        return self._positions[slot] if slot >= 0 else 0

    def truncate(self, position: int) -> None:
        """Remove the entries of batches at ``position`` and after."""
        slot = bisect.bisect_left(self._positions, position)
        del self._offsets[slot:], self._positions[slot:]

    def entries(self) -> list[tuple[int, int]]:
        """Return (absolute offset, position) of all entries."""
        return [(self._base_offset + o, p) for o, p in zip(self._offsets, self._positions, strict=True)]

    def to_bytes(self) -> bytes:
        """Return the file's bytes."""
        both = array("i", bytes(OFFSET_ENTRY_SIZE * len(self._offsets)))
        both[0::2] = self._offsets
        both[1::2] = self._positions
        return _big_endian(both).tobytes()

    def load(self, data: bytes, segment_size: int) -> None:
        """Take the entries from a file's bytes.

        Raises:
            CorruptIndexError: a part of an entry, not increasing, or beyond ``segment_size``.
        """
        _check_length(data, OFFSET_ENTRY_SIZE)
        both = array("i", data)
        both = _big_endian(both)
        offsets, positions = both[0::2], both[1::2]
        _check_increasing(offsets, "relative offsets")
        _check_increasing(positions, "positions")
        if offsets and (offsets[0] < 0 or positions[0] < 0 or positions[-1] >= segment_size):
            raise CorruptIndexError(f"entries outside of a segment of {segment_size} bytes")
        self._offsets, self._positions = offsets, positions

    def _entry(self, slot: int) -> tuple[int, int]:
        if slot < 0:
            return self._base_offset, 0
        return self._base_offset + self._offsets[slot], self._positions[slot]


class TimeIndex:
    """Maps the largest timestamp so far to the last offset of its batch (Kafka's TimeIndex).

    On disk an entry is a timestamp (big-endian int64, milliseconds) and a relative offset (int32). An entry
    (t, o) says that what is later than t lies after o. Both increase strictly.
    """

    __slots__ = ("_base_offset", "_max_entries", "_offsets", "_timestamps")

    def __init__(self, base_offset: int, max_bytes: int) -> None:
        self._base_offset = base_offset
        self._max_entries = max_bytes // TIME_ENTRY_SIZE
        self._timestamps = array("q")
        self._offsets = array("i")

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        """Whether only the entry is free that sealing the segment needs."""
        return len(self._offsets) >= self._max_entries - 1

    @property
    def last_entry(self) -> tuple[int, int]:
        """The last (timestamp, absolute offset); (-1, base offset) when empty."""
        if not self._offsets:
            return NO_TIMESTAMP, self._base_offset
        return self._timestamps[-1], self._base_offset + self._offsets[-1]

    def maybe_append(self, timestamp_ms: int, offset: int) -> None:
        """Add an entry unless its timestamp is not above the last one's."""
        if timestamp_ms > self.last_entry[0]:
            self._timestamps.append(timestamp_ms)
            self._offsets.append(offset - self._base_offset)

    def offset_before(self, timestamp_ms: int) -> int:
        """Return an offset before which every record is earlier than ``timestamp_ms``."""
        slot = bisect.bisect_left(self._timestamps, timestamp_ms) - 1
        return self._base_offset + (self._offsets[slot] if slot >= 0 else 0)

    def truncate(self, offset: int) -> None:
        """Remove the entries of ``offset`` and after."""
        slot = bisect.bisect_left(self._offsets, offset - self._base_offset)
        del self._timestamps[slot:], self._offsets[slot:]

    def entries(self) -> list[tuple[int, int]]:
        """Return (timestamp, absolute offset) of all entries."""
        return [(t, self._base_offset + o) for t, o in zip(self._timestamps, self._offsets, strict=True)]

    def to_bytes(self) -> bytes:
        """Return the file's bytes."""
        return b"".join(map(_TIME_ENTRY.pack, self._timestamps, self._offsets))

    def load(self, data: bytes, next_offset: int) -> None:
        """Take the entries from a file's bytes.

        Raises:
            CorruptIndexError: a part of an entry, not increasing, or not below ``next_offset``.
        """
        _check_length(data, TIME_ENTRY_SIZE)
        entries = list(_TIME_ENTRY.iter_unpack(data))
        timestamps, offsets = array("q", [t for t, _ in entries]), array("i", [o for _, o in entries])
        _check_increasing(timestamps, "timestamps")
        _check_increasing(offsets, "relative offsets")
        if entries and (timestamps[0] < 0 or offsets[0] < 0 or self._base_offset + offsets[-1] >= next_offset):
            raise CorruptIndexError(f"entries outside of a segment that ends at {next_offset}")
        self._timestamps, self._offsets = timestamps, offsets


def _check_length(data: bytes, entry_size: int) -> None:
    if len(data) % entry_size:
        raise CorruptIndexError(f"{len(data)} bytes are not a multiple of {entry_size}")


def _check_increasing(values: Sequence[int], what: str) -> None:
    if any(earlier >= later for earlier, later in pairwise(values)):
        raise CorruptIndexError(f"{what} do not increase")


def _big_endian(values: array[int]) -> array[int]:
    if sys.byteorder == "little":
        values.byteswap()
    return values

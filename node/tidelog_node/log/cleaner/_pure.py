"""The cleaner's pure-Python engine and the definition of an engine's interface: the offset map and the record selector.

It works on the decompressed records of one batch (KIP-98, "Record"). For any bytes the outcome is a result or a
CorruptRecordError. The map holds hashes, not keys, so two keys with the same 128-bit hash count as one; the random seed
means that nobody can construct such keys. A record is parsed up to the length of its value; the rest is copied.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from xxhash import xxh3_128_digest

from tidelog_foundation.records import NO_TIMESTAMP, RecordBatchHeader
from tidelog_node.log.cleaner._faults import buffer_too_small, malformed, table_full

ENTRY_SIZE = 24
"""The size of an entry: a hash of 16 bytes and an offset of 8."""

NOT_FOUND = -1

_ENTRY = struct.Struct("=16sq")
_SLOT = struct.Struct("=Q")
_MASK_32, _MASK_64 = 2**32 - 1, 2**64 - 1

Buffer = bytes | bytearray | memoryview


class OffsetMap:
    """The last offset of each key, by the key's hash, in one table of fixed size (Kafka's SkimpyOffsetMap).

    Open addressing with linear probing. There are at most ``capacity`` keys, so one entry is always empty and every
    search ends. ``latest_offset`` is the last indexed offset, -1 at first; the map has no record behind it. Used by one
    thread.
    """

    __slots__ = ("_seed", "_table", "capacity", "latest_offset", "size", "slots")

    def __init__(self, memory_bytes: int, load_factor: float, seed: int) -> None:
        """Use at most ``memory_bytes``; ``load_factor`` is the share of entries that may be used.

        Raises:
            TidelogError: INVALID_CONFIG, there is no space for one key.
        """
        self.slots = memory_bytes // ENTRY_SIZE
        self.capacity = min(int(self.slots * load_factor), self.slots - 1)
        if self.capacity < 1:
            raise buffer_too_small(memory_bytes, load_factor)
        self._seed = seed
        self._table = bytearray(self.slots * ENTRY_SIZE)
        self.size = 0
        self.latest_offset = -1

    def put(self, key: bytes, offset: int) -> None:
        """Store the offset of a key; the last call for a key wins.

        Raises:
            OverflowError: the map is full; it is unchanged.
        """
        if not self._store(key, offset):
            raise table_full(self.capacity)

    def get(self, key: bytes) -> int:
        """Return the offset of a key, or -1."""
        return self._search(key)[2] - 1

    def advance(self, offset: int) -> None:
        """Mark everything up to and including ``offset`` as indexed."""
        self.latest_offset = max(self.latest_offset, offset)

    def index(self, records: Buffer, header: RecordBatchHeader, start_offset: int) -> bool:
        """Index the keys of a batch's records from ``start_offset`` on. Return False if the table becomes full first.

        ``latest_offset`` is then the offset of the last indexed record.

        Raises:
            CorruptRecordError: a record does not decode.
        """
        for record in _walk(bytes(records), header):
            if record.key is None or record.offset < start_offset:
                continue
            if not self._store(record.key, record.offset):
                return False
        return True

    def _store(self, key: bytes, offset: int) -> bool:
        position, digest, next_offset = self._search(key)
        if next_offset == 0:
            if self.size >= self.capacity:
                return False
            self.size += 1
        # Store offset + 1, so that an entry of zeros is an empty one.
        _ENTRY.pack_into(self._table, position, digest, offset + 1)
        self.advance(offset)
        return True

    def _search(self, key: bytes) -> tuple[int, bytes, int]:
        """Return position, hash and offset + 1 of a key's entry, or of the empty entry for it."""
        digest = xxh3_128_digest(key, self._seed)
        slot = _SLOT.unpack_from(digest)[0] % self.slots
        while True:
            found, next_offset = _ENTRY.unpack_from(self._table, slot * ENTRY_SIZE)
            if next_offset == 0 or found == digest:
                return slot * ENTRY_SIZE, digest, next_offset
            slot = (slot + 1) % self.slots


class RecordSelector:
    """Selects the records of a batch that stay and copies them; one batch after another, on one thread.

    After :meth:`select` or :meth:`select_all`, ``count`` is the number of selected records, ``has_tombstones`` tells
    whether one of them has a null value, ``max_timestamp`` is their largest timestamp (-1 for none) and ``keyless`` is
    the number of records removed because they have no key.
    """

    __slots__ = ("_base_timestamp", "_offset_map", "_selected", "count", "has_tombstones", "keyless", "max_timestamp")

    def __init__(self, offset_map: OffsetMap) -> None:
        self._offset_map = offset_map
        self._begin(NO_TIMESTAMP)

    def select(self, records: Buffer, header: RecordBatchHeader, are_tombstones_expired: bool) -> None:
        """Select the records of a batch that have the last offset of their key, or whose key the map does not have.

        Records behind the map's latest offset stay; records without a key go.

        Raises:
            CorruptRecordError: a record does not decode.
        """
        self._begin(header.base_timestamp)
        for record in _walk(bytes(records), header):
            if record.offset > self._offset_map.latest_offset:
                self._keep(record)
            elif record.key is None:
                self.keyless += 1
            elif record.is_tombstone and are_tombstones_expired:
                continue
            elif record.offset >= self._offset_map.get(record.key):
                self._keep(record)

    def select_all(self, records: Buffer, header: RecordBatchHeader) -> None:
        """Select all records of a batch.

        Raises:
            CorruptRecordError: a record does not decode.
        """
        self._begin(header.base_timestamp)
        for record in _walk(bytes(records), header):
            self._keep(record)

    def copy(self, base_timestamp: int) -> bytes:
        """Return the selected records with timestamp deltas from ``base_timestamp``; the timestamps are unchanged."""
        shift = self._base_timestamp - base_timestamp
        if shift == 0:
            return b"".join(record.whole for record in self._selected)
        return b"".join(_shifted(record, shift) for record in self._selected)

    def _begin(self, base_timestamp: int) -> None:
        self._base_timestamp = base_timestamp
        self._selected: list[_Record] = []
        self.count = 0
        self.keyless = 0
        self.has_tombstones = False
        self.max_timestamp = NO_TIMESTAMP

    def _keep(self, record: _Record) -> None:
        self._selected.append(record)
        self.count += 1
        self.has_tombstones = self.has_tombstones or record.is_tombstone
        self.max_timestamp = max(self.max_timestamp, _wrapped(self._base_timestamp + record.timestamp_delta))


class _Record(NamedTuple):
    whole: bytes
    attributes: bytes
    timestamp_delta: int
    tail: bytes
    offset: int
    key: bytes | None
    is_tombstone: bool


def _walk(data: bytes, header: RecordBatchHeader) -> Iterator[_Record]:
    """Yield the records, after all checks of their structure and position."""
    position, previous = 0, -1
    if header.record_count > len(data):
        raise malformed(header, 0, 0, len(data))
    for index in range(header.record_count):
        try:
            record, delta, end = _read_record(data, position, header.base_offset)
        except IndexError:
            raise malformed(header, index, position, len(data)) from None
        if not previous < delta <= header.last_offset_delta:
            raise malformed(header, index, position, len(data))
        yield record
        position, previous = end, delta
    if position != len(data):
        raise malformed(header, header.record_count, position, len(data))


def _read_record(data: bytes, start: int, base_offset: int) -> tuple[_Record, int, int]:
    """Return the record at a position, its offset delta and its end. Raise IndexError for a malformed record."""
    size, body = _read_varint(data, start, len(data), 5)
    end = body + size
    if size < 1 or end > len(data):
        raise IndexError
    timestamp_delta, tail = _read_varint(data, body + 1, end, 10)
    offset_delta, position = _read_varint(data, tail, end, 5)
    key, position = _read_field(data, position, end)
    value_size, position = _read_varint(data, position, end, 5)
    if value_size > end - position:
        raise IndexError
    record = _Record(
        data[start:end],
        data[body : body + 1],
        timestamp_delta,
        data[tail:end],
        base_offset + offset_delta,
        key,
        value_size < 0,
    )
    return record, offset_delta, end


def _read_field(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = _read_varint(data, position, end, 5)
    if size < 0:
        return None, position
    if size > end - position:
        raise IndexError
    return data[position : position + size], position + size


def _read_varint(data: bytes, position: int, end: int, max_bytes: int) -> tuple[int, int]:
    """Return the zigzag varint at a position and the position behind it. Raise IndexError if there is none."""
    number = 0
    for index in range(max_bytes):
        if position >= end:
            raise IndexError
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            number &= _MASK_32 if max_bytes == 5 else _MASK_64
            return (number >> 1) ^ -(number & 1), position
    raise IndexError


def _shifted(record: _Record, shift: int) -> bytes:
    body = record.attributes + _varint(_wrapped(record.timestamp_delta + shift)) + record.tail
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    zigzag = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while zigzag >= 0x80:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


def _wrapped(number: int) -> int:
    """Return the number wrapped to int64, as in Kafka."""
    return (number + 2**63) % 2**64 - 2**63

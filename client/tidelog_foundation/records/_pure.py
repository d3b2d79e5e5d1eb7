"""The pure-Python engine, and the definition of an engine: encode, check, decode, decode to columns.

It works on one batch's decompressed records (KIP-98, "Record"). For any bytes, the outcome is a result or a
CorruptRecordError: every field is checked against the end of its record, and no list or buffer grows by a count that
the bytes do not back. As in Kafka, varint bits beyond 32 (64) are dropped, timestamps wrap in int64, and any negative
length means null.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import TypeVar

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.records._faults import (
    FAULT_BOUNDS,
    FAULT_COUNT,
    FAULT_END,
    FAULT_HEADERS,
    FAULT_LENGTH,
    FAULT_OFFSET,
    FAULT_REMAINDER,
    malformed,
)
from tidelog_foundation.records._pure_scan import scan_batches as scan_batches
from tidelog_foundation.records._pure_scan import summarize_batches as summarize_batches
from tidelog_foundation.records._pure_scan import validate_batch as validate_batch
from tidelog_foundation.records.columns import BinaryBuffers, ColumnBuffers
from tidelog_foundation.records.header import (
    LOG_APPEND_TIME,
    MAX_INT64,
    MIN_INT64,
    NO_PARTITION_LEADER_EPOCH,
    NO_TIMESTAMP,
    Buffer,
    RecordBatchHeader,
    encode_prefix,
)
from tidelog_foundation.records.header import parse_header as parse_header
from tidelog_foundation.records.record import Record
from tidelog_foundation.records.sources import ContentSource, TimestampSource, content_at, rows_of

T = TypeVar("T")
MIN_RECORD_SIZE = 7
"""Length, attributes, timestamp delta, offset delta, key length, value length, header count: one byte each."""

MAX_RECORDS_SIZE = 2**31 - 1 - 49
MAX_COLUMN_SIZE = 2**31 - 1


class RecordEncoder:
    """Encodes records in sequence; offsets count from 0, and the first timestamp is the base."""

    __slots__ = ("_buffer", "base_timestamp", "count", "max_timestamp")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.count = 0
        self.base_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP

    @property
    def size(self) -> int:
        """The bytes of the records so far."""
        return len(self._buffer)

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int = NO_TIMESTAMP,
    ) -> int:
        """Encode one record and return its offset in the batch. A call that raises changes nothing.

        Raises:
            TidelogError: INVALID_TIMESTAMP below -1 or beyond int64; MESSAGE_TOO_LARGE if the batch would exceed 2 GiB.
            TypeError: a key, value or header of another type.
        """
        if not isinstance(timestamp_ms, int):
            raise TypeError(f"timestamp_ms: expected int, got {type(timestamp_ms).__name__}")
        if not NO_TIMESTAMP <= timestamp_ms <= MAX_INT64:
            raise error_for(ErrorCode.INVALID_TIMESTAMP, f"timestamp {timestamp_ms}: expected -1 to {MAX_INT64}")
        # Copy first: iteration may run the caller's code, and the counted headers must not change.
        headers = tuple(headers)
        offset = self.count
        base = self.base_timestamp if offset else timestamp_ms
        parts = [
            b"\x00",
            _varint(_wrapped(timestamp_ms - base)),
            _varint(offset),
            *_field("key", key),
            *_field("value", value),
        ]
        parts.append(_varint(len(headers)))
        for name, content in headers:
            if not isinstance(name, str):
                raise TypeError(f"header key: expected str, got {type(name).__name__}")
            parts += _field("header key", name.encode())
            parts += _field("header value", content)
        body = b"".join(parts)
        record = _varint(len(body)) + body
        if len(self._buffer) + len(record) > MAX_RECORDS_SIZE:
            raise error_for(ErrorCode.MESSAGE_TOO_LARGE, f"a batch holds at most {MAX_RECORDS_SIZE} bytes of records")
        latest = max(self.max_timestamp, timestamp_ms)
        # No calls from here on: Ctrl-C arrives at calls, and the record must be either fully in the batch or absent.
        self._buffer += record
        self.base_timestamp = base
        self.max_timestamp = latest
        self.count = offset + 1
        return offset

    def extend(
        self,
        values: ContentSource,
        keys: ContentSource | None,
        timestamps: TimestampSource,
        start: int,
        max_size: int | None,
    ) -> int:
        """Encode the records from row ``start`` on and return the row after the last one encoded.

        With ``max_size`` it stops before the record that would push :attr:`size` beyond it. The first record is always
        encoded, so that a new encoder makes progress. A call that raises changes nothing.

        Raises:
            TidelogError: INVALID_TIMESTAMP; MESSAGE_TOO_LARGE if the batch would exceed 2 GiB without a limit.
            TypeError: a key or value of another type.
        """
        before = (len(self._buffer), self.count, self.base_timestamp, self.max_timestamp)
        row = start
        try:
            for row in range(start, rows_of(values)):
                size, latest = len(self._buffer), self.max_timestamp
                timestamp_ms = timestamps if isinstance(timestamps, int) else timestamps[row]
                key = None if keys is None else content_at(keys, row, "key")
                self.append(key, content_at(values, row, "value"), (), timestamp_ms)
                if max_size is not None and len(self._buffer) > max_size and self.count > 1:
                    del self._buffer[size:]
                    self.count, self.max_timestamp = self.count - 1, latest
                    return row
        except BaseException:
            del self._buffer[before[0] :]
            _, self.count, self.base_timestamp, self.max_timestamp = before
            raise
        return max(start, rows_of(values))

    def records(self) -> bytes:
        """Return the encoded records; later records do not change the result."""
        return bytes(self._buffer)

    def batch(self, covered: bytes) -> bytes:
        """Return the batch without compression, given the header fields that the CRC covers."""
        return encode_prefix(0, NO_PARTITION_LEADER_EPOCH, covered, self._buffer) + self._buffer


def summarize_records(data: Buffer, header: RecordBatchHeader) -> tuple[bool, int, int]:
    """Return (has a null key, least timestamp, greatest timestamp), without timestamps of -1 (-1 if there is none).

    Raises:
        CorruptRecordError: the bytes are not ``record_count`` well-formed records with increasing offsets.
    """
    has_keyless, least, greatest = False, NO_TIMESTAMP, NO_TIMESTAMP
    for _, timestamp_ms, key, _, _ in _walk(bytes(data), header):
        has_keyless = has_keyless or key is None
        if timestamp_ms != NO_TIMESTAMP:
            least = timestamp_ms if least == NO_TIMESTAMP else min(least, timestamp_ms)
            greatest = timestamp_ms if greatest == NO_TIMESTAMP else max(greatest, timestamp_ms)
    return has_keyless, least, greatest


def find_keyless(data: Buffer, header: RecordBatchHeader, limit: int) -> list[int]:
    """Return the indexes of the first records without a key, at most ``limit``.

    Raise the errors of :func:`summarize_records`.
    """
    return _first((index for index, fields in enumerate(_walk(bytes(data), header)) if fields[2] is None), limit)


def find_outside(
    data: Buffer, header: RecordBatchHeader, earliest: int, latest: int, limit: int
) -> list[tuple[int, int]]:
    """Return (index, timestamp) of the first records with a timestamp outside the range, at most ``limit``.

    A record without a timestamp (-1) is not too early. Raise the errors of :func:`summarize_records`.
    """
    timestamps = enumerate(fields[1] for fields in _walk(bytes(data), header))
    outside = ((i, time) for i, time in timestamps if time > latest or (time != NO_TIMESTAMP and time < earliest))
    return _first(outside, limit)


def find_timestamp(
    data: Buffer, header: RecordBatchHeader, timestamp_ms: int, min_offset: int
) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first record at or after a timestamp and an offset, or None.

    Raise the errors of :func:`summarize_records`.
    """
    places = ((header.base_offset + fields[0], fields[1]) for fields in _walk(bytes(data), header))
    found = _first((place for place in places if place[1] >= timestamp_ms and place[0] >= min_offset), 1)
    return found[0] if found else None


def find_greatest(data: Buffer, header: RecordBatchHeader, min_offset: int) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first record with the greatest timestamp at or after an offset.

    None means that no record has a timestamp.

    Raises:
        CorruptRecordError: see :func:`summarize_records`.
    """
    places = ((header.base_offset + fields[0], fields[1]) for fields in _walk(bytes(data), header))
    dated = (place for place in places if place[0] >= min_offset and place[1] > NO_TIMESTAMP)
    return max(dated, key=itemgetter(1), default=None)


def _first(found: Iterator[T], limit: int) -> list[T]:
    """Return the first ``limit`` items after visiting all, so that later records are checked too."""
    first = list(islice(found, limit))
    for _ in found:
        pass
    return first


class RecordDecoder:
    """Decodes the records of one batch from front to end, a requested number at a time."""

    def __init__(self, data: Buffer, header: RecordBatchHeader, start_offset: int = 0) -> None:
        """Begin at ``start_offset``. Raise CorruptRecordError if the bytes are too few for the records."""
        check_count(len(data), header)
        self._records = _decoded_records(data, header, start_offset)

    def read(self, most: int) -> list[Record]:
        """Return the next records; fewer than ``most`` only at the end.

        Raise the errors of :func:`summarize_records`.
        """
        return list(islice(self._records, most))


def decode_records(data: Buffer, header: RecordBatchHeader) -> list[Record]:
    """Return the records. Raise CorruptRecordError as :func:`summarize_records` does."""
    return list(_decoded_records(data, header, MIN_INT64))


class ColumnDecoder:
    """Collects the records of several batches as Arrow buffers."""

    def __init__(self, include_headers: bool, expected_size: int) -> None:
        """Create a decoder; ``expected_size``, the estimated bytes of records, saves the compiled twin copies."""
        self.rows = 0
        self._include_headers = include_headers
        self._offset, self._timestamp, self._timestamp_type = array("q"), array("q"), array("i")
        self._key, self._value = _BinaryColumn(), _BinaryColumn()
        self._header_offsets = array("i", [0])
        self._header_key, self._header_value = _BinaryColumn(), _BinaryColumn()

    def append(self, data: Buffer, header: RecordBatchHeader, start_offset: int, end_offset: int) -> None:
        """Add the records of a batch with offsets in [start_offset, end_offset).

        Raises:
            CorruptRecordError: see :func:`summarize_records`, also for records outside the range; the decoder must not
                be used afterwards.
            TidelogError: RECORD_LIST_TOO_LARGE if a column would exceed 2 GiB.
        """
        for offset_delta, timestamp_ms, key, value, headers in _walk(bytes(data), header):
            offset = header.base_offset + offset_delta
            if not start_offset <= offset < end_offset:
                continue
            self.rows += 1
            self._offset.append(offset)
            self._timestamp.append(timestamp_ms)
            self._timestamp_type.append(header.timestamp_type)
            self._key.append(key)
            self._value.append(value)
            if self._include_headers:
                self._append_headers(headers)

    def finish(self) -> ColumnBuffers:
        """Return the buffers; the decoder cannot be used afterwards."""
        return ColumnBuffers(
            len(self._offset),
            memoryview(self._offset),
            memoryview(self._timestamp),
            memoryview(self._timestamp_type),
            self._key.finish(),
            self._value.finish(),
            memoryview(self._header_offsets),
            self._header_key.finish(),
            self._header_value.finish(),
        )

    def _append_headers(self, headers: list[tuple[bytes, bytes | None]]) -> None:
        for name, content in headers:
            self._header_key.append(name.decode("utf-8", "replace").encode())
            self._header_value.append(content)
        self._header_offsets.append(self._header_offsets[-1] + len(headers))


class _BinaryColumn:
    __slots__ = ("_data", "_nulls", "_offsets", "_valid")

    def __init__(self) -> None:
        self._offsets, self._data = array("i", [0]), bytearray()
        self._valid, self._nulls = bytearray(), 0

    def append(self, content: bytes | None) -> None:
        row = len(self._offsets) - 1
        if row % 8 == 0:
            self._valid.append(0)
        if content is None:
            self._nulls += 1
        else:
            if len(self._data) + len(content) > MAX_COLUMN_SIZE:
                raise error_for(ErrorCode.RECORD_LIST_TOO_LARGE, f"one column holds at most {MAX_COLUMN_SIZE} bytes")
            self._valid[row // 8] |= 1 << row % 8
            self._data += content
        self._offsets.append(len(self._data))

    def finish(self) -> BinaryBuffers:
        valid = memoryview(self._valid) if self._nulls else None
        return valid, memoryview(self._offsets), memoryview(self._data), self._nulls


def check_count(size: int, header: RecordBatchHeader) -> None:
    """Check that the bytes can hold the records. Raise CorruptRecordError."""
    if header.record_count * MIN_RECORD_SIZE > size:
        raise malformed(FAULT_COUNT, header.base_offset, 0, 0, size, header.record_count)


def _decoded_records(data: Buffer, header: RecordBatchHeader, start_offset: int) -> Iterator[Record]:
    base_offset, timestamp_type = header.base_offset, header.timestamp_type
    for offset_delta, timestamp_ms, key, value, headers in _walk(bytes(data), header):
        offset = base_offset + offset_delta
        if offset >= start_offset:
            yield Record(offset, timestamp_ms, timestamp_type, key, value, _decoded(headers))


_Header = tuple[bytes, bytes | None]
_Fields = tuple[int, int, bytes | None, bytes | None, list[_Header]]
"""Offset delta, timestamp, key, value and headers of one record."""


def _walk(data: bytes, header: RecordBatchHeader) -> Iterator[_Fields]:
    """Yield the fields of each record, after all checks of the record's structure and bounds."""
    size, count, position, previous = len(data), header.record_count, 0, -1
    append_time_ms = header.max_timestamp if header.timestamp_type == LOG_APPEND_TIME else None

    def fault(number: int, index: int) -> Exception:
        return malformed(number, header.base_offset, index, position, size, count)

    check_count(size, header)
    for index in range(count):
        try:
            length, start = _read_varint(data, position, 5)
            end = start + length
            if length < 0 or end > size:
                raise fault(FAULT_LENGTH, index)
            stop, timestamp_delta, offset_delta, key, value, headers = _read_fields(data, start, end)
        except _MalformedFieldError as error:
            raise fault(error.fault, index) from None
        if stop != end:
            raise fault(FAULT_END, index)
        if not previous < offset_delta <= header.last_offset_delta:
            raise fault(FAULT_OFFSET, index)
        timestamp_ms = _wrapped(header.base_timestamp + timestamp_delta)
        yield offset_delta, timestamp_ms if append_time_ms is None else append_time_ms, key, value, headers
        previous, position = offset_delta, end
    if position != size:
        raise fault(FAULT_REMAINDER, count - 1)


class _MalformedFieldError(Exception):
    def __init__(self, fault: int) -> None:
        super().__init__(fault)
        self.fault = fault


def _read_fields(
    data: bytes, position: int, end: int
) -> tuple[int, int, int, bytes | None, bytes | None, list[_Header]]:
    """Read up to the end of the data; the caller detects a record that runs past its own end by its stop."""
    timestamp_delta, position = _read_varint(data, position + 1, 10)
    offset_delta, position = _read_varint(data, position, 5)
    key, position = _read_bytes(data, position)
    value, position = _read_bytes(data, position)
    header_count, position = _read_varint(data, position, 5)
    if not 0 <= header_count <= max(end - position, 0):
        raise _MalformedFieldError(FAULT_HEADERS)
    headers: list[_Header] = []
    for _ in range(header_count):
        name, position = _read_bytes(data, position)
        if name is None:
            raise _MalformedFieldError(FAULT_HEADERS)
        content, position = _read_bytes(data, position)
        headers.append((name, content))
    return position, timestamp_delta, offset_delta, key, value, headers


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = _read_varint(data, position, 5)
    if length < 0:
        return None, position
    end = position + length
    if end > len(data):
        raise _MalformedFieldError(FAULT_BOUNDS)
    return data[position:end], end


def _wrapped(number: int) -> int:
    """Return the number wrapped to int64."""
    if MIN_INT64 <= number <= MAX_INT64:
        return number
    return (number - MIN_INT64) % 2**64 + MIN_INT64


def _decoded(headers: list[_Header]) -> tuple[tuple[str, bytes | None], ...]:
    return tuple([(name.decode("utf-8", "replace"), content) for name, content in headers]) if headers else ()


def _read_varint(data: bytes, position: int, max_bytes: int) -> tuple[int, int]:
    """Return a zigzag varint of at most 5 bytes (32 bits) or 10 bytes (64 bits), and the position after it."""
    try:
        byte = data[position]
        if byte < 0x80:
            return byte >> 1 ^ -(byte & 1), position + 1
        number = byte & 0x7F
        for place in range(1, max_bytes):
            byte = data[position + place]
            number |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                number &= 0xFFFFFFFF if max_bytes == 5 else 0xFFFFFFFFFFFFFFFF
                return number >> 1 ^ -(number & 1), position + place + 1
    except IndexError:
        raise _MalformedFieldError(FAULT_BOUNDS) from None
    raise _MalformedFieldError(FAULT_BOUNDS)


def _field(name: str, content: bytes | None) -> tuple[bytes, bytes]:
    if content is None:
        return b"\x01", b""
    if not isinstance(content, bytes):
        raise TypeError(f"{name}: expected bytes or None, got {type(content).__name__}")
    return _varint(len(content)), content


def _varint(number: int) -> bytes:
    zigzag = number << 1 if number >= 0 else (-number << 1) - 1
    return _SHORT_VARINTS[zigzag] if zigzag < len(_SHORT_VARINTS) else _encode_varint(zigzag)


def _encode_varint(zigzag: int) -> bytes:
    encoded = bytearray()
    while zigzag >= 0x80:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


_SHORT_VARINTS = tuple(map(_encode_varint, range(2**14)))

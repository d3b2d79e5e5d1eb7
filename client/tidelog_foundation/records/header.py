"""The 61-byte header of every RecordBatch v2: parsing, assignment and encoding.

This module owns the layout (KIP-98, "Message Format"). The CRC covers everything from the attributes to the end, so a
leader sets the base offset and the partition leader epoch without changing it. The records after the header are not
read.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from tidelog_foundation.errors import CorruptRecordError
from tidelog_foundation.records.compression import codec_name

HEADER_SIZE = 61
LOG_OVERHEAD = 12
MAGIC = 2

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_PARTITION_LEADER_EPOCH = -1

CREATE_TIME = 0
LOG_APPEND_TIME = 1

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40

MAX_INT64 = 2**63 - 1
MIN_INT64 = -(2**63)

UNCOVERED_STRUCT = struct.Struct(">qiibI")
COVERED_STRUCT = struct.Struct(">hiqqqhii")
_HEADER_STRUCT = struct.Struct(UNCOVERED_STRUCT.format.replace("b", "x") + COVERED_STRUCT.format[1:])
_LEAST_BATCH_LENGTH = HEADER_SIZE - LOG_OVERHEAD
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
_LEADER_EPOCH_POSITION = 12
_MAGIC_POSITION = 16
_ATTRIBUTES_POSITION = 22
"""The position of the lower byte of the attributes."""
_MAX_TIMESTAMP_POSITION = 35
_INT8, _INT16, _UINT32, _INT32, _INT64 = (struct.Struct(">" + code) for code in "bhIiq")

Buffer = bytes | bytearray | memoryview
"""The contiguous bytes of a batch."""


def is_transactional(records: Buffer) -> bool:
    """Return whether the attributes of the first batch say that it belongs to a transaction."""
    return len(records) >= HEADER_SIZE and bool(records[_ATTRIBUTES_POSITION] & TRANSACTIONAL_MASK)


class RecordBatchHeader(NamedTuple):
    """The header of one batch, with Kafka's field names; -1 means "none" in timestamps and producer fields.

    :func:`parse_header` guarantees ``0 <= base_offset <= last_offset`` within int64, a ``batch_length`` of at least the
    header's, and a ``record_count`` that is not negative. It is a tuple, because every batch written or read gets one,
    and creating a frozen dataclass takes five times as long.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_in_bytes(self) -> int:
        """The bytes of the whole batch, header included."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """The offset of the last record, which compaction may have removed."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> str:
        """The codec's name as in ``compression.type``. Raises UNSUPPORTED_COMPRESSION_TYPE for ids 5 to 7."""
        return codec_name(self.attributes & COMPRESSION_MASK)

    @property
    def timestamp_type(self) -> int:
        """``CREATE_TIME`` (0) or ``LOG_APPEND_TIME`` (1)."""
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_MASK else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """True if the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        """True if the batch is a transaction marker, which applications do not see."""
        return bool(self.attributes & CONTROL_MASK)

    @property
    def has_delete_horizon(self) -> bool:
        """True if the base timestamp is the time after which tombstones may be removed (KIP-534)."""
        return bool(self.attributes & DELETE_HORIZON_MASK)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time after which this batch's tombstones and markers may be removed; None if no cleaner has set it
        (KIP-534).
        """
        return self.base_timestamp if self.attributes & DELETE_HORIZON_MASK else None


class BatchScan(NamedTuple):
    """The result of a scan over a window of batches: each valid batch with its position, in the first ``size`` bytes.

    ``wanted`` is the size of the batch after them, or the 61 bytes of a header that is not wholly in the window. The
    next window begins there and must have at least that many bytes. If a ``fault`` tells why no valid batch follows,
    ``wanted`` is 0. A torn batch at the end of a file is not a fault of the window: there, fewer than ``wanted`` bytes
    remain.
    """

    batches: list[tuple[int, RecordBatchHeader]]
    size: int
    wanted: int
    fault: CorruptRecordError | None


class BatchesSummary(NamedTuple):
    """The facts about whole batches, without a look at their records.

    ``record_count`` is the sum of the headers' counts, control records included. ``next_offset`` is the greatest of all
    batches, and so is ``leader_epoch``; both are -1 without batches.
    """

    record_count: int
    next_offset: int
    leader_epoch: int


def parse_header(buffer: Buffer, position: int = 0, first_position: int = 0) -> RecordBatchHeader:
    """Return the header at a position; the rest of the batch may be missing.

    ``first_position`` is the buffer's position in a file, for errors.

    Raises:
        CorruptRecordError: fewer than 61 bytes, a magic other than 2, or an impossible length, offset or count.
    """
    remaining = len(buffer) - position
    if position < 0 or remaining < HEADER_SIZE:
        raise CorruptRecordError(
            f"a batch header at byte {first_position + position} needs {HEADER_SIZE} bytes, {remaining} remain"
        )
    fields = _HEADER_STRUCT.unpack_from(buffer, position)
    if buffer[position + _MAGIC_POSITION] != MAGIC:
        (magic,) = _INT8.unpack_from(buffer, position + _MAGIC_POSITION)
        raise CorruptRecordError(f"batch at byte {first_position + position}: expected magic {MAGIC}, found {magic}")
    header = tuple.__new__(RecordBatchHeader, fields)
    fault = _header_fault(header)
    if fault:
        place = first_position + position
        raise CorruptRecordError(f"batch with base offset {header.base_offset} at byte {place}: {fault}")
    return header


def assign_offsets(
    batch: bytearray | memoryview,
    base_offset: int,
    leader_epoch: int,
    log_append_time_ms: int | None = None,
    max_timestamp: int | None = None,
) -> None:
    """Write a leader's assignments into one whole batch, in place.

    ``log_append_time_ms`` turns the batch into one of LogAppendTime: it sets the flag and the max timestamp.
    ``max_timestamp`` is the value that the leader found in the records; a different one from the producer is corrected,
    as in Kafka's LogValidator. The CRC is recomputed only for these changes, because it covers neither the base offset
    nor the epoch.
    """
    _INT64.pack_into(batch, 0, base_offset)
    _INT32.pack_into(batch, _LEADER_EPOCH_POSITION, leader_epoch)
    if log_append_time_ms is not None:
        (attributes,) = _INT16.unpack_from(batch, ATTRIBUTES_POSITION)
        _INT16.pack_into(batch, ATTRIBUTES_POSITION, attributes | TIMESTAMP_TYPE_MASK)
        max_timestamp = log_append_time_ms
    elif max_timestamp is None or _INT64.unpack_from(batch, _MAX_TIMESTAMP_POSITION)[0] == max_timestamp:
        return
    _INT64.pack_into(batch, _MAX_TIMESTAMP_POSITION, max_timestamp)
    with memoryview(batch) as view, view[ATTRIBUTES_POSITION:] as covered:
        _UINT32.pack_into(batch, CRC_POSITION, crc32c(covered))


def encode_batch(header: RecordBatchHeader, records: Buffer) -> bytes:
    """Return the batch of a header and its records, which must be compressed as the header's attributes tell.

    Length and CRC are computed; the header's own are ignored. With ``header._replace(...)``, a caller rewrites a batch
    with other records, another codec or a delete horizon (then ``base_timestamp``).
    """
    covered = COVERED_STRUCT.pack(
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )
    prefix = encode_prefix(header.base_offset, header.partition_leader_epoch, covered, records)
    return b"".join((prefix, records))


def encode_prefix(base_offset: int, leader_epoch: int, covered: bytes, records: Buffer) -> bytes:
    """Return the header's bytes, given those packed by ``COVERED_STRUCT`` and the bytes after them."""
    length = HEADER_SIZE - LOG_OVERHEAD + len(records)
    crc = crc32c(records, crc32c(covered))
    return UNCOVERED_STRUCT.pack(base_offset, length, leader_epoch, MAGIC, crc) + covered


def _header_fault(header: RecordBatchHeader) -> str | None:
    base_offset, batch_length, _, _, _, last_offset_delta, _, _, _, _, _, record_count = header
    if batch_length < _LEAST_BATCH_LENGTH:
        return f"batch length {batch_length} is below the least, {_LEAST_BATCH_LENGTH}"
    if base_offset < 0:
        return "the base offset is negative"
    if not 0 <= last_offset_delta < MAX_INT64 - base_offset:
        return f"last offset delta {last_offset_delta} leads out of the range of offsets"
    if record_count < 0:
        return f"record count {record_count} is negative"
    return None

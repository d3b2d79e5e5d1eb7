"""Transaction markers, the control records that end a producer's transaction in a partition.

This module owns the format of Kafka's EndTransactionMarker (KIP-98, "Control Messages"): a separate batch with the
transactional and the control bit, the producer's id and epoch, no sequence, and one record. The record's key is an
int16 version and an int16 type, its value an int16 version and the int32 epoch of the coordinator. As in Kafka, a newer
version is read as the known one, which it extends, and a record of an unknown type ends no transaction.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import CorruptRecordError
from tidelog_foundation.records._engine import Record, engine
from tidelog_foundation.records.header import (
    CONTROL_MASK,
    NO_PARTITION_LEADER_EPOCH,
    NO_SEQUENCE,
    TRANSACTIONAL_MASK,
    Buffer,
    RecordBatchHeader,
    encode_batch,
)
from tidelog_foundation.records.reader import read_records
from tidelog_foundation.records.validation import validate_batch

_VERSION = 0
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


class ControlType(IntEnum):
    """The outcome of a transaction; the number is the type in the record's key."""

    ABORT = 0
    COMMIT = 1


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """A transaction marker in a log."""

    offset: int
    timestamp_ms: int
    kind: ControlType
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


def control_batch(
    kind: ControlType, producer_id: int, producer_epoch: int, coordinator_epoch: int, timestamp_ms: int
) -> bytes:
    """Return the batch that ends a producer's transaction; the leader assigns the base offset, which is 0."""
    encoder = engine.RecordEncoder()
    encoder.append(_KEY.pack(_VERSION, kind), _VALUE.pack(_VERSION, coordinator_epoch), (), timestamp_ms)
    records = bytes(encoder.records())
    header = RecordBatchHeader(
        base_offset=0,
        batch_length=0,
        partition_leader_epoch=NO_PARTITION_LEADER_EPOCH,
        crc=0,
        attributes=TRANSACTIONAL_MASK | CONTROL_MASK,
        last_offset_delta=0,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        record_count=1,
    )
    return encode_batch(header, records)


def read_control(buffer: Buffer, position: int = 0) -> ControlRecord | None:
    """Return the marker in the batch at a position.

    None means a batch of data, a control batch whose record a cleaner has removed, or one of another type.

    Raises:
        CorruptRecordError: the batch is torn or damaged, or a control record is malformed.
    """
    header = validate_batch(buffer, position)
    if not header.is_control or header.record_count == 0:
        return None
    if header.record_count != 1:
        raise _malformed(header, f"{header.record_count} records in a control batch")
    return _marker(header, read_records(buffer, position)[0])


def _marker(header: RecordBatchHeader, record: Record) -> ControlRecord | None:
    key, value = record.key or b"", record.value or b""
    if len(key) < _KEY.size:
        raise _malformed(header, f"the key has {len(key)} bytes, expected {_KEY.size}")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise _malformed(header, f"version {version} of the key")
    if number not in ControlType.__members__.values():
        return None
    if len(value) < _VALUE.size:
        raise _malformed(header, f"the value has {len(value)} bytes, expected {_VALUE.size}")
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < 0:
        raise _malformed(header, f"version {version} of the value")
    return ControlRecord(
        record.offset,
        record.timestamp_ms,
        ControlType(number),
        header.producer_id,
        header.producer_epoch,
        coordinator_epoch,
    )


def _malformed(header: RecordBatchHeader, text: str) -> CorruptRecordError:
    return CorruptRecordError(f"control batch at offset {header.base_offset}: {text}")

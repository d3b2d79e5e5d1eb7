"""Batches on their way from a source to a target: selected, checked, and given the producer of the target.

A batch keeps its records, timestamps and compression as bytes; only its header is new. Its CRC is checked before the
new one is computed, so that damage on the way is not signed. Three kinds of batches, which no producer may send, are
encoded again: those with gaps that a cleaner has left, those with timestamps of LogAppendTime, and those with the
delete horizon of a cleaner.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from tidelog_foundation.errors import CorruptRecordError
from tidelog_foundation.records import HEADER_SIZE, RecordBatchBuilder, data_batches, iter_headers, read_records
from tidelog_foundation.records.header import (
    COVERED_STRUCT,
    DELETE_HORIZON_MASK,
    LOG_OVERHEAD,
    MAGIC,
    NO_PARTITION_LEADER_EPOCH,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    UNCOVERED_STRUCT,
    Buffer,
    RecordBatchHeader,
)

_REENCODED: Final = TIMESTAMP_TYPE_MASK | DELETE_HORIZON_MASK
_COVERED_AT: Final = 21
_HEADER: Final = Struct(UNCOVERED_STRUCT.format + COVERED_STRUCT.format[1:]).pack
_COVERED: Final = COVERED_STRUCT.pack
MAX_SEQUENCE: Final = 2**31 - 1


class SourceBatch(NamedTuple):
    """A batch of the source: the attributes and times of its header, and its records as they came."""

    base_offset: int
    next_offset: int
    """The source's offset behind the batch."""
    record_count: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    records: memoryview
    offsets: tuple[int, ...] = ()
    """The source's offsets of the records, if there were gaps between them."""

    @property
    def size(self) -> int:
        """The bytes of the whole batch."""
        return HEADER_SIZE + len(self.records)


class Producer(NamedTuple):
    """The producer on the target. ``transactional_id`` is None without transactions."""

    producer_id: int
    epoch: int
    transactional_id: str | None = None


def source_batches(
    records: Buffer, aborted: Sequence[tuple[int, int]] | None, from_offset: int
) -> tuple[list[SourceBatch], int]:
    """Return the batches of a fetch to copy, and the offset of the next fetch.

    Control batches and those of aborted transactions are left out, as are records below ``from_offset``.

    Raises:
        CorruptRecordError: A batch is damaged, or of an old format.
    """
    view = memoryview(records)
    batches: list[SourceBatch] = []
    end, scanned = from_offset, 0
    for at, header in data_batches(view, aborted or ()):  # type: ignore[arg-type]  # any buffer will do
        end, scanned = header.next_offset, at
        if header.next_offset <= from_offset or not header.record_count:
            continue
        batch = view[at : at + header.size_in_bytes]
        _check(batch, header)
        has_gaps = header.record_count != header.last_offset_delta + 1
        if has_gaps or header.attributes & _REENCODED or header.base_offset < from_offset:
            reencoded = _reencoded(batch, header, from_offset)
            batches += [] if reencoded is None else [reencoded]
        else:
            batches.append(_as_it_is(batch, header))
    for _, header in iter_headers(view, scanned):
        end = header.next_offset
    return batches, max(end, from_offset)


def stamped(batch: SourceBatch, producer: Producer, sequence: int) -> bytes:
    """Return the header of a batch for the target; the batch's records follow it."""
    attributes = batch.attributes & ~TRANSACTIONAL_MASK
    if producer.transactional_id is not None:
        attributes |= TRANSACTIONAL_MASK
    fields = (
        attributes,
        batch.record_count - 1,
        batch.base_timestamp,
        batch.max_timestamp,
        producer.producer_id,
        producer.epoch,
        sequence,
        batch.record_count,
    )
    crc = crc32c(batch.records, crc32c(_COVERED(*fields)))
    length = HEADER_SIZE - LOG_OVERHEAD + len(batch.records)
    return _HEADER(0, length, NO_PARTITION_LEADER_EPOCH, MAGIC, crc, *fields)


def following_sequence(sequence: int, count: int) -> int:
    """Return the sequence after a batch. After the largest int32 follows 0, as in Kafka's DefaultRecordBatch."""
    return (sequence + count) % (MAX_SEQUENCE + 1)


def _check(batch: memoryview, header: RecordBatchHeader) -> None:
    computed = crc32c(batch[_COVERED_AT:])
    if computed != header.crc:
        raise CorruptRecordError(
            f"the batch at offset {header.base_offset} has the CRC {header.crc:#x} and the computed CRC {computed:#x}"
        )


def _as_it_is(batch: memoryview, header: RecordBatchHeader) -> SourceBatch:
    return SourceBatch(
        header.base_offset,
        header.next_offset,
        header.record_count,
        header.attributes,
        header.base_timestamp,
        header.max_timestamp,
        batch[HEADER_SIZE:],
    )


def _reencoded(batch: memoryview, header: RecordBatchHeader, from_offset: int) -> SourceBatch | None:
    """Return the records from an offset on as a batch without gaps, or None if there are none."""
    builder, offsets = RecordBatchBuilder(header.compression), []
    for record in read_records(bytes(batch)):
        if record.offset >= from_offset:
            builder.append(record.key, record.value, record.headers, record.timestamp_ms)
            offsets.append(record.offset)
    if not offsets:
        return None
    built = memoryview(builder.build())
    ((_, rebuilt),) = iter_headers(built)
    found = _as_it_is(built, rebuilt)
    return found._replace(base_offset=offsets[0], next_offset=header.next_offset, offsets=tuple(offsets))

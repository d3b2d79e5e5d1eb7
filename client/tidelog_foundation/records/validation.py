"""Validation of batches: their integrity, and their acceptance by a leader.

A batch must be whole and unchanged since its producer wrote it (CORRUPT_MESSAGE), and a client must be allowed to write
it (INVALID_RECORD; the rules are those of Kafka's LogValidator). A producer retries after the first error, because the
batch may have been damaged in transit, and gives up after the second. Nothing is allocated by a length that the bytes
only claim.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog_foundation.errors import CorruptRecordError, ErrorCode, TidelogError, error_for
from tidelog_foundation.records._engine import engine
from tidelog_foundation.records.compression import OversizedRecordsError, codec_name, decompress_briefly
from tidelog_foundation.records.header import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    Buffer,
    RecordBatchHeader,
)


class RecordsSummary(NamedTuple):
    """The facts about one batch's records that a leader needs.

    ``min_timestamp`` and ``max_timestamp`` in ms ignore records without a timestamp (-1), and are -1 if no record has
    one. In a batch of LogAppendTime both are the append time.
    """

    has_keyless: bool
    min_timestamp: int
    max_timestamp: int


class ProducedBatch(NamedTuple):
    """A batch that a client may write.

    ``plain`` are its decompressed records, valid until this thread's next decompression, which may overwrite them.
    """

    header: RecordBatchHeader
    summary: RecordsSummary
    plain: Buffer


def validate_batch(buffer: Buffer, position: int = 0) -> RecordBatchHeader:
    """Return the header of the whole batch at a position, after checking its structure and its CRC-32C.

    The records are not walked, because the CRC proves that they are as the producer wrote them.

    Raises:
        CorruptRecordError: the batch is torn, has an impossible header, or does not match its CRC.
    """
    return engine.validate_batch(buffer, position)


def inspect_produced(buffer: Buffer, limit: int | None = None) -> ProducedBatch:
    """Run all of a leader's checks on the one batch that a client sends to a partition, and return the findings.

    The records are walked, compressed or not, so that no unreadable record is stored. ``limit`` is the most bytes to
    which compressed ones may decompress.

    Raises:
        OversizedRecordsError: the records decompress to more than the limit.
        CorruptRecordError: not a whole, undamaged batch.
        TidelogError: INVALID_RECORD for records that cannot be decoded despite a correct CRC; INVALID_RECORD,
            INVALID_TIMESTAMP or UNSUPPORTED_COMPRESSION_TYPE for a batch that clients may not write.
    """
    header = engine.validate_batch(buffer)
    attributes = header.attributes
    is_compressed = attributes & COMPRESSION_MASK != 0
    if is_compressed:
        codec_name(attributes & COMPRESSION_MASK)
    fault = _produced_fault(header, len(buffer))
    if fault:
        raise error_for(ErrorCode.INVALID_RECORD, fault)
    if attributes & TIMESTAMP_TYPE_MASK:
        raise error_for(ErrorCode.INVALID_TIMESTAMP, "a client may not set the timestamp type to LogAppendTime")
    if header.base_timestamp < NO_TIMESTAMP or header.max_timestamp < NO_TIMESTAMP:
        raise _negative_timestamp(min(header.base_timestamp, header.max_timestamp))
    plain: Buffer = record_section(buffer, 0, header)
    try:
        if is_compressed:
            plain = decompress_briefly(header.compression, plain, limit)
        summary = tuple.__new__(RecordsSummary, engine.summarize_records(plain, header))
    except OversizedRecordsError:
        raise
    except CorruptRecordError as error:
        raise error_for(ErrorCode.INVALID_RECORD, error.message) from error
    if summary.min_timestamp < NO_TIMESTAMP:
        raise _negative_timestamp(summary.min_timestamp)
    return ProducedBatch(header, summary, plain)


def keyless_records(produced: ProducedBatch, limit: int) -> list[int]:
    """Return the batch indexes of the first records without a key, at most ``limit``."""
    return engine.find_keyless(produced.plain, produced.header, limit)


def records_outside(produced: ProducedBatch, earliest_ms: int, latest_ms: int, limit: int) -> list[tuple[int, int]]:
    """Return (batch index, timestamp) of the first records with a timestamp outside the range, at most ``limit``.

    The range includes both ends; a record without a timestamp (-1) is not too early.
    """
    return engine.find_outside(produced.plain, produced.header, earliest_ms, latest_ms, limit)


def summarize_records(buffer: Buffer, position: int = 0) -> RecordsSummary:
    """Return a summary of the records of the batch at a position, after walking them, compressed or not.

    Raises:
        CorruptRecordError: see :func:`check_records`.
        TidelogError: UNSUPPORTED_COMPRESSION_TYPE.
    """
    return _summary(buffer, position, validate_batch(buffer, position))


def check_records(buffer: Buffer, position: int = 0) -> RecordBatchHeader:
    """Return the header of the batch at a position, after checking it and walking its records, compressed or not.

    Raises:
        CorruptRecordError: see :func:`validate_batch`; also records that cannot be decoded, or a wrong number of them.
        TidelogError: UNSUPPORTED_COMPRESSION_TYPE.
    """
    header = validate_batch(buffer, position)
    _summary(buffer, position, header)
    return header


def check_timestamps(produced: ProducedBatch, now_ms: int, before_max_ms: int, after_max_ms: int) -> None:
    """Check the distance of a produced batch's timestamps from the leader's time (KIP-937), in milliseconds.

    Raises:
        TidelogError: INVALID_TIMESTAMP, with the timestamp and the limit.
    """
    newest, oldest = produced.summary.max_timestamp, produced.summary.min_timestamp
    if newest - now_ms > after_max_ms:
        limit = f"message.timestamp.after.max.ms allows {now_ms} + {after_max_ms}"
        raise error_for(ErrorCode.INVALID_TIMESTAMP, f"timestamp {newest}: {limit}")
    if oldest != NO_TIMESTAMP and now_ms - oldest > before_max_ms:
        limit = f"message.timestamp.before.max.ms allows {now_ms} - {before_max_ms}"
        raise error_for(ErrorCode.INVALID_TIMESTAMP, f"timestamp {oldest}: {limit}")


def record_section(buffer: Buffer, position: int, header: RecordBatchHeader) -> memoryview:
    """Return the bytes after the header of the whole batch at a position, still compressed, without a copy."""
    return memoryview(buffer)[position + HEADER_SIZE : position + header.size_in_bytes]


def _summary(buffer: Buffer, position: int, header: RecordBatchHeader) -> RecordsSummary:
    records = decompress_briefly(header.compression, record_section(buffer, position, header))
    return tuple.__new__(RecordsSummary, engine.summarize_records(records, header))


def _negative_timestamp(timestamp_ms: int) -> TidelogError:
    return error_for(ErrorCode.INVALID_TIMESTAMP, f"timestamp {timestamp_ms}: must be at least 0, or -1 for none")


def _produced_fault(header: RecordBatchHeader, size: int) -> str | None:
    attributes = header.attributes
    if header.batch_length + LOG_OVERHEAD != size:
        return f"a client writes one batch at a time: the batch has {header.size_in_bytes} of {size} bytes"
    if header.base_offset != 0:
        return f"the base offset of a client's batch is 0, found {header.base_offset}"
    if header.record_count == 0:
        return "the batch holds no record"
    if header.last_offset_delta + 1 != header.record_count:
        return f"last offset delta {header.last_offset_delta} does not fit {header.record_count} records"
    if attributes & CONTROL_MASK:
        return "a client may not write control batches"
    if header.producer_id != NO_PRODUCER_ID and header.base_sequence < 0:
        return f"base sequence {header.base_sequence} with producer id {header.producer_id}"
    if attributes & TRANSACTIONAL_MASK and header.producer_id == NO_PRODUCER_ID:
        return "a transactional batch has no producer id"
    if attributes & DELETE_HORIZON_MASK:
        return "a client may not set a delete horizon"
    return None

"""What a leader makes of a produced batch before it stores it: what the topic's settings refuse and change."""

from __future__ import annotations

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.config.topic import LOG_APPEND_TIME, PRODUCER_COMPRESSION
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.records import (
    HEADER_SIZE,
    MAX_EXPANSION,
    OversizedRecordsError,
    ProducedBatch,
    check_timestamps,
    encode_batch,
    inspect_produced,
    recompress,
)


def accept_produced(records: bytes, config: TopicConfig, now_ms: int) -> bytes:
    """Return the batch as it is to be stored, before it gets its offset.

    Raises:
        TidelogError: MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP or
            UNSUPPORTED_COMPRESSION_TYPE.
    """
    _check_size(len(records), config)
    produced = _inspect(records, MAX_EXPANSION * config.max_message_bytes)
    header, summary, _ = produced
    if config.is_compacted and summary.has_keyless:
        raise error_for(ErrorCode.INVALID_RECORD, "a record without a key, which a compacted topic does not take")
    if config.message_timestamp_type != LOG_APPEND_TIME:
        before_max_ms, after_max_ms = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
        check_timestamps(produced, now_ms, before_max_ms, after_max_ms)
    if summary.max_timestamp != header.max_timestamp:
        records = encode_batch(header._replace(max_timestamp=summary.max_timestamp), memoryview(records)[HEADER_SIZE:])
    if config.compression_type == PRODUCER_COMPRESSION:
        return records
    stored = recompress(records, config.compression_type, config.compression_level)
    _check_size(len(stored), config)
    return stored


def _inspect(records: bytes, limit: int) -> ProducedBatch:
    try:
        return inspect_produced(records, limit)
    except OversizedRecordsError as error:
        raise error_for(ErrorCode.MESSAGE_TOO_LARGE, error.message) from error


def _check_size(size: int, config: TopicConfig) -> None:
    for code, name, limit in (
        (ErrorCode.MESSAGE_TOO_LARGE, "max.message.bytes", config.max_message_bytes),
        (ErrorCode.RECORD_LIST_TOO_LARGE, "segment.bytes", config.segment_bytes),
    ):
        if size > limit:
            raise error_for(code, f"the batch has {size} bytes, {name} allows {limit}")

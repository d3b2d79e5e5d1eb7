"""What a leader makes of a produced batch before it stores it: what the topic's settings refuse and change."""

from __future__ import annotations

from tidelog.config import TopicConfig
from tidelog.config.topic import LOG_APPEND_TIME, PRODUCER_COMPRESSION, UNLIMITED
from tidelog.errors import ErrorCode, error_for
from tidelog.records import check_timestamps, inspect_produced, recompress


def accept_produced(records: bytes, config: TopicConfig, now_ms: int) -> bytes:
    """Return the batch as it is to be stored, before it gets its offset.

    Raises:
        TidelogError: MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP or
            UNSUPPORTED_COMPRESSION_TYPE.
    """
    _check_size(len(records), config)
    produced = inspect_produced(records, decompressing=_must_look(config))
    if config.is_compacted and produced.summary is not None and produced.summary.has_keyless:
        raise error_for(ErrorCode.INVALID_RECORD, "a record without a key, which a compacted topic does not take")
    if config.message_timestamp_type != LOG_APPEND_TIME:
        before_max_ms, after_max_ms = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
        check_timestamps(produced, now_ms, before_max_ms, after_max_ms)
    if config.compression_type == PRODUCER_COMPRESSION:
        return records
    stored = recompress(records, config.compression_type, config.compression_level)
    _check_size(len(stored), config)
    return stored


def _must_look(config: TopicConfig) -> bool:
    has_own_codec = config.compression_type != PRODUCER_COMPRESSION
    return config.is_compacted or has_own_codec or config.message_timestamp_before_max_ms < UNLIMITED


def _check_size(size: int, config: TopicConfig) -> None:
    for code, name, limit in (
        (ErrorCode.MESSAGE_TOO_LARGE, "max.message.bytes", config.max_message_bytes),
        (ErrorCode.RECORD_LIST_TOO_LARGE, "segment.bytes", config.segment_bytes),
    ):
        if size > limit:
            raise error_for(code, f"the batch has {size} bytes, {name} allows {limit}")

"""What a leader makes of a produced batch before it stores it: what the topic's settings refuse and change."""

from __future__ import annotations

from tidelog.config import TopicConfig
from tidelog.config.topic import LOG_APPEND_TIME, PRODUCER_COMPRESSION, UNLIMITED
from tidelog.errors import ErrorCode, error_for
from tidelog.records import NO_TIMESTAMP, ProducedBatch, inspect_produced, recompress


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
        _check_timestamps(produced, config, now_ms)
    if config.compression_type == PRODUCER_COMPRESSION:
        return records
    stored = recompress(records, config.compression_type, _level(config))
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


def _check_timestamps(produced: ProducedBatch, config: TopicConfig, now_ms: int) -> None:
    summary = produced.summary
    newest = produced.header.max_timestamp if summary is None else summary.max_timestamp
    oldest = NO_TIMESTAMP if summary is None else summary.min_timestamp
    if newest - now_ms > config.message_timestamp_after_max_ms:
        limit = f"message.timestamp.after.max.ms allows {now_ms} + {config.message_timestamp_after_max_ms}"
        raise error_for(ErrorCode.INVALID_TIMESTAMP, f"timestamp {newest}: {limit}")
    if oldest != NO_TIMESTAMP and now_ms - oldest > config.message_timestamp_before_max_ms:
        limit = f"message.timestamp.before.max.ms allows {now_ms} - {config.message_timestamp_before_max_ms}"
        raise error_for(ErrorCode.INVALID_TIMESTAMP, f"timestamp {oldest}: {limit}")


def _level(config: TopicConfig) -> int | None:
    levels = {
        "gzip": None if config.compression_gzip_level == -1 else config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    return levels.get(config.compression_type)

"""Tidelog's errors, with Kafka's names and codes; :mod:`tidelog_foundation.errors` draws their tree."""

from tidelog_foundation.errors import (
    ClosedError,
    ConfigError,
    CorruptRecordError,
    ErrorCode,
    KafkaError,
    KafkaException,
    RefreshMetadataError,
    RetriableError,
    TidelogError,
    error_for,
)

__all__ = [
    "ClosedError",
    "ConfigError",
    "CorruptRecordError",
    "ErrorCode",
    "KafkaError",
    "KafkaException",
    "RefreshMetadataError",
    "RetriableError",
    "TidelogError",
    "error_for",
]

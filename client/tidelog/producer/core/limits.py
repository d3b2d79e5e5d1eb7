"""The limits that the accumulator decides by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulatorLimits:
    """The settings that the accumulator decides by; names as in the producer's configuration."""

    linger_ms: float
    batch_size: int
    batch_num_messages: int
    max_messages: int
    max_bytes: int
    message_max_bytes: int
    message_timeout_ms: float
    propagation_max_ms: float
    """How long a topic may be unknown to the cluster before its records are given up."""
    retries: int
    overdue_ms: float = 1_000
    compression: str = "none"
    compression_level: int | None = None
    partitioner: str = "murmur2_random"

"""The settings of the transaction coordinator, with the defaults of Kafka's TransactionStateManagerConfig."""

from __future__ import annotations

from tidelog_foundation.dataclass import dataclass

_MINUTE_MS = 60_000
_DAY_MS = 24 * 60 * _MINUTE_MS


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The settings of a shard. Times are in ms."""

    transaction_max_timeout_ms: int = 15 * _MINUTE_MS
    transactional_id_expiration_ms: int = 7 * _DAY_MS
    abort_timed_out_interval_ms: int = 10_000
    """``transaction.abort.timed.out.transaction.cleanup.interval.ms``"""
    remove_expired_interval_ms: int = 60 * _MINUTE_MS
    """``transaction.remove.expired.transaction.cleanup.interval.ms``"""
    two_phase_commit_enable: bool = False
    version: int = 2
    """The finalized level of the feature ``transaction.version``."""

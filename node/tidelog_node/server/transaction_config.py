"""The settings of a node's transaction coordinator. Keys and defaults are Kafka's.

Kafka declares them in TransactionLogConfig and TransactionStateManagerConfig.
"""

from __future__ import annotations

from tidelog_foundation.config import at_least, int_setting, setting
from tidelog_foundation.dataclass import dataclass
from tidelog_node.coordination import TransactionTopicSettings
from tidelog_node.server.group_config import GroupCoordinatorConfig
from tidelog_node.transactions.settings import TransactionSettings

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionCoordinatorConfig(GroupCoordinatorConfig):
    """The settings for transactions in a node's properties file. All of them are fixed at run time."""

    transaction_state_log_num_partitions: int = int_setting(
        50,
        "The number of partitions of __transaction_state when it is created; a transactional id belongs to one of them "
        "permanently.",
        at_least(1),
    )
    transaction_state_log_replication_factor: int = setting(
        3,
        "The number of replicas of __transaction_state when it is created, which requires that many nodes.",
        at_least(1),
        config_type="SHORT",
    )
    transaction_state_log_min_isr: int = int_setting(
        2, "min.insync.replicas of __transaction_state when it is created.", at_least(1)
    )
    transaction_state_log_segment_bytes: int = int_setting(
        100 * 1024**2,
        "segment.bytes of __transaction_state when it is created; small segments are compacted soon.",
        at_least(1),
    )
    transaction_max_timeout_ms: int = int_setting(
        15 * _MINUTE_MS,
        "The maximum transaction.timeout.ms of a transactional producer; a producer with a longer one is refused.",
        at_least(1),
    )
    transactional_id_expiration_ms: int = int_setting(
        7 * 24 * 60 * _MINUTE_MS,
        "The time after which a transactional id without an open transaction is forgotten, in milliseconds since its "
        "last change.",
        at_least(1),
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = int_setting(
        10_000,
        "The interval between checks for transactions to abort because of their timeout, in milliseconds.",
        at_least(1),
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = int_setting(
        60 * _MINUTE_MS, "The interval between checks for transactional ids to forget, in milliseconds.", at_least(1)
    )
    transaction_two_phase_commit_enable: bool = setting(
        False,
        "Whether producers may take part in an external two-phase commit, in which their transactions never time out "
        "(KIP-939).",
    )

    @property
    def transaction_topic(self) -> TransactionTopicSettings:
        """The settings for the creation of __transaction_state."""
        return TransactionTopicSettings(
            self.transaction_state_log_num_partitions,
            self.transaction_state_log_replication_factor,
            self.transaction_state_log_min_isr,
            self.transaction_state_log_segment_bytes,
        )

    def transaction_settings(self) -> TransactionSettings:
        """Return the settings of the coordinator, with the version of a cluster without the feature."""
        return TransactionSettings(
            transaction_max_timeout_ms=self.transaction_max_timeout_ms,
            transactional_id_expiration_ms=self.transactional_id_expiration_ms,
            abort_timed_out_interval_ms=self.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            remove_expired_interval_ms=self.transaction_remove_expired_transaction_cleanup_interval_ms,
            two_phase_commit_enable=self.transaction_two_phase_commit_enable,
            version=0,
        )

"""The settings of a node's group coordinator. Keys and defaults are Kafka's (GroupCoordinatorConfig)."""

from __future__ import annotations

from functools import partial

from tidelog_foundation.config import at_least, between, each_of, int_setting, one_of, setting
from tidelog_foundation.config.broker import DynamicBrokerConfig
from tidelog_foundation.config.group import ConsumerGroupLimits
from tidelog_foundation.config.settings import setting_of
from tidelog_foundation.dataclass import dataclass
from tidelog_node.coordination import OffsetsTopicSettings
from tidelog_node.groups.settings import DEFAULT_ASSIGNORS, GroupSettings, MigrationPolicy

_MINUTE_MS = 60_000
_DAY_MINUTES = 24 * 60
_INT32_MAX = 2**31 - 1
_limit = partial(setting_of, ConsumerGroupLimits)


def _check_policy(value: str) -> None:
    # Case-insensitive, as in Kafka.
    one_of(*MigrationPolicy)(value.lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCoordinatorConfig(DynamicBrokerConfig):
    """The settings for groups in a node's properties file. All of them are fixed at run time."""

    offsets_topic_num_partitions: int = int_setting(
        50,
        "The number of partitions of __consumer_offsets when it is created; a group belongs to one of them "
        "permanently.",
        at_least(1),
    )
    offsets_topic_replication_factor: int = setting(
        3,
        "The number of replicas of __consumer_offsets when it is created, which requires that many nodes.",
        at_least(1),
        config_type="SHORT",
    )
    offsets_topic_segment_bytes: int = int_setting(
        100 * 1024**2,
        "segment.bytes of __consumer_offsets when it is created; small segments are compacted soon.",
        at_least(1),
    )
    offsets_topic_compression_codec: int = int_setting(
        0, "The codec of records in __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.", between(0, 4)
    )
    offsets_retention_minutes: int = int_setting(
        7 * _DAY_MINUTES,
        "The time for which offsets are kept after the last member of a group has left, or after the commit "
        "for consumers without a group membership, in minutes.",
        at_least(1),
    )
    offsets_retention_check_interval_ms: int = setting(
        600_000, "The interval between checks for expired offsets, in milliseconds.", at_least(1)
    )
    offset_metadata_max_bytes: int = int_setting(
        4_096, "The maximum size of the metadata of a committed offset, in bytes.", at_least(0)
    )
    offsets_commit_timeout_ms: int = int_setting(
        5_000,
        "The time for which a commit waits for the in-sync replicas before it fails with "
        "COORDINATOR_NOT_AVAILABLE, in milliseconds.",
        at_least(1),
    )
    group_min_session_timeout_ms: int = int_setting(
        6_000, "The minimum session.timeout.ms of classic members.", at_least(1)
    )
    group_max_session_timeout_ms: int = int_setting(
        1_800_000, "The maximum session.timeout.ms of classic members.", at_least(1)
    )
    group_initial_rebalance_delay_ms: int = int_setting(
        3_000,
        "The time for which an empty group waits for more members before its first rebalance, in milliseconds.",
        at_least(0),
    )
    group_max_size: int = int_setting(
        _INT32_MAX, "The maximum number of members of a group of the classic protocol.", at_least(1)
    )
    group_consumer_session_timeout_ms: int = _limit("group_consumer_session_timeout_ms")
    group_consumer_min_session_timeout_ms: int = _limit("group_consumer_min_session_timeout_ms")
    group_consumer_max_session_timeout_ms: int = _limit("group_consumer_max_session_timeout_ms")
    group_consumer_heartbeat_interval_ms: int = _limit("group_consumer_heartbeat_interval_ms")
    group_consumer_min_heartbeat_interval_ms: int = _limit("group_consumer_min_heartbeat_interval_ms")
    group_consumer_max_heartbeat_interval_ms: int = _limit("group_consumer_max_heartbeat_interval_ms")
    group_consumer_max_size: int = int_setting(
        _INT32_MAX, "The maximum number of members of a group of the consumer protocol.", at_least(1)
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        DEFAULT_ASSIGNORS, "The server-side assignors; the first is the default of groups.", each_of(*DEFAULT_ASSIGNORS)
    )
    group_consumer_regex_refresh_interval_ms: int = int_setting(
        600_000,
        "The interval at which the topics of a regular expression are resolved again even if no topic has "
        "changed, in milliseconds.",
        at_least(10_000),
    )
    group_consumer_migration_policy: str = setting(
        str(MigrationPolicy.BIDIRECTIONAL),
        "The permitted conversions of groups with members. upgrade: a classic group, when a member of the "
        "consumer protocol joins; downgrade: a consumer group, when only classic members are left; "
        "bidirectional: both; disabled: neither.",
        _check_policy,
    )

    @property
    def offsets_topic(self) -> OffsetsTopicSettings:
        """The settings for the creation and records of __consumer_offsets."""
        return OffsetsTopicSettings(
            self.offsets_topic_num_partitions,
            self.offsets_topic_replication_factor,
            self.offsets_topic_segment_bytes,
            self.offsets_topic_compression_codec,
        )

    def group_settings(self) -> GroupSettings:
        """Return the settings of groups.

        Raises:
            ValueError: Values contradict each other.
        """
        return GroupSettings(
            offset_metadata_max_bytes=self.offset_metadata_max_bytes,
            offsets_retention_ms=self.offsets_retention_minutes * _MINUTE_MS,
            offsets_retention_check_interval_ms=self.offsets_retention_check_interval_ms,
            group_min_session_timeout_ms=self.group_min_session_timeout_ms,
            group_max_session_timeout_ms=self.group_max_session_timeout_ms,
            group_initial_rebalance_delay_ms=self.group_initial_rebalance_delay_ms,
            group_max_size=self.group_max_size,
            consumer_session_timeout_ms=self.group_consumer_session_timeout_ms,
            consumer_min_session_timeout_ms=self.group_consumer_min_session_timeout_ms,
            consumer_max_session_timeout_ms=self.group_consumer_max_session_timeout_ms,
            consumer_heartbeat_interval_ms=self.group_consumer_heartbeat_interval_ms,
            consumer_min_heartbeat_interval_ms=self.group_consumer_min_heartbeat_interval_ms,
            consumer_max_heartbeat_interval_ms=self.group_consumer_max_heartbeat_interval_ms,
            consumer_max_size=self.group_consumer_max_size,
            consumer_assignors=self.group_consumer_assignors,
            consumer_regex_refresh_interval_ms=self.group_consumer_regex_refresh_interval_ms,
            consumer_migration_policy=MigrationPolicy(self.group_consumer_migration_policy.lower()),
        )

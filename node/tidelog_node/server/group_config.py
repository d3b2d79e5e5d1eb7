"""The settings of a node's group coordinator. Keys and defaults are Kafka's (GroupCoordinatorConfig)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tidelog_foundation.config import at_least, between, each_of, one_of, setting
from tidelog_foundation.config.broker import DynamicBrokerConfig
from tidelog_foundation.config.group import ConsumerGroupLimits
from tidelog_foundation.config.settings import setting_of
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

    offsets_topic_num_partitions: int = setting(
        50,
        check=at_least(1),
        config_type="INT",
        doc="The number of partitions of __consumer_offsets when it is created; a group belongs to one of them "
        "permanently.",
    )
    offsets_topic_replication_factor: int = setting(
        3,
        check=at_least(1),
        config_type="SHORT",
        doc="The number of replicas of __consumer_offsets when it is created, which requires that many nodes.",
    )
    offsets_topic_segment_bytes: int = setting(
        100 * 1024**2,
        check=at_least(1),
        config_type="INT",
        doc="segment.bytes of __consumer_offsets when it is created; small segments are compacted soon.",
    )
    offsets_topic_compression_codec: int = setting(
        0,
        check=between(0, 4),
        config_type="INT",
        doc="The codec of records in __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
    )
    offsets_retention_minutes: int = setting(
        7 * _DAY_MINUTES,
        check=at_least(1),
        config_type="INT",
        doc="The time for which offsets are kept after the last member of a group has left, or after the commit "
        "for consumers without a group membership, in minutes.",
    )
    offsets_retention_check_interval_ms: int = setting(
        600_000, check=at_least(1), doc="The interval between checks for expired offsets, in milliseconds."
    )
    offset_metadata_max_bytes: int = setting(
        4_096,
        check=at_least(0),
        config_type="INT",
        doc="The maximum size of the metadata of a committed offset, in bytes.",
    )
    offsets_commit_timeout_ms: int = setting(
        5_000,
        check=at_least(1),
        config_type="INT",
        doc="The time for which a commit waits for the in-sync replicas before it fails with "
        "COORDINATOR_NOT_AVAILABLE, in milliseconds.",
    )
    group_min_session_timeout_ms: int = setting(
        6_000, check=at_least(1), config_type="INT", doc="The minimum session.timeout.ms of classic members."
    )
    group_max_session_timeout_ms: int = setting(
        1_800_000, check=at_least(1), config_type="INT", doc="The maximum session.timeout.ms of classic members."
    )
    group_initial_rebalance_delay_ms: int = setting(
        3_000,
        check=at_least(0),
        config_type="INT",
        doc="The time for which an empty group waits for more members before its first rebalance, in milliseconds.",
    )
    group_max_size: int = setting(
        _INT32_MAX,
        check=at_least(1),
        config_type="INT",
        doc="The maximum number of members of a group of the classic protocol.",
    )
    group_consumer_session_timeout_ms: int = _limit("group_consumer_session_timeout_ms")
    group_consumer_min_session_timeout_ms: int = _limit("group_consumer_min_session_timeout_ms")
    group_consumer_max_session_timeout_ms: int = _limit("group_consumer_max_session_timeout_ms")
    group_consumer_heartbeat_interval_ms: int = _limit("group_consumer_heartbeat_interval_ms")
    group_consumer_min_heartbeat_interval_ms: int = _limit("group_consumer_min_heartbeat_interval_ms")
    group_consumer_max_heartbeat_interval_ms: int = _limit("group_consumer_max_heartbeat_interval_ms")
    group_consumer_max_size: int = setting(
        _INT32_MAX,
        check=at_least(1),
        config_type="INT",
        doc="The maximum number of members of a group of the consumer protocol.",
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        DEFAULT_ASSIGNORS,
        check=each_of(*DEFAULT_ASSIGNORS),
        doc="The server-side assignors; the first is the default of groups.",
    )
    group_consumer_regex_refresh_interval_ms: int = setting(
        600_000,
        check=at_least(10_000),
        config_type="INT",
        doc="The interval at which the topics of a regular expression are resolved again even if no topic has "
        "changed, in milliseconds.",
    )
    group_consumer_migration_policy: str = setting(
        str(MigrationPolicy.BIDIRECTIONAL),
        check=_check_policy,
        doc="The permitted conversions of groups with members. upgrade: a classic group, when a member of the "
        "consumer protocol joins; downgrade: a consumer group, when only classic members are left; "
        "bidirectional: both; disabled: neither.",
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

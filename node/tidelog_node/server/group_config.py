"""The settings of a node's group coordinator. Keys and defaults are Kafka's (GroupCoordinatorConfig)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tidelog.config import at_least, between, each_of, one_of, setting
from tidelog.config.broker import DynamicBrokerConfig
from tidelog.config.group import ConsumerGroupLimits
from tidelog.config.settings import setting_of
from tidelog_node.coordination import OffsetsTopicSettings
from tidelog_node.groups.settings import DEFAULT_ASSIGNORS, GroupSettings, MigrationPolicy

_MINUTE_MS = 60_000
_DAY_MINUTES = 24 * 60
_INT32_MAX = 2**31 - 1
_limit = partial(setting_of, ConsumerGroupLimits)


def _check_policy(value: str) -> None:
    # As Kafka does, in any case.
    one_of(*MigrationPolicy)(value.lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCoordinatorConfig(DynamicBrokerConfig):
    """What a node reads of groups from its properties file; all of it is fixed while it runs."""

    offsets_topic_num_partitions: int = setting(
        50,
        check=at_least(1),
        config_type="INT",
        doc="The partitions of __consumer_offsets when it is created; a group belongs to one of them for good.",
    )
    offsets_topic_replication_factor: int = setting(
        3,
        check=at_least(1),
        config_type="SHORT",
        doc="The replicas of __consumer_offsets when it is created, which needs as many nodes.",
    )
    offsets_topic_segment_bytes: int = setting(
        100 * 1024**2,
        check=at_least(1),
        config_type="INT",
        doc="The segment.bytes of __consumer_offsets when it is created: small, so that it is compacted soon.",
    )
    offsets_topic_compression_codec: int = setting(
        0,
        check=between(0, 4),
        config_type="INT",
        doc="The codec of what is written to __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
    )
    offsets_retention_minutes: int = setting(
        7 * _DAY_MINUTES,
        check=at_least(1),
        config_type="INT",
        doc="How long offsets are kept after the last member of a group has left, or since they were committed by a "
        "consumer that is in no group, in minutes.",
    )
    offsets_retention_check_interval_ms: int = setting(
        600_000, check=at_least(1), doc="How often the coordinator looks for offsets that are to be deleted."
    )
    offset_metadata_max_bytes: int = setting(
        4_096, check=at_least(0), config_type="INT", doc="The most metadata of a committed offset, in bytes."
    )
    offsets_commit_timeout_ms: int = setting(
        5_000,
        check=at_least(1),
        config_type="INT",
        doc="How long a commit waits for the in-sync replicas before the member is told that the coordinator is not "
        "available.",
    )
    group_min_session_timeout_ms: int = setting(
        6_000, check=at_least(1), config_type="INT", doc="The least session.timeout.ms of members."
    )
    group_max_session_timeout_ms: int = setting(
        1_800_000, check=at_least(1), config_type="INT", doc="The greatest session.timeout.ms of members."
    )
    group_initial_rebalance_delay_ms: int = setting(
        3_000,
        check=at_least(0),
        config_type="INT",
        doc="How long an empty group waits for further members before its first rebalance.",
    )
    group_max_size: int = setting(
        _INT32_MAX, check=at_least(1), config_type="INT", doc="The most members of a group of the classic protocol."
    )
    group_consumer_session_timeout_ms: int = _limit("group_consumer_session_timeout_ms")
    group_consumer_min_session_timeout_ms: int = _limit("group_consumer_min_session_timeout_ms")
    group_consumer_max_session_timeout_ms: int = _limit("group_consumer_max_session_timeout_ms")
    group_consumer_heartbeat_interval_ms: int = _limit("group_consumer_heartbeat_interval_ms")
    group_consumer_min_heartbeat_interval_ms: int = _limit("group_consumer_min_heartbeat_interval_ms")
    group_consumer_max_heartbeat_interval_ms: int = _limit("group_consumer_max_heartbeat_interval_ms")
    group_consumer_max_size: int = setting(
        _INT32_MAX, check=at_least(1), config_type="INT", doc="The most members of a group of the consumer protocol."
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        DEFAULT_ASSIGNORS,
        check=each_of(*DEFAULT_ASSIGNORS),
        doc="The server-side assignors; the first is that of groups whose members ask for none.",
    )
    group_consumer_regex_refresh_interval_ms: int = setting(
        600_000,
        check=at_least(10_000),
        config_type="INT",
        doc="How often the topics of a regular expression are looked up again although no topic has changed.",
    )
    group_consumer_migration_policy: str = setting(
        str(MigrationPolicy.BIDIRECTIONAL),
        check=_check_policy,
        doc="Which conversions of groups with members are allowed: upgrade, of a classic group when a member of the "
        "consumer protocol joins; downgrade, of a consumer group when only classic members are left; bidirectional: "
        "both; disabled: neither.",
    )

    @property
    def offsets_topic(self) -> OffsetsTopicSettings:
        """How __consumer_offsets is created and written."""
        return OffsetsTopicSettings(
            self.offsets_topic_num_partitions,
            self.offsets_topic_replication_factor,
            self.offsets_topic_segment_bytes,
            self.offsets_topic_compression_codec,
        )

    def group_settings(self) -> GroupSettings:
        """Return what the groups go by; raises ValueError for values that do not fit each other."""
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

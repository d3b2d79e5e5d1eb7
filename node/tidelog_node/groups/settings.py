"""The settings of the group coordinator, with the names and defaults of Kafka's GroupCoordinatorConfig."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from tidelog_foundation.config import parse_config
from tidelog_foundation.config.group import GROUP_KEYS, GroupConfig
from tidelog_foundation.dataclass import dataclass

_MINUTE_MS = 60_000
_DAY_MS = 24 * 60 * _MINUTE_MS
DEFAULT_OFFSETS_RETENTION_MS = 7 * _DAY_MS
DEFAULT_ASSIGNORS = ("uniform", "range")


class MigrationPolicy(StrEnum):
    """The allowed conversions of groups that have members: ``group.consumer.migration.policy``."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        """True if a classic group becomes a consumer group when a member of the consumer protocol joins."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_downgrade(self) -> bool:
        """True if a consumer group becomes a classic group when only classic members are left."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@dataclass(frozen=True, slots=True)
class ConsumerTimings:
    """The session timeout and heartbeat interval of members of a consumer group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int


@dataclass(frozen=True, slots=True)
class OwnTimings:
    """Timings set on a single group. None means not set."""

    session_timeout_ms: int | None = None
    """``consumer.session.timeout.ms``"""
    heartbeat_interval_ms: int | None = None
    """``consumer.heartbeat.interval.ms``"""


_NO_TIMINGS = OwnTimings()


def own_timings(settings: Mapping[str, str]) -> OwnTimings:
    """Return the timings among a group's settings. Settings of newer versions are ignored."""
    config = parse_config(GroupConfig, {key: value for key, value in settings.items() if key in GROUP_KEYS})
    return OwnTimings(config.consumer_session_timeout_ms, config.consumer_heartbeat_interval_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The settings of both protocols. Those without the prefix ``consumer`` apply to the classic protocol and to
    offsets.

    Raises:
        ValueError: A minimum is above its maximum, or there is no assignor.
    """

    offset_metadata_max_bytes: int = 4096
    """``offset.metadata.max.bytes``"""
    offsets_retention_ms: int = DEFAULT_OFFSETS_RETENTION_MS
    """``offsets.retention.minutes``"""
    offsets_retention_check_interval_ms: int = 10 * _MINUTE_MS
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 30 * _MINUTE_MS
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 5 * _MINUTE_MS
    """The longest wait of a joining member whose group rebalances continually (KIP-345)."""
    consumer_session_timeout_ms: int = 45_000
    """``group.consumer.session.timeout.ms``"""
    consumer_min_session_timeout_ms: int = 45_000
    consumer_max_session_timeout_ms: int = 60_000
    consumer_heartbeat_interval_ms: int = 5_000
    """``group.consumer.heartbeat.interval.ms``"""
    consumer_min_heartbeat_interval_ms: int = 5_000
    consumer_max_heartbeat_interval_ms: int = 15_000
    consumer_max_size: int = 2**31 - 1
    """``group.consumer.max.size``"""
    consumer_assignors: tuple[str, ...] = DEFAULT_ASSIGNORS
    """``group.consumer.assignors``; the first one applies to groups whose members request none."""
    consumer_regex_refresh_interval_ms: int = 10 * _MINUTE_MS
    """``group.consumer.regex.refresh.interval.ms``"""
    consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    own_timings: Mapping[str, OwnTimings] = field(default_factory=dict)
    """Timings set on single groups, by group id."""

    def __post_init__(self) -> None:
        _check_order(
            "group.{}.session.timeout.ms", self.group_min_session_timeout_ms, self.group_max_session_timeout_ms
        )
        _check_order(
            "group.consumer.{}.session.timeout.ms",
            self.consumer_min_session_timeout_ms,
            self.consumer_max_session_timeout_ms,
            self.consumer_session_timeout_ms,
        )
        _check_order(
            "group.consumer.{}.heartbeat.interval.ms",
            self.consumer_min_heartbeat_interval_ms,
            self.consumer_max_heartbeat_interval_ms,
            self.consumer_heartbeat_interval_ms,
        )
        if self.consumer_heartbeat_interval_ms >= self.consumer_session_timeout_ms:
            raise ValueError(
                f"group.consumer.heartbeat.interval.ms {self.consumer_heartbeat_interval_ms} must be less than "
                f"group.consumer.session.timeout.ms {self.consumer_session_timeout_ms}"
            )
        if not self.consumer_assignors:
            raise ValueError("group.consumer.assignors must name an assignor")

    def timings_of(self, group_id: str) -> ConsumerTimings:
        """Return a group's timings: its own ones within this coordinator's limits, else the coordinator's.

        The limits may have changed since the group's timings were set, or may differ from the controller's.
        """
        own = self.own_timings.get(group_id, _NO_TIMINGS)
        session_ms = _within(
            own.session_timeout_ms or self.consumer_session_timeout_ms,
            self.consumer_min_session_timeout_ms,
            self.consumer_max_session_timeout_ms,
        )
        heartbeat_ms = _within(
            own.heartbeat_interval_ms or self.consumer_heartbeat_interval_ms,
            self.consumer_min_heartbeat_interval_ms,
            self.consumer_max_heartbeat_interval_ms,
        )
        if heartbeat_ms >= session_ms:
            return ConsumerTimings(self.consumer_session_timeout_ms, self.consumer_heartbeat_interval_ms)
        return ConsumerTimings(session_ms, heartbeat_ms)


def _within(value: int, least: int, greatest: int) -> int:
    return max(least, min(value, greatest))


def _check_order(key: str, least: int, greatest: int, value: int | None = None) -> None:
    if least > greatest:
        raise ValueError(f"{key.format('min')} {least} must not be above {key.format('max')} {greatest}")
    if value is not None and not least <= value <= greatest:
        name = key.replace("{}.", "")
        raise ValueError(f"{name} {value} must be from {key.format('min')} {least} to {key.format('max')} {greatest}")

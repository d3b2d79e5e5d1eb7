"""The consumer's settings, with Kafka's and librdkafka's names and defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidelog.cluster import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from tidelog.cluster.config import MAX_INT32, TrackingConfig
from tidelog_foundation.config import at_least, between, each_of, not_empty, one_of, setting
from tidelog_foundation.errors import ConfigError

_RESETS = {
    "earliest": EARLIEST_TIMESTAMP,
    "smallest": EARLIEST_TIMESTAMP,
    "beginning": EARLIEST_TIMESTAMP,
    "latest": LATEST_TIMESTAMP,
    "largest": LATEST_TIMESTAMP,
    "end": LATEST_TIMESTAMP,
    "error": None,
    "none": None,
}
CALLBACKS = ("on_commit", "error_cb", "stats_cb", "throttle_cb", "oauth_cb")
"""Functions among the settings."""
_OBJECTS = (*CALLBACKS, "logger")
_COOPERATIVE = "cooperative-sticky"
_ASSIGNORS = ("range", "roundrobin", "sticky", _COOPERATIVE)
_CLASSIC_ALONE = {
    "session.timeout.ms": "the nodes set it, by group.consumer.session.timeout.ms",
    "heartbeat.interval.ms": "the nodes set it, by group.consumer.heartbeat.interval.ms",
    "partition.assignment.strategy": "the coordinator assigns: use group.remote.assignor",
}
_HEARTBEATS_PER_SESSION = 3


def _strategies(values: tuple[str, ...]) -> None:
    not_empty(values)
    each_of(*_ASSIGNORS)(values)
    if _COOPERATIVE in values and len(values) > 1:
        raise ValueError(f"{_COOPERATIVE} must be the only assignor: the others revoke all partitions in a rebalance")


def _patterns(values: tuple[str, ...]) -> None:
    for value in values:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f'"{value}" is not a valid regular expression: {error}') from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(TrackingConfig):
    """The consumer's group, starting offset, fetch sizes and prefetch limits."""

    group_id: str | None = setting(
        None, "The group that the consumer joins, and for which it commits offsets.", not_empty
    )
    group_instance_id: str | None = setting(
        None,
        "The id of a static member: it keeps its partitions if it returns within the session timeout (KIP-345).",
        not_empty,
    )
    group_protocol: str = setting(
        "classic",
        "classic: a member assigns the partitions; consumer: the coordinator assigns them (KIP-848).",
        one_of("classic", "consumer"),
    )
    group_remote_assignor: str | None = setting(
        None,
        "The server-side assignor with group.protocol=consumer: uniform or range. If not set, the coordinator chooses.",
        not_empty,
    )
    partition_assignment_strategy: tuple[str, ...] = setting(
        ("range", "roundrobin"),
        "The assignors that the consumer supports, in order of preference: range, roundrobin, sticky, or only"
        " cooperative-sticky, which lets members keep the partitions that do not move. Applies to "
        "group.protocol=classic.",
        _strategies,
    )
    session_timeout_ms: int = setting(
        45_000,
        "The time without a heartbeat after which a member is removed from its group, in milliseconds. "
        "Applies to group.protocol=classic.",
        between(1, 3_600_000),
    )
    heartbeat_interval_ms: int = setting(
        3_000,
        "The interval between heartbeats, in milliseconds. Must be below session.timeout.ms; defaults to at "
        "most a third of it. Applies to group.protocol=classic.",
        between(1, 3_600_000),
    )
    max_poll_interval_ms: int = setting(
        300_000,
        "The maximum time between two calls of poll(), in milliseconds; after it, the member's partitions go "
        "to other members.",
        between(1, 86_400_000),
    )
    enable_auto_commit: bool = setting(
        True, "Whether stored offsets are committed every auto.commit.interval.ms and when partitions are revoked."
    )
    auto_commit_interval_ms: int = setting(
        5_000,
        "The interval between automatic commits, in milliseconds; 0 commits only when partitions are revoked "
        "and in close().",
        between(0, 86_400_000),
    )
    enable_auto_offset_store: bool = setting(
        True, "Whether poll() stores the offset after each message for the next commit; if false, store_offsets() does."
    )
    auto_offset_reset: str = setting(
        "latest",
        "The position without a valid offset: earliest (smallest, beginning), latest (largest, end), or error"
        " (none), which reports _AUTO_OFFSET_RESET.",
        one_of(*_RESETS),
    )
    isolation_level: str = setting(
        "read_committed",
        "read_committed: return records of committed transactions only, up to the first open transaction; "
        "read_uncommitted: return all records.",
        one_of("read_committed", "read_uncommitted"),
    )
    topic_blacklist: tuple[str, ...] = setting(
        (), "Regular expressions, separated by commas, of topics that subscriptions exclude.", _patterns
    )
    enable_partition_eof: bool = setting(False, "Whether poll() reports _PARTITION_EOF at the end of a partition.")
    fetch_min_bytes: int = setting(
        1, "The number of bytes at which a node answers a fetch immediately.", between(1, 100_000_000)
    )
    fetch_wait_max_ms: int = setting(
        500,
        "The maximum time for which a node waits for fetch.min.bytes, in milliseconds.",
        between(0, 300_000),
        aliases=("fetch.max.wait.ms",),
    )
    fetch_max_bytes: int = setting(
        52_428_800, "The approximate maximum size of a response, in bytes; one batch is always returned.", at_least(1)
    )
    max_partition_fetch_bytes: int = setting(
        1_048_576,
        "The approximate maximum size of one partition's records in a response, in bytes; one batch is always"
        " returned.",
        between(1, MAX_INT32),
        aliases=("fetch.message.max.bytes",),
    )
    queued_max_messages_kbytes: int = setting(
        65_536,
        "The maximum size of messages that wait for poll(), in KiB; beyond it, the consumer stops fetching.",
        between(1, 2_097_151),
    )
    queued_min_messages: int | None = setting(
        None,
        "The number of messages of a partition that wait for poll() at which the consumer stops fetching it. "
        "If not set, only queued.max.messages.kbytes applies.",
        between(1, 10_000_000),
    )
    client_rack: str = setting(
        "",
        "The consumer's rack, comparable with the nodes' broker.rack. The consumer may read from a replica in"
        " its rack instead of the leader (see the nodes' replica.selector.class), and its group prefers to "
        "assign it partitions with such a replica, as far as shares stay equal.",
    )
    allow_auto_create_topics: bool = setting(
        False,
        "Whether the consumer's topics may be created automatically, if the nodes have auto.create.topics.enable.",
    )
    statistics_interval_ms: int = setting(
        0, "The interval between calls of stats_cb, in milliseconds; 0 disables statistics.", between(0, 86_400_000)
    )

    @property
    def reset_timestamp_ms(self) -> int | None:
        """The timestamp to look up without a valid offset; None reports an error."""
        return _RESETS[self.auto_offset_reset]

    @property
    def is_read_committed(self) -> bool:
        """True if records of uncommitted transactions are left out."""
        return self.isolation_level == "read_committed"

    @property
    def auto_commits(self) -> bool:
        """True if stored offsets are committed automatically."""
        return self.enable_auto_commit and self.group_id is not None

    def resolve(self, given: Mapping[str, object]) -> ConsumerConfig:
        """Return consistent settings; ``given`` holds those that were set explicitly.

        Raises:
            ConfigError: two settings contradict each other.
        """
        if self.group_instance_id is not None and self.group_id is None:
            raise ConfigError("group.instance.id needs group.id")
        if self.group_protocol == "consumer":
            self._check_remote(given)
            return self
        if self.group_remote_assignor is not None:
            raise ConfigError(
                "group.remote.assignor requires group.protocol=consumer: in the classic protocol, a member assigns"
            )
        return self._resolve_classic(given)

    def _check_remote(self, given: Mapping[str, object]) -> None:
        for key, text in _CLASSIC_ALONE.items():
            if key in given:
                raise ConfigError(f'configuration "{key}" is not supported with group.protocol=consumer: {text}')

    def _resolve_classic(self, given: Mapping[str, object]) -> ConsumerConfig:
        session, heartbeat = self.session_timeout_ms, self.heartbeat_interval_ms
        if "heartbeat.interval.ms" not in given:
            heartbeat = max(min(heartbeat, session // _HEARTBEATS_PER_SESSION), 1)
        elif heartbeat >= session:
            raise ConfigError(f"heartbeat.interval.ms ({heartbeat}) must be below session.timeout.ms ({session})")
        if self.max_poll_interval_ms < session:
            text = f"max.poll.interval.ms ({self.max_poll_interval_ms}) must be at least session.timeout.ms ({session})"
            raise ConfigError(text)
        return replace(self, heartbeat_interval_ms=heartbeat)


def merge_settings(config: Mapping[str, Any] | None, named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping updated with keyword arguments, which take precedence: ``group_id`` is ``group.id``."""
    return {**(config or {}), **{k if k in _OBJECTS else k.replace("_", "."): v for k, v in named.items()}}

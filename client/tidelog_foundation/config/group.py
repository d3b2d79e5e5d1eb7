"""The settings of a single group (KIP-848), and the limits that nodes and controllers set for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from tidelog_foundation.config.settings import (
    config_key,
    dynamic_int_setting,
    int_setting,
    parse_config,
    unknown_key,
)
from tidelog_foundation.config.validators import at_least
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, error_for

COORDINATOR_PREFIX = "group."
"""The prefix that turns a group's key into the node's key with the default."""
MAX_GROUP_ID_BYTES = 32_767
"""The longest group id, in bytes of UTF-8."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The settings of a group of the consumer protocol; None means the coordinator's value."""

    consumer_session_timeout_ms: int | None = dynamic_int_setting(
        None,
        "The session timeout of members, in milliseconds; group.consumer.session.timeout.ms if not set.",
        at_least(1),
    )
    consumer_heartbeat_interval_ms: int | None = dynamic_int_setting(
        None,
        "The heartbeat interval of members, in milliseconds; group.consumer.heartbeat.interval.ms if not set.",
        at_least(1),
    )


GROUP_KEYS = tuple(map(config_key, dataclasses.fields(GroupConfig)))
_ABSENT_GROUPS: Mapping[str, str] = MappingProxyType(
    {"share.": "share groups (KIP-932)", "streams.": "streams groups (KIP-1071)"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupLimits:
    """The timings of groups of the consumer protocol, and the limits for settings of a group."""

    group_consumer_session_timeout_ms: int = int_setting(
        45_000,
        "The session timeout of members of the consumer protocol (KIP-848), in milliseconds. Groups can override it.",
        at_least(1),
    )
    group_consumer_min_session_timeout_ms: int = int_setting(
        45_000, "The minimum session timeout of members of the consumer protocol, for nodes and groups.", at_least(1)
    )
    group_consumer_max_session_timeout_ms: int = int_setting(
        60_000, "The maximum session timeout of members of the consumer protocol, for nodes and groups.", at_least(1)
    )
    group_consumer_heartbeat_interval_ms: int = int_setting(
        5_000,
        "The heartbeat interval of members of the consumer protocol, in milliseconds. Groups can override it.",
        at_least(1),
    )
    group_consumer_min_heartbeat_interval_ms: int = int_setting(
        5_000, "The minimum heartbeat interval of members of the consumer protocol, for nodes and groups.", at_least(1)
    )
    group_consumer_max_heartbeat_interval_ms: int = int_setting(
        15_000, "The maximum heartbeat interval of members of the consumer protocol, for nodes and groups.", at_least(1)
    )


def check_group_id(group_id: str) -> None:
    """Raise INVALID_GROUP_ID for an id that is too long for Kafka's protocol."""
    size = len(group_id.encode())
    if size > MAX_GROUP_ID_BYTES:
        text = f"a group id has {size} bytes, the limit is {MAX_GROUP_ID_BYTES}"
        raise error_for(ErrorCode.INVALID_GROUP_ID, text)


def check_group_key(key: str) -> None:
    """Raise INVALID_CONFIG for a setting that groups lack; the text names unsupported groups if Kafka's have it."""
    if key in GROUP_KEYS:
        return
    for prefix, groups in _ABSENT_GROUPS.items():
        if key.startswith(prefix):
            raise error_for(ErrorCode.INVALID_CONFIG, f"{key}: {groups} are not supported")
    raise error_for(ErrorCode.INVALID_CONFIG, unknown_key(key, GROUP_KEYS))


def check_group_settings(settings: Mapping[str, str], limits: ConsumerGroupLimits) -> None:
    """Check a group's settings against the limits and each other (GroupConfig.validateValues).

    Raises:
        ConfigError: INVALID_CONFIG, with the setting, the value and the limit.
    """
    for key, text in settings.items():
        if not text.strip():
            raise error_for(ErrorCode.INVALID_CONFIG, f'invalid value "" for configuration "{key}": must not be empty')
    config = parse_config(GroupConfig, settings)
    session_ms = config.consumer_session_timeout_ms or limits.group_consumer_session_timeout_ms
    heartbeat_ms = config.consumer_heartbeat_interval_ms or limits.group_consumer_heartbeat_interval_ms
    for key, value in zip(GROUP_KEYS, (session_ms, heartbeat_ms), strict=True):
        _check_limits(key, value, limits)
    if session_ms <= heartbeat_ms:
        text = f"{GROUP_KEYS[0]} {session_ms} must be greater than {GROUP_KEYS[1]} {heartbeat_ms}"
        raise error_for(ErrorCode.INVALID_CONFIG, text)


def _check_limits(key: str, value: int, limits: ConsumerGroupLimits) -> None:
    kind, _, name = key.partition(".")
    for word, is_out in (("min", int.__lt__), ("max", int.__gt__)):
        limit_key = f"{COORDINATOR_PREFIX}{kind}.{word}.{name}"
        limit = getattr(limits, limit_key.replace(".", "_"))
        if is_out(value, limit):
            relation = "below" if word == "min" else "above"
            raise error_for(ErrorCode.INVALID_CONFIG, f"{key} {value} is {relation} {limit_key} {limit}")

"""A consumer's settings: librdkafka's names and defaults, and what does not go together."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog import Consumer
from tidelog.consumer.config import ConsumerConfig, merge_settings
from tidelog_foundation.config import parse_config
from tidelog_foundation.errors import ConfigError

BASE = {"bootstrap.servers": "a:1", "group.id": "g"}
DEFAULTS = {
    "session_timeout_ms": 45_000,
    "heartbeat_interval_ms": 3_000,
    "max_poll_interval_ms": 300_000,
    "auto_commit_interval_ms": 5_000,
    "enable_auto_commit": True,
    "enable_auto_offset_store": True,
    "partition_assignment_strategy": ("range", "roundrobin"),
    "group_protocol": "classic",
    "isolation_level": "read_committed",
    "auto_offset_reset": "latest",
}
"""Those of librdkafka's CONFIGURATION.md."""


def resolve(**settings: Any) -> ConsumerConfig:
    given = {**BASE, **{key.replace("_", "."): value for key, value in settings.items()}}
    return parse_config(ConsumerConfig, given).resolve(given)


def test_defaults_are_those_of_librdkafka() -> None:
    config = resolve()
    assert {name: getattr(config, name) for name in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"group_protocol": "consumer", "session_timeout_ms": 1}, "session.timeout.ms.*group.consumer.session"),
        ({"group_protocol": "consumer", "heartbeat_interval_ms": 1}, "heartbeat.interval.ms.*group.protocol=consumer"),
        ({"group_protocol": "consumer", "partition_assignment_strategy": "range"}, "group.remote.assignor"),
        ({"group_remote_assignor": "uniform"}, "requires group.protocol=consumer"),
        ({"max_poll_interval_ms": 44_999}, r"max.poll.interval.ms \(44999\).*session.timeout.ms \(45000\)"),
        ({"heartbeat_interval_ms": 45_000}, r"heartbeat.interval.ms \(45000\) must be below"),
        ({"partition_assignment_strategy": "range,cooperative-sticky"}, "cooperative-sticky must be the only assignor"),
        ({"partition_assignment_strategy": "best"}, "must be a list of range, roundrobin, sticky, cooperative-sticky"),
        ({"partition_assignment_strategy": ""}, "must not be empty"),
        ({"auto_offset_reset": "first"}, "must be one of earliest"),
        ({"isolation_level": "none"}, "must be one of read_committed, read_uncommitted"),
        ({"topic_blacklist": "^["}, "not a valid regular expression"),
        ({"group_id": None, "group_instance_id": "i"}, "group.instance.id needs group.id"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        resolve(**settings)


def test_a_short_session_has_heartbeats_that_keep_it() -> None:
    assert resolve(session_timeout_ms=1_500).heartbeat_interval_ms == 500
    assert resolve(session_timeout_ms=1_500, heartbeat_interval_ms=1_000).heartbeat_interval_ms == 1_000


def test_keyword_arguments_count_more_than_the_mapping() -> None:
    def on_commit() -> None: ...

    merged = merge_settings(BASE, {"group_id": "h", "on_commit": on_commit})
    assert merged == {"bootstrap.servers": "a:1", "group.id": "h", "on_commit": on_commit}


def test_a_callback_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match="on_commit must be callable, not int"):
        Consumer({**BASE, "on_commit": 3})

"""The settings of the group coordinator: they reach the groups, and those that do not fit each other are refused."""

import dataclasses

import pytest

from tidelog_foundation.config import parse_config
from tidelog_foundation.errors import ConfigError
from tidelog_node.coordination import OffsetsTopicSettings
from tidelog_node.groups.settings import GroupSettings, MigrationPolicy
from tidelog_node.server.config import NodeConfig

REQUIRED = {
    "node.id": "1",
    "cluster.id": "c",
    "listeners": "GRPC://127.0.0.1:9092",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "log.dirs": "/a",
}
OTHERS = {
    "offset.metadata.max.bytes": 1,
    "offsets.retention.minutes": 2,
    "offsets.retention.check.interval.ms": 3,
    "group.min.session.timeout.ms": 4,
    "group.max.session.timeout.ms": 5,
    "group.initial.rebalance.delay.ms": 6,
    "group.max.size": 7,
    "group.consumer.min.session.timeout.ms": 101,
    "group.consumer.session.timeout.ms": 102,
    "group.consumer.max.session.timeout.ms": 103,
    "group.consumer.min.heartbeat.interval.ms": 8,
    "group.consumer.heartbeat.interval.ms": 9,
    "group.consumer.max.heartbeat.interval.ms": 10,
    "group.consumer.max.size": 11,
    "group.consumer.assignors": "range",
    "group.consumer.regex.refresh.interval.ms": 12_000,
    "group.consumer.migration.policy": "upgrade",
}


def test_settings_reach_the_groups_under_their_own_names():
    settings = parse_config(NodeConfig, REQUIRED | OTHERS).group_settings()
    given = {
        "offsets_retention_ms": 2 * 60_000,
        "consumer_assignors": ("range",),
        "new_member_join_timeout_ms": GroupSettings().new_member_join_timeout_ms,
        "own_timings": {},
    }
    for field in dataclasses.fields(GroupSettings):
        key = field.name.replace("_", ".")
        expected = given.get(field.name, OTHERS.get(key, OTHERS.get(f"group.{key}")))
        assert getattr(settings, field.name) == expected, field.name


def test_defaults_are_those_of_the_groups_and_of_kafkas_offsets_topic():
    config = parse_config(NodeConfig, REQUIRED)
    assert config.group_settings() == GroupSettings()
    assert config.offsets_topic == OffsetsTopicSettings(50, 3, 100 * 1024**2, 0)
    assert config.offsets_topic.compression == "none"
    assert config.offsets_commit_timeout_ms == 5_000


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"group.min.session.timeout.ms": 9, "group.max.session.timeout.ms": 8}, "9 must not be above"),
        ({"group.consumer.session.timeout.ms": 44_999}, "group.consumer.session.timeout.ms 44999 must be from"),
        ({"group.consumer.assignors": "uniform,mine"}, "group.consumer.assignors"),
        ({"offsets.topic.compression.codec": 5}, "offsets.topic.compression.codec"),
        ({"offsets.topic.num.partitions": 0}, "offsets.topic.num.partitions"),
        ({"offsets.topic.replication.factor": 40_000}, "offsets.topic.replication.factor"),
    ],
)
def test_settings_that_cannot_hold_are_refused(given, text):
    with pytest.raises(ConfigError, match=text):
        parse_config(NodeConfig, REQUIRED | given)


def test_migration_policy_is_taken_in_any_case_and_another_word_is_refused():
    key = "group.consumer.migration.policy"
    settings = parse_config(NodeConfig, REQUIRED | {key: "Downgrade"}).group_settings()
    assert settings.consumer_migration_policy is MigrationPolicy.DOWNGRADE
    with pytest.raises(ConfigError, match="must be one of disabled, upgrade, downgrade, bidirectional"):
        parse_config(NodeConfig, REQUIRED | {key: "both"})

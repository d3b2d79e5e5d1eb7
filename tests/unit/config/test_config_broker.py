"""The settings of nodes that can change, behind those of topics, and what a change makes of a value."""

from __future__ import annotations

import dataclasses

import pytest

from tidelog_foundation.config import DynamicBrokerConfig, TopicConfig, config_key, describe, format_value, parse_config
from tidelog_foundation.config.broker import (
    BROKER_SYNONYMS,
    DYNAMIC_BROKER_KEYS,
    READ_ONLY_BROKER_KEYS,
    override_broker_settings,
    same_meaning,
)
from tidelog_foundation.config.changes import changed_value
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.requests.configs import ConfigOperation

INFOS = {info.key: info for info in describe(TopicConfig)}


def test_each_setting_of_a_topic_but_the_throttled_replicas_has_one_of_nodes_that_can_change() -> None:
    alone = {"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
    assert INFOS.keys() - BROKER_SYNONYMS.keys() == alone
    assert {group[0].key for group in BROKER_SYNONYMS.values()} <= DYNAMIC_BROKER_KEYS
    others = {synonym.key for group in BROKER_SYNONYMS.values() for synonym in group[1:]}
    assert others <= READ_ONLY_BROKER_KEYS
    assert not DYNAMIC_BROKER_KEYS & READ_ONLY_BROKER_KEYS


def test_every_setting_that_can_change_is_declared_so() -> None:
    assert all(info.dynamic for info in describe(DynamicBrokerConfig))
    assert all(info.dynamic for info in describe(TopicConfig))


def test_topics_take_over_what_nodes_have() -> None:
    assert DynamicBrokerConfig().topic_defaults() == TopicConfig()
    config = parse_config(DynamicBrokerConfig, {"log.retention.ms": "-1", "unclean.leader.election.enable": "true"})
    assert config.topic_defaults().retention_ms == -1
    assert config.topic_defaults().unclean_leader_election_enable


def test_values_that_do_not_fit_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms 9 is above max\.compaction\.lag\.ms 8"):
        parse_config(
            DynamicBrokerConfig,
            {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"},
        )


def test_a_change_outdoes_the_same_in_other_units() -> None:
    assert same_meaning("log.roll.hours") == ("log.roll.ms", "log.roll.hours")
    assert same_meaning("node.id") == ("node.id",)
    settings = {"log.retention.ms": "1", "log.retention.hours": "2", "log.roll.hours": "3"}
    assert override_broker_settings(settings, {"log.retention.ms": "4"}) == {
        "log.roll.hours": "3",
        "log.retention.ms": "4",
    }


def test_what_is_formatted_is_read_back() -> None:
    for cls in (TopicConfig, DynamicBrokerConfig):
        config = cls()
        texts = {config_key(f): format_value(getattr(config, f.name)) for f in dataclasses.fields(cls)}
        assert parse_config(cls, {k: v for k, v in texts.items() if v is not None}) == config


@pytest.mark.parametrize(
    ("current", "kind", "given", "expected"),
    [
        (None, 1, "compact", "compact"),
        ("compact", 2, "", None),
        (None, 3, "compact", "delete,compact"),
        ("", 3, "compact", "compact"),
        ("compact", 3, " compact , delete ", "compact,delete"),
        (None, 4, "delete", ""),
        ("compact,delete", 4, "compact", "delete"),
        ("compact", 4, "shred", "compact"),
    ],
)
def test_a_change_of_a_list(current: str | None, kind: int, given: str, expected: str | None) -> None:
    operation = ConfigOperation(name="cleanup.policy", type=kind, value=given)  # type: ignore[arg-type]
    assert changed_value(current, operation, INFOS["cleanup.policy"]) == expected


@pytest.mark.parametrize("value", ["*", "", "0:1", "0:1, 10:2"])
def test_throttled_replicas_are_all_or_pairs(value: str) -> None:
    parse_config(TopicConfig, {"leader.replication.throttled.replicas": value})


@pytest.mark.parametrize("value", ["none", "0", "0:1:2", "0:-1", "*,0:1", "a:b", "0:1;1:1"])
def test_throttled_replicas_of_another_form_are_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=r"must be \* or a list of partition:broker"):
        parse_config(TopicConfig, {"leader.replication.throttled.replicas": value})

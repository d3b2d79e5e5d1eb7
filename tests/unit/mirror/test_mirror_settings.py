"""MirrorMaker 2's properties file: precedence, unknown settings, and settings without effect."""

from __future__ import annotations

import pytest

from tidelog_foundation.errors import ConfigError
from tidelog_mirror.process import selected_flows
from tidelog_mirror.settings import Flow, MirrorConfig, parse_mirror_settings

TWO = {"clusters": "A, B", "A.bootstrap.servers": "a:1", "B.bootstrap.servers": "b:1"}


def flow(config: MirrorConfig, name: str = "A->B") -> Flow:
    return next(each for each in config.flows if each.name == name)


def test_a_flow_has_the_defaults_of_mirrormaker() -> None:
    config = parse_mirror_settings({**TWO, "A->B.enabled": "true"})
    found = flow(config).config
    assert (found.enabled, found.topics, found.groups, found.replication_factor) == (True, (".*",), (".*",), 2)
    assert found.topics_exclude == (r"mm2.*\.internal", r".*\.replica", "__.*")
    assert (found.offset_lag_max, found.emit_checkpoints_interval_seconds) == (100, 60)
    assert not found.sync_group_offsets_enabled
    assert not found.is_exactly_once
    # As with MirrorMaker 2, the opposite direction has heartbeats.
    assert not flow(config, "B->A").config.enabled
    assert [each.name for each in selected_flows(config, ["A"])] == ["B->A"]


def test_the_most_special_setting_prevails() -> None:
    raw = {
        **TWO,
        "topics": "all.*",
        "A->B.topics": "x, y.*",
        "exactly.once.source.support": "disabled",
        "B.exactly.once.source.support": "enabled",
        "A.consumer.fetch.max.bytes": "2048",
        "consumer.fetch.max.bytes": "4096",
        "security.protocol": "SSL",
        "B.security.protocol": "PLAINTEXT",
    }
    config = parse_mirror_settings(raw)
    assert flow(config).config.topics == ("x", "y.*")
    assert flow(config, "B->A").config.topics == ("all.*",)
    assert flow(config).config.is_exactly_once
    assert flow(config).config.reads_committed
    assert not flow(config, "B->A").config.is_exactly_once
    assert flow(config).config.consumer_fetch_max_bytes == 2048
    assert flow(config, "B->A").config.consumer_fetch_max_bytes == 4096
    assert config.clusters["A"].security_protocol == "SSL"
    assert config.clusters["B"].security_protocol == "PLAINTEXT"


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("A->B.topic", "x", 'unknown configuration "A->B.topic"; did you mean "A->B.topics"?'),
        ("A.bootstrap.server", "x", 'did you mean "A.bootstrap.servers"?'),
        ("refresh.topic.interval.seconds", "1", 'did you mean "refresh.topics.interval.seconds"?'),
        ("A.topics", "x", 'set it as "topics" or as "SOURCE->A.topics"'),
        ("A->C.enabled", "true", 'did you mean "A->B.enabled"?'),
        ("A->A.enabled", "true", 'unknown configuration "A->A.enabled"'),
        ("topics", "(", "is not a regular expression"),
        ("replication.policy.class", "Mine", "'Mine'"),
        ("A.security.protocol", "SASL_SSL", "cluster A: security.protocol=SASL_SSL needs sasl.jaas.config"),
        ("listener.name.https.ssl.keystore.type", "PEM", "names none of the listeners"),
        ("clusters", "A", "2 to 100 different aliases are needed, not A"),
        ("B.bootstrap.servers", "", 'missing required configuration "B.bootstrap.servers"'),
    ],
)
def test_a_wrong_setting_is_an_error_that_helps(key: str, value: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_mirror_settings({**TWO, "A->B.enabled": "true", key: value})
    assert text in caught.value.message


def test_settings_of_connect_have_no_effect_and_a_warning() -> None:
    config = parse_mirror_settings({**TWO, "tasks.max": "10", "B.producer.batch.size": "1"})
    assert config.warnings == (
        "tasks.max has no effect: one process copies all partitions of its flows",
        "B.producer.batch.size has no effect: batches keep their size",
    )


def test_former_names_are_understood_but_not_beside_the_new_ones() -> None:
    assert flow(parse_mirror_settings({**TWO, "topics.blacklist": "x"})).config.topics_exclude == ("x",)
    with pytest.raises(ConfigError, match=r"topics.exclude and its former name"):
        parse_mirror_settings({**TWO, "topics.blacklist": "x", "topics.exclude": "y"})


def test_a_file_without_an_enabled_flow_and_an_unknown_target_are_errors() -> None:
    with pytest.raises(ConfigError, match="no flow is enabled"):
        selected_flows(parse_mirror_settings(TWO), ())
    with pytest.raises(ConfigError, match="C is not among A, B"):
        selected_flows(parse_mirror_settings({**TWO, "A->B.enabled": "true"}), ["C"])

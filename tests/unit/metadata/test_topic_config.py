"""A topic's settings: its own over the broker's, checked."""

from __future__ import annotations

import pytest

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.requests.configs import ConfigResourceType
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import ConfigRecord, TopicRecord
from tidelog_quorum.metadata.topic_config import override_topic_config, topic_config

IMAGE = MetadataImage().apply(
    1, 1, [TopicRecord("a", b"a" * 16), ConfigRecord(ConfigResourceType.TOPIC, "a", "min.insync.replicas", "2")]
)


def test_topic_config_has_kafkas_defaults() -> None:
    assert TopicConfig() == TopicConfig(min_insync_replicas=1, max_message_bytes=1_048_588, segment_bytes=1_073_741_824)


def test_topic_config_prefers_the_topics_setting_over_the_brokers() -> None:
    defaults = TopicConfig(min_insync_replicas=3, segment_bytes=1_000)
    assert topic_config(IMAGE, "a", defaults) == TopicConfig(min_insync_replicas=2, segment_bytes=1_000)


def test_topic_config_is_the_brokers_for_a_topic_without_settings() -> None:
    defaults = TopicConfig(min_insync_replicas=3)
    assert topic_config(IMAGE, "b", defaults) is defaults


def test_topic_config_is_kafkas_where_the_brokers_contradicts_the_topics() -> None:
    image = IMAGE.apply(2, 1, [ConfigRecord(ConfigResourceType.TOPIC, "a", "min.compaction.lag.ms", "5000")])
    defaults = TopicConfig(max_compaction_lag_ms=1_000, segment_bytes=1_000)
    found = topic_config(image, "a", defaults)
    assert (found.min_compaction_lag_ms, found.max_compaction_lag_ms) == (5_000, TopicConfig().max_compaction_lag_ms)


def test_topic_config_keeps_min_insync_replicas_where_the_brokers_contradicts_the_topics() -> None:
    image = IMAGE.apply(2, 1, [ConfigRecord(ConfigResourceType.TOPIC, "b", "min.compaction.lag.ms", "5000")])
    defaults = TopicConfig(max_compaction_lag_ms=1_000, min_insync_replicas=3)
    assert topic_config(image, "b", defaults).min_insync_replicas == 3


def test_topic_config_names_an_unknown_key() -> None:
    with pytest.raises(ConfigError, match=r'unknown configuration "min\.insync\.replica"; did you mean'):
        override_topic_config({"min.insync.replica": "2"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("min.insync.replicas", "0"),
        ("segment.bytes", "13"),
        ("message.timestamp.type", "Now"),
        ("max.message.bytes", "-1"),
        ("index.interval.bytes", "x"),
    ],
)
def test_topic_config_names_a_bad_value(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"'{value}' for configuration \"{key}\""):
        override_topic_config({key: value})

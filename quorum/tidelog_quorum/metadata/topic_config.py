"""The settings of a topic: what was set on it, over the broker's defaults. Keys, defaults and limits are Kafka's."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.config import at_least, config_key, one_of, parse_config, setting
from tidelog_quorum.metadata.image import MetadataImage


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """How the partitions of a topic behave."""

    min_insync_replicas: int = setting(
        1, check=at_least(1), doc="The in-sync replicas that acks=all needs at least.", dynamic=True
    )
    max_message_bytes: int = setting(
        1_048_588, check=at_least(0), doc="The largest record batch accepted, in bytes.", dynamic=True
    )
    segment_bytes: int = setting(
        1024**3, check=at_least(14), doc="A log segment is closed before it grows beyond this, in bytes.", dynamic=True
    )
    index_interval_bytes: int = setting(
        4096, check=at_least(0), doc="The bytes of log between two entries of its index.", dynamic=True
    )
    segment_index_bytes: int = setting(
        10 * 1024**2, check=at_least(12), doc="The largest index of a segment, in bytes.", dynamic=True
    )
    message_timestamp_type: str = setting(
        "CreateTime",
        check=one_of("CreateTime", "LogAppendTime"),
        doc="Whether a record's time is its producer's or the leader's.",
        dynamic=True,
    )


DEFAULT_TOPIC_CONFIG = TopicConfig()


def topic_config(image: MetadataImage, topic_name: str, defaults: TopicConfig = DEFAULT_TOPIC_CONFIG) -> TopicConfig:
    """Return the settings that hold for a topic: its own over ``defaults``, which are the broker's."""
    return override_topic_config(image.config_of_topic(topic_name), defaults)


def override_topic_config(settings: Mapping[str, str], defaults: TopicConfig = DEFAULT_TOPIC_CONFIG) -> TopicConfig:
    """Return ``defaults`` with the given dotted keys set.

    Raises:
        ConfigError: INVALID_CONFIG for an unknown key or a value out of its limits; names it.
    """
    if not settings:
        return defaults
    inherited = {config_key(f): getattr(defaults, f.name) for f in dataclasses.fields(TopicConfig)}
    return parse_config(TopicConfig, inherited | dict(settings))

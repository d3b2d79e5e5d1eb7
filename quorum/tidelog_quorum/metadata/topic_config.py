"""Which settings hold for a topic: what was set on it, over the broker's defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tidelog.config import TopicConfig, config_key, parse_config
from tidelog.errors import ConfigError
from tidelog_quorum.metadata.image import MetadataImage

DEFAULT_TOPIC_CONFIG = TopicConfig()


def topic_config(image: MetadataImage, topic_name: str, defaults: TopicConfig = DEFAULT_TOPIC_CONFIG) -> TopicConfig:
    """Return the settings that hold for a topic: its own over ``defaults``, which are the broker's.

    The controller has checked a topic's settings over Kafka's defaults. Where the broker's own contradict them, as a
    ``log.cleaner.max.compaction.lag.ms`` below a topic's ``min.compaction.lag.ms``, the topic gets Kafka's.
    """
    settings = image.config_of_topic(topic_name)
    try:
        return override_topic_config(settings, defaults)
    except ConfigError:
        return override_topic_config(settings)


def override_topic_config(settings: Mapping[str, str], defaults: TopicConfig = DEFAULT_TOPIC_CONFIG) -> TopicConfig:
    """Return ``defaults`` with the given dotted keys set.

    Raises:
        ConfigError: INVALID_CONFIG for an unknown key or a value out of its limits; names it.
    """
    if not settings:
        return defaults
    inherited = {config_key(f): getattr(defaults, f.name) for f in dataclasses.fields(TopicConfig)}
    return parse_config(TopicConfig, inherited | dict(settings))

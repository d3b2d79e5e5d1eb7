"""The effective settings of a topic: its own, over the broker's defaults.

The controller and a node each resolve them from the image and from their own properties file. For both, a topic's own
setting takes precedence over the default of all brokers (the resource ``""``); a node's own resource comes between the
two. A setting that must be the same everywhere, such as ``min.insync.replicas`` with eligible leader replicas
(KIP-966), is therefore set in the image.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tidelog_foundation.config import TopicConfig, config_key, parse_config
from tidelog_foundation.config.broker import BROKER_SYNONYMS
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.requests.configs import ConfigResourceType
from tidelog_quorum.metadata.image import ConfigResource, MetadataImage

DEFAULT_TOPIC_CONFIG = TopicConfig()
ALL_BROKERS = ConfigResource(ConfigResourceType.BROKER, "")
"""The resource whose settings apply to every broker that does not override them."""

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION_ENABLE = "unclean.leader.election.enable"


def broker_settings(image: MetadataImage, broker: int | None = None) -> Mapping[str, str]:
    """Return the settings that were set at run time on one broker, or on all of them (None)."""
    name = "" if broker is None else str(broker)
    return image.configs.get(ConfigResource(ConfigResourceType.BROKER, name), {})


def topic_config(image: MetadataImage, topic_name: str, defaults: TopicConfig = DEFAULT_TOPIC_CONFIG) -> TopicConfig:
    """Return the effective settings of a topic: its own over ``defaults``, which are the broker's."""
    return topic_config_from(image.config_of_topic(topic_name), defaults)


def topic_config_from(settings: Mapping[str, str], defaults: TopicConfig = DEFAULT_TOPIC_CONFIG) -> TopicConfig:
    """Return the effective settings of a topic with the given ``settings``.

    The controller has checked a topic's settings over its own defaults. If the broker's defaults contradict them, for
    example a ``log.cleaner.max.compaction.lag.ms`` below a topic's ``min.compaction.lag.ms``, the topic gets Kafka's
    defaults; but it keeps its ``min.insync.replicas``, on which the controller bases eligible leader replicas.
    """
    try:
        return override_topic_config(settings, defaults)
    except ConfigError:
        return override_topic_config(settings, TopicConfig(min_insync_replicas=defaults.min_insync_replicas))


def override_topic_config(settings: Mapping[str, str], defaults: TopicConfig = DEFAULT_TOPIC_CONFIG) -> TopicConfig:
    """Return ``defaults`` with the given dotted keys set.

    Raises:
        ConfigError: INVALID_CONFIG for an unknown key or a value out of its limits; names it.
    """
    if not settings:
        return defaults
    inherited = {config_key(f): getattr(defaults, f.name) for f in dataclasses.fields(TopicConfig)}
    return parse_config(TopicConfig, inherited | dict(settings))


def cluster_topic_defaults(image: MetadataImage, own: TopicConfig = DEFAULT_TOPIC_CONFIG) -> TopicConfig:
    """Return a controller's defaults for topics: the settings of all brokers over its ``own``."""
    settings = broker_settings(image)
    changed = {
        topic_key: str(int(settings[s.key]) * s.unit) if s.unit != 1 else settings[s.key]
        for topic_key, synonyms in BROKER_SYNONYMS.items()
        for s in reversed(synonyms)
        if s.key in settings
    }
    return override_topic_config(changed, own)


def min_insync_replicas(image: MetadataImage, topic_name: str, own: TopicConfig = DEFAULT_TOPIC_CONFIG) -> int:
    """Return a topic's ``min.insync.replicas`` from a controller's view; cheap, for every partition."""
    value = _effective(image, topic_name, MIN_INSYNC_REPLICAS)
    return own.min_insync_replicas if value is None else int(value)


def unclean_leader_election_enable(
    image: MetadataImage, topic_name: str, own: TopicConfig = DEFAULT_TOPIC_CONFIG
) -> bool:
    """Return a topic's ``unclean.leader.election.enable`` from a controller's view; cheap, for every partition."""
    value = _effective(image, topic_name, UNCLEAN_LEADER_ELECTION_ENABLE)
    return own.unclean_leader_election_enable if value is None else value.strip().lower() == "true"


def _effective(image: MetadataImage, topic_name: str, key: str) -> str | None:
    """Return the run-time setting of a key that topics and brokers share."""
    value = image.config_of_topic(topic_name).get(key)
    return broker_settings(image).get(key) if value is None else value

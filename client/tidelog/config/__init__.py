"""Configuration with Kafka's dotted names: declared once per component, checked, documented."""

from tidelog.config.settings import config_key, describe, parse_config, setting
from tidelog.config.topic import TopicConfig
from tidelog.config.validators import at_least, between, not_empty, one_of

__all__ = [
    "TopicConfig",
    "at_least",
    "between",
    "config_key",
    "describe",
    "not_empty",
    "one_of",
    "parse_config",
    "setting",
]

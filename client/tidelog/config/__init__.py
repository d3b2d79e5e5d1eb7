"""Configuration with Kafka's dotted names: declared once per component, checked, documented."""

from tidelog.config.broker import DynamicBrokerConfig
from tidelog.config.settings import config_key, describe, format_value, parse_config, setting
from tidelog.config.topic import TopicConfig
from tidelog.config.validators import any_of, at_least, between, each_of, not_empty, one_of

__all__ = [
    "DynamicBrokerConfig",
    "TopicConfig",
    "any_of",
    "at_least",
    "between",
    "config_key",
    "describe",
    "each_of",
    "format_value",
    "not_empty",
    "one_of",
    "parse_config",
    "setting",
]

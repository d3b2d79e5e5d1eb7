"""Configuration with Kafka's dotted names: declared once per component, validated, documented.

The settings of topics and brokers load on first use, because clients do not need them.
"""

import importlib
from typing import TYPE_CHECKING

from tidelog_foundation.config.settings import (
    config_key,
    config_keys,
    describe,
    format_value,
    int_setting,
    parse_config,
    setting,
)
from tidelog_foundation.config.validators import any_of, at_least, between, each_of, not_empty, one_of

if TYPE_CHECKING:
    from tidelog_foundation.config.broker import DynamicBrokerConfig
    from tidelog_foundation.config.topic import TopicConfig

_MODULES = {"DynamicBrokerConfig": "tidelog_foundation.config.broker", "TopicConfig": "tidelog_foundation.config.topic"}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)

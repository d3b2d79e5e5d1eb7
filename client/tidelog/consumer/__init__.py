"""The consumer of groups and of assigned partitions, with confluent-kafka's API.

Its modules load on first use, because the admin client needs only the formats of groups.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.consumer.config import ConsumerConfig
    from tidelog.consumer.consumer import Consumer
    from tidelog.consumer.deserializing import DeserializingConsumer
    from tidelog.consumer.group import ConsumerGroupMetadata

__all__ = ["Consumer", "ConsumerConfig", "ConsumerGroupMetadata", "DeserializingConsumer"]

_MODULES = {
    "Consumer": "tidelog.consumer.consumer",
    "ConsumerConfig": "tidelog.consumer.config",
    "ConsumerGroupMetadata": "tidelog.consumer.group",
    "DeserializingConsumer": "tidelog.consumer.deserializing",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value

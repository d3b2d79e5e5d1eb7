"""Tidelog's client SDK: produce, consume and administer, with confluent-kafka's names.

Nodes and controllers import submodules of this package; they need no client, so clients are loaded at first use.
"""

import importlib
from typing import TYPE_CHECKING

from tidelog.errors import KafkaError, KafkaException, TidelogError

if TYPE_CHECKING:
    from tidelog.admin import AdminClient, ElectionType, NewTopic, TopicCollection
    from tidelog.consumer import Consumer
    from tidelog.message import (
        OFFSET_BEGINNING,
        OFFSET_END,
        OFFSET_INVALID,
        OFFSET_STORED,
        TIMESTAMP_CREATE_TIME,
        TIMESTAMP_LOG_APPEND_TIME,
        TIMESTAMP_NOT_AVAILABLE,
        Message,
        TopicPartition,
    )
    from tidelog.producer import Producer

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "AdminClient",
    "Consumer",
    "ElectionType",
    "KafkaError",
    "KafkaException",
    "Message",
    "NewTopic",
    "Producer",
    "TidelogError",
    "TopicCollection",
    "TopicPartition",
]

_MODULES = {
    "AdminClient": "tidelog.admin",
    "ElectionType": "tidelog.admin",
    "NewTopic": "tidelog.admin",
    "TopicCollection": "tidelog.admin",
    "Consumer": "tidelog.consumer",
    "Producer": "tidelog.producer",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES.get(name, "tidelog.message")), name)
    globals()[name] = value
    return value

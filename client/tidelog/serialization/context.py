"""What a serializer is told of the record that it works for."""

from __future__ import annotations

import enum
from typing import Any


class MessageField(enum.StrEnum):
    """Which part of a record is meant."""

    NONE = "none"
    KEY = "key"
    VALUE = "value"


class SerializationContext:
    """The topic, the part of the record, and the record's headers as the application gave them or as they were read.

    Mutable, as confluent-kafka's: a serializer may append to a list of headers, which goes out with the record.
    """

    __slots__ = ("field", "headers", "topic")

    def __init__(self, topic: str, field: MessageField, headers: Any = None) -> None:
        self.topic = topic
        self.field = field
        self.headers = headers

    def __repr__(self) -> str:
        return f"SerializationContext(topic={self.topic!r}, field={self.field.value!r}, headers={self.headers!r})"

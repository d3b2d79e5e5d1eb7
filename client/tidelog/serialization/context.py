"""The context of a serializer's call: the record's topic, part and headers."""

from __future__ import annotations

import enum
from typing import Any


class MessageField(enum.StrEnum):
    """A part of a record."""

    NONE = "none"
    KEY = "key"
    VALUE = "value"


class SerializationContext:
    """The topic, the part of the record, and the record's headers as produced or consumed.

    It is mutable, as in confluent-kafka: a serializer may append to the list of headers, which is sent with the record.
    """

    __slots__ = ("field", "headers", "topic")

    def __init__(self, topic: str, field: MessageField, headers: Any = None) -> None:
        self.topic = topic
        self.field = field
        self.headers = headers

    def __repr__(self) -> str:
        return f"SerializationContext(topic={self.topic!r}, field={self.field.value!r}, headers={self.headers!r})"

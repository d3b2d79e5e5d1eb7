"""Serdes for text, 32-bit integers and doubles, byte for byte like Kafka's serializers of the same names, and for JSON.

JSON is UTF-8 without a schema, as ``json.dumps`` writes it without blanks.
"""

from __future__ import annotations

import codecs
import enum
import json
import struct
from collections.abc import Callable
from typing import Any

from tidelog.serialization.errors import SerializationError


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


_INT32 = struct.Struct(">i")
_FLOAT64 = struct.Struct(">d")


class _Closable:
    """The optional methods of a serde, which do nothing by default."""

    def close(self) -> None:
        """Release the serde's resources; do nothing by default."""

    def set_cluster_id_resolver(self, resolver: Callable[[], Any]) -> None:
        """Accept a function that returns the cluster's id, for a serde that needs it; do nothing by default."""


class Serializer(_Closable):
    """The base class of serializers; any callable ``(obj, ctx) -> bytes | None`` works too."""

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        """Return the bytes, or None for None.

        Raises:
            SerializationError: the object cannot be serialized.
        """
        raise NotImplementedError


class Deserializer(_Closable):
    """The base class of deserializers; any callable ``(value, ctx) -> object`` works too."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:
        """Return the object, or None for None.

        Raises:
            SerializationError: the bytes are invalid.
        """
        raise NotImplementedError


class _Text:
    def __init__(self, codec: str = "utf_8") -> None:
        """Raise LookupError for a codec unknown to Python."""
        codecs.lookup(codec)
        self.codec = codec


class StringSerializer(_Text, Serializer):
    """Text in ``codec``, UTF-8 by default."""

    def __call__(self, obj: str | None, ctx: SerializationContext | None = None) -> bytes | None:
        """Return the text's bytes. Raise SerializationError for other types, or text outside the codec."""
        if obj is None:
            return None
        if not isinstance(obj, str):
            raise SerializationError(f"expected text, got {type(obj).__name__}")
        try:
            return obj.encode(self.codec)
        except UnicodeError as error:
            raise SerializationError(str(error)) from error


class StringDeserializer(_Text, Deserializer):
    """Text in ``codec``, UTF-8 by default."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> str | None:
        """Return the text. Raise SerializationError for bytes that are invalid in the codec."""
        if value is None:
            return None
        try:
            return value.decode(self.codec)
        except UnicodeError as error:
            raise SerializationError(str(error)) from error


class IntegerSerializer(Serializer):
    """A signed 32-bit integer, big-endian."""

    def __call__(self, obj: int | None, ctx: SerializationContext | None = None) -> bytes | None:
        """Return 4 bytes. Raise SerializationError for other types or an int out of range."""
        return _packed(_INT32, obj)


class IntegerDeserializer(Deserializer):
    """A signed 32-bit integer, big-endian."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> int | None:
        """Return the number. Raise SerializationError unless there are 4 bytes."""
        number: int | None = _unpacked(_INT32, value)
        return number


class DoubleSerializer(Serializer):
    """A number as IEEE 754 binary64, big-endian."""

    def __call__(self, obj: float | None, ctx: SerializationContext | None = None) -> bytes | None:
        """Return 8 bytes. Raise SerializationError for a value that is not a number."""
        return _packed(_FLOAT64, obj)


class DoubleDeserializer(Deserializer):
    """A number as IEEE 754 binary64, big-endian."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> float | None:
        """Return the number. Raise SerializationError unless there are 8 bytes."""
        number: float | None = _unpacked(_FLOAT64, value)
        return number


def _packed(form: struct.Struct, obj: object) -> bytes | None:
    if obj is None:
        return None
    try:
        return form.pack(obj)
    except (struct.error, OverflowError) as error:
        raise SerializationError(f"{obj!r}: {error}") from error


def _unpacked(form: struct.Struct, value: bytes | None) -> Any:
    if value is None:
        return None
    if len(value) != form.size:
        raise SerializationError(f"expected {form.size} bytes, got {len(value)}")
    return form.unpack(value)[0]


ToDict = Callable[[Any, SerializationContext | None], Any]
FromDict = Callable[[Any, SerializationContext | None], Any]


class JSONSerializer(Serializer):
    """A serializer to JSON; ``to_dict(obj, ctx)`` converts objects to JSON types, and by default they must be such."""

    def __init__(self, to_dict: ToDict | None = None) -> None:
        """Raise TypeError if ``to_dict`` is not callable."""
        self._to_dict = _callable("to_dict", to_dict)

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        """Return JSON, or None for None. Raise SerializationError for values outside JSON, such as NaN."""
        if obj is None:
            return None
        plain = obj if self._to_dict is None else self._to_dict(obj, ctx)
        try:
            return json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise SerializationError(f"invalid JSON: {error}") from error


class JSONDeserializer(Deserializer):
    """A deserializer from JSON; ``from_dict(plain, ctx)`` converts the result, which is returned
    unchanged by default.
    """

    def __init__(self, from_dict: FromDict | None = None) -> None:
        """Raise TypeError if ``from_dict`` is not callable."""
        self._from_dict = _callable("from_dict", from_dict)

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:
        """Return the object, or None for None. Raise SerializationError for bytes that are not JSON."""
        if value is None:
            return None
        try:
            plain = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise SerializationError(f"invalid JSON: {error}") from error
        return plain if self._from_dict is None else self._from_dict(plain, ctx)


def _callable(name: str, function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    if function is not None and not callable(function):
        raise TypeError(f"{name} must be callable, not {type(function).__name__}")
    return function

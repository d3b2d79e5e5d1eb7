"""Serdes for text, 32-bit integers and doubles, byte for byte like Kafka's serializers of the same names."""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable
from typing import Any

from tidelog.serialization.context import SerializationContext
from tidelog.serialization.errors import SerializationError

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


class StringSerializer(Serializer):
    """Text in ``codec``, UTF-8 by default."""

    def __init__(self, codec: str = "utf_8") -> None:
        """Raise LookupError for a codec unknown to Python."""
        self.codec = _known(codec)

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


class StringDeserializer(Deserializer):
    """Text in ``codec``, UTF-8 by default."""

    def __init__(self, codec: str = "utf_8") -> None:
        """Raise LookupError for a codec unknown to Python."""
        self.codec = _known(codec)

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


def _known(codec: str) -> str:
    codecs.lookup(codec)
    return codec


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

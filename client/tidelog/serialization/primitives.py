"""Text, 32-bit integers and doubles, byte for byte as Kafka's serializers of the same names write them."""

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
    """The methods of a serde that most leave as they are."""

    def close(self) -> None:
        """Release what the serde holds: nothing, where a class does not say otherwise."""

    def set_cluster_id_resolver(self, resolver: Callable[[], Any]) -> None:
        """Take a function that returns the cluster's id, for a serde that needs it; does nothing by default."""


class Serializer(_Closable):
    """What makes bytes of an object: derive from it, or use any callable ``(obj, ctx) -> bytes | None``."""

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        """Return the bytes, None for None.

        Raises:
            SerializationError: the object cannot become bytes.
        """
        raise NotImplementedError


class Deserializer(_Closable):
    """What makes an object of bytes: derive from it, or use any callable ``(value, ctx) -> object``."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:
        """Return the object, None for None.

        Raises:
            SerializationError: the bytes are not what they should be.
        """
        raise NotImplementedError


class StringSerializer(Serializer):
    """Text in ``codec``, UTF-8 by default."""

    def __init__(self, codec: str = "utf_8") -> None:
        """Raise LookupError for a codec that Python does not know."""
        self.codec = _known(codec)

    def __call__(self, obj: str | None, ctx: SerializationContext | None = None) -> bytes | None:
        """Return the text's bytes; raises SerializationError for what is no text or not in the codec."""
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
        """Raise LookupError for a codec that Python does not know."""
        self.codec = _known(codec)

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> str | None:
        """Return the text; raises SerializationError for bytes that the codec does not have."""
        if value is None:
            return None
        try:
            return value.decode(self.codec)
        except UnicodeError as error:
            raise SerializationError(str(error)) from error


class IntegerSerializer(Serializer):
    """A number of 32 bits, big-endian with a sign."""

    def __call__(self, obj: int | None, ctx: SerializationContext | None = None) -> bytes | None:
        """Return 4 bytes; raises SerializationError for what is no int or does not fit."""
        return _packed(_INT32, obj)


class IntegerDeserializer(Deserializer):
    """A number of 32 bits, big-endian with a sign."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> int | None:
        """Return the number; raises SerializationError for other than 4 bytes."""
        number: int | None = _unpacked(_INT32, value)
        return number


class DoubleSerializer(Serializer):
    """A number as IEEE 754 binary64, big-endian."""

    def __call__(self, obj: float | None, ctx: SerializationContext | None = None) -> bytes | None:
        """Return 8 bytes; raises SerializationError for what is no number."""
        return _packed(_FLOAT64, obj)


class DoubleDeserializer(Deserializer):
    """A number as IEEE 754 binary64, big-endian."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> float | None:
        """Return the number; raises SerializationError for other than 8 bytes."""
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

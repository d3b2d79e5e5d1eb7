"""JSON as UTF-8 without a schema, as ``json.dumps`` writes it without blanks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tidelog.serialization.context import SerializationContext
from tidelog.serialization.errors import SerializationError
from tidelog.serialization.primitives import Deserializer, Serializer

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

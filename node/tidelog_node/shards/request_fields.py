"""An estimate of the memory that a request takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any

_OBJECT_BYTES = 64
_NUMBERS = ("int", "int | None", "bool")


def request_bytes(request: object) -> int:
    """Return the estimated size of a request in memory."""
    size = _OBJECT_BYTES
    for _, values in columns([request]):
        size += _OBJECT_BYTES * len(values)
        if isinstance(values[0], str | bytes):
            size += sum(map(len, values))
    return size


def columns(messages: Sequence[Any]) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield each field that is no number, at any depth, with its values in all messages. They have the same type."""
    kind: type = type(messages[0])
    for name, get, is_repeated in _fields_of(kind):
        values: Sequence[Any] = [value for value in map(get, messages) if value]
        if is_repeated and values:
            values = values[0] if len(values) == 1 else [*chain.from_iterable(values)]
            if is_dataclass(values[0]):
                yield from columns(values)
        if values:
            yield name, values


@cache
def _fields_of(kind: type) -> list[tuple[str, Callable[[Any], Any], bool]]:
    texts = [field for field in fields(kind) if field.type not in _NUMBERS]
    return [(field.name, attrgetter(field.name), str(field.type).startswith("tuple")) for field in texts]

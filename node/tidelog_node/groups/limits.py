"""The sizes of requests: their memory, and the limits on names, which the formats of Kafka's records set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_node.groups.events import GroupRequest, RequestReceived
from tidelog_node.groups.wire import MAX_STRING_BYTES

MAX_NAME_BYTES = MAX_STRING_BYTES - 100
"""The limit for client and instance ids. Member ids begin with them and are longer."""
_INSTANCE_ID = "group_instance_id"
_OBJECT_BYTES = 64
_NUMBERS = ("int", "int | None", "bool")


def check_names(call: RequestReceived) -> None:
    """Refuse a call if one of its strings does not fit into a record.

    Raises:
        TidelogError: INVALID_REQUEST
    """
    _check("client.id", [call.client.client_id], MAX_NAME_BYTES)
    for name, values in _columns([call.request]):
        if isinstance(values[0], str):
            _check(name, values, MAX_NAME_BYTES if name == _INSTANCE_ID else MAX_STRING_BYTES)


def request_bytes(request: GroupRequest) -> int:
    """Return about how much memory a request takes."""
    size = _OBJECT_BYTES
    for _, values in _columns([request]):
        size += _OBJECT_BYTES * len(values)
        if isinstance(values[0], str | bytes):
            size += sum(map(len, values))
    return size


def _check(name: str, texts: Sequence[str], limit: int) -> None:
    # A character has at most four bytes.
    if max(map(len, texts)) > limit // 4:
        size = max(len(text.encode()) for text in texts)
        if size > limit:
            raise error_for(ErrorCode.INVALID_REQUEST, f"{name} has {size} bytes, at most {limit} are possible")


def _columns(messages: Sequence[Any]) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield the fields at all depths, except numbers, with their values in all messages, which are of one type."""
    kind: type = type(messages[0])
    for name, get, is_repeated in _fields_of(kind):
        values: Sequence[Any] = [value for value in map(get, messages) if value]
        if is_repeated and values:
            values = values[0] if len(values) == 1 else [*chain.from_iterable(values)]
            if is_dataclass(values[0]):
                yield from _columns(values)
        if values:
            yield name, values


@cache
def _fields_of(kind: type) -> list[tuple[str, Callable[[Any], Any], bool]]:
    texts = [field for field in fields(kind) if field.type not in _NUMBERS]
    return [(field.name, attrgetter(field.name), str(field.type).startswith("tuple")) for field in texts]

"""Limits on the length of names in a request, set by the formats of Kafka's records."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_node.groups.events import RequestReceived
from tidelog_node.groups.wire import MAX_STRING_BYTES

MAX_NAME_BYTES = MAX_STRING_BYTES - 100
"""The limit for client and instance ids. Member ids begin with them and are longer."""
_INSTANCE_ID = "group_instance_id"


def check_names(call: RequestReceived) -> None:
    """Refuse a call if one of its strings does not fit into a record.

    Raises:
        TidelogError: INVALID_REQUEST
    """
    _check("client.id", call.client.client_id, MAX_NAME_BYTES)
    # Hardly any request is this long. In a shorter one every string fits.
    if call.request.ByteSize() > MAX_NAME_BYTES:
        for name, text in _texts(call.request):
            _check(name, text, MAX_NAME_BYTES if name == _INSTANCE_ID else MAX_STRING_BYTES)


def _check(name: str, text: str, limit: int) -> None:
    size = len(text.encode())
    if size > limit:
        raise error_for(ErrorCode.INVALID_REQUEST, f"{name} has {size} bytes, at most {limit} are possible")


def _texts(message: Message) -> Iterator[tuple[str, str]]:
    for field, value in message.ListFields():
        values = value if field.is_repeated else (value,)
        if field.type == FieldDescriptor.TYPE_STRING:
            yield from ((field.name, text) for text in values)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in values:
                yield from _texts(inner)

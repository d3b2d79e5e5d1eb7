"""The limits on the names in requests, which the formats of Kafka's records set."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_node.groups.events import GroupCall
from tidelog_node.shards.request_fields import columns
from tidelog_node.shards.wire import MAX_STRING_BYTES

MAX_NAME_BYTES = MAX_STRING_BYTES - 100
"""The limit for client and instance ids. Member ids begin with them and are longer."""
_INSTANCE_ID = "group_instance_id"


def check_names(call: GroupCall) -> None:
    """Refuse a call if one of its strings does not fit into a record.

    Raises:
        TidelogError: INVALID_REQUEST
    """
    _check("client.id", [call.client.client_id], MAX_NAME_BYTES)
    for name, values in columns([call.request]):
        if isinstance(values[0], str):
            _check(name, values, MAX_NAME_BYTES if name == _INSTANCE_ID else MAX_STRING_BYTES)


def _check(name: str, texts: Sequence[str], limit: int) -> None:
    # A character has at most four bytes.
    if max(map(len, texts)) > limit // 4:
        size = max(len(text.encode()) for text in texts)
        if size > limit:
            raise error_for(ErrorCode.INVALID_REQUEST, f"{name} has {size} bytes, at most {limit} are possible")

"""Responses with an error in every item, made from a refused request or written over an answer."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import Message

from tidelog.v1 import common_pb2
from tidelog_foundation.errors import TidelogError

_ITEMS: Final = ("topics", "resources", "groups", "coordinators", "log_dirs")
"""Fields of a response whose items may each have an error."""
_NAMED: Final = {
    "topic_names": "name",
    "topic_ids": "topic_id",
    "group_ids": "group_id",
    "transactional_ids": "transactional_id",
}
"""Fields of a request that name items by a scalar, and the matching field of the item."""
_ERRORS_OF_SESSIONS: Final = ("FetchResponse",)
"""Responses whose own error is that of the fetch session. Their partitions have separate errors."""


def has_errors(kind: Any) -> bool:
    """Return True if a response of this kind has a field for errors."""
    return _has_own_error(kind) or any(_item_takes_error(kind.fields_by_name.get(name)) for name in _ITEMS)


def refuse(request: Message, response: Any, error: TidelogError) -> None:
    """Fill an empty ``response`` with ``error`` for every item of ``request``."""
    said = _message(error)
    if _has_own_error(response.DESCRIPTOR):
        _copy_fields(request, response)
        response.error.CopyFrom(said)
        return
    for name in _ITEMS:
        if name in response.DESCRIPTOR.fields_by_name:
            _refuse_items(request, getattr(response, name), name, said)


def overwrite(response: Any, error: TidelogError) -> None:
    """Put an error into every item of an answer, in place of its content."""
    said = _message(error)
    if _has_own_error(response.DESCRIPTOR):
        response.error.CopyFrom(said)
        return
    for name in _ITEMS:
        if name in response.DESCRIPTOR.fields_by_name:
            for item in getattr(response, name):
                _overwrite_item(item, said)


def _has_own_error(kind: Any) -> bool:
    return "error" in kind.fields_by_name and kind.name not in _ERRORS_OF_SESSIONS


def _item_takes_error(items: Any) -> bool:
    if items is None or items.message_type is None:
        return False
    fields = items.message_type.fields_by_name
    inner = fields["topic"].message_type if "topic" in fields else None
    return bool(
        "error" in fields
        or _item_takes_error(fields.get("partitions"))
        or (inner is not None and "error" in inner.fields_by_name)
    )


def _refuse_items(request: Message, results: Any, name: str, said: common_pb2.Error) -> None:
    for field, value in request.ListFields():
        if field.name == name:
            for item in value:
                _refuse_item(item, results.add(), said)
        elif field.name == "log_dirs":
            for topic in (topic for directory in value for topic in directory.topics):
                _refuse_item(topic, results.add(), said)
        elif field.name in _NAMED:
            for item in value:
                setattr(results.add(), _NAMED[field.name], item)
                results[-1].error.CopyFrom(said)


def _refuse_item(item: Any, result: Any, said: common_pb2.Error) -> None:
    _copy_fields(item, result)
    if "partitions" not in result.DESCRIPTOR.fields_by_name:
        result.error.CopyFrom(said)
        return
    for partition in item.partitions:
        if isinstance(partition, int):
            result.partitions.add(index=partition, error=said)
        else:
            result.partitions.add(index=partition.index, error=said)


def _copy_fields(source: Any, target: Any) -> None:
    """Copy the fields that identify an item: the singular fields that both messages have."""
    for field in target.DESCRIPTOR.fields:
        other = source.DESCRIPTOR.fields_by_name.get(field.name)
        if other is None or other.type != field.type or isinstance(getattr(target, field.name), Message):
            continue
        if hasattr(getattr(target, field.name), "append"):
            continue
        setattr(target, field.name, getattr(source, field.name))
    if "resource" in target.DESCRIPTOR.fields_by_name:
        target.resource.CopyFrom(source.resource)


def _overwrite_item(item: Any, said: common_pb2.Error) -> None:
    fields = item.DESCRIPTOR.fields_by_name
    if "error" in fields:
        _clear_all_but(item, "name", "index", "group_id", "topic_id", "resource", "path")
        item.error.CopyFrom(said)
    elif "topic" in fields:
        _overwrite_item(item.topic, said)
    else:
        for partition in item.partitions:
            _overwrite_item(partition, said)


def _clear_all_but(item: Message, *names: str) -> None:
    for field, _ in item.ListFields():
        if field.name not in names:
            item.ClearField(field.name)


def _message(error: TidelogError) -> common_pb2.Error:
    return common_pb2.Error(code=error.code.code, message=error.message)

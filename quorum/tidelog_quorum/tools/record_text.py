"""Metadata records as text: plain values for JSON, and one line each."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.message import Message

from tidelog.v1 import metadata_record_pb2 as pb
from tidelog_foundation.ids import uuid_text

_UUID_SIZE = 16
_TYPE = "type"


def record_values(record: pb.MetadataRecord) -> dict[str, Any]:
    """Return a record's type and all its fields, including those with default values; ids are in Kafka's text form."""
    kind = record.WhichOneof("record")
    if kind is None:
        return {_TYPE: "unknown"}
    message: Message = getattr(record, kind)
    # "TopicRecord" is the topic's record; Kafka's dumps say TOPIC_RECORD.
    return {_TYPE: f"{kind.upper()}_RECORD", **_values(message)}


def record_line(values: dict[str, Any]) -> str:
    """Return ``TYPE field=value ...``."""
    fields = " ".join(f"{name}={_text(value)}" for name, value in values.items() if name != _TYPE)
    return f"{values[_TYPE]} {fields}".rstrip()


def _values(message: Message) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.is_repeated:
            shown[field.name] = [_value(field, item) for item in value]
        elif not field.has_presence or message.HasField(field.name):
            shown[field.name] = _value(field, value)
    return shown


def _value(field: Any, value: Any) -> Any:
    if isinstance(value, Message):
        return _values(value)
    if isinstance(value, bytes):
        return uuid_text(value) if len(value) == _UUID_SIZE else value.hex()
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(_text(v) for v in value)}]"
    if isinstance(value, dict):
        return f"({' '.join(f'{k}={_text(v)}' for k, v in value.items())})"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and (not value or any(c.isspace() or not c.isprintable() or c in '"()[]' for c in value)):
        return json.dumps(value)
    return str(value)

"""Strategies for the requests and responses of a codec, and their comparison."""

from __future__ import annotations

import dataclasses
import types
import typing
from enum import IntEnum
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from hypothesis import strategies as st

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.transport.message_codec import MessageCodec

_ERRORS = st.builds(error_for, st.sampled_from(list(ErrorCode)), st.text(min_size=1, max_size=8))
_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_ENUM: (0, 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def values_of(codec: MessageCodec[Any, Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a codec."""
    return _values(codec.value_type, codec.message_type.DESCRIPTOR)


def comparable(value: Any) -> Any:
    """Return the value with its types and with codes and texts for errors, which are equal only to themselves."""
    if isinstance(value, TidelogError):
        return value.code, value.message
    if isinstance(value, tuple):
        return tuple(map(comparable, value))
    if dataclasses.is_dataclass(value):
        return type(value), *(comparable(getattr(value, field.name)) for field in dataclasses.fields(value))
    return type(value), value


def code_of(error: TidelogError | None) -> ErrorCode:
    """Return the code of an item's error, NONE on success."""
    return ErrorCode.NONE if error is None else error.code


def assert_travels(codec: MessageCodec[Any, Any], value: Any) -> None:
    """Assert that a value survives its message, at once and in steps."""
    message = codec.to_message(value)
    assert comparable(codec.from_message(message)) == comparable(value)
    assert finished(codec.to_message_in_steps(value)) == message
    assert comparable(finished(codec.from_message_in_steps(message))) == comparable(value)


def finished(steps: Any) -> Any:
    """Return the result of a generator."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def _values(value_type: Any, kind: Any) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(value_type)
    sent = {f.name for f in dataclasses.fields(value_type)} & set(kind.fields_by_name)
    return st.builds(value_type, **{name: _field(hints[name], kind.fields_by_name[name]) for name in sent})


def _field(hint: Any, field: Any) -> st.SearchStrategy[Any]:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return st.none() | _field(next(kind for kind in typing.get_args(hint) if kind is not type(None)), field)
    if typing.get_origin(hint) is tuple:
        field = field if field.is_repeated else field.message_type.fields[0]
        return st.lists(_element(typing.get_args(hint)[0], field), max_size=3).map(tuple)
    return _element(hint, field)


def _element(hint: Any, field: Any) -> st.SearchStrategy[Any]:
    kind = getattr(hint, "__supertype__", hint)
    if kind is TidelogError:
        return _ERRORS
    if field.message_type is not None:
        return _values(kind, field.message_type)
    if issubclass(kind, IntEnum):
        return st.sampled_from(list(kind))
    if kind is int:
        return st.integers(*_RANGES[field.cpp_type])
    return {
        str: st.text(max_size=4),
        bytes: st.binary(max_size=4),
        bool: st.booleans(),
        float: st.floats(allow_nan=False),
    }[kind]

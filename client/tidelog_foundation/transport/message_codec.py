"""Conversion between dataclasses, which the code speaks, and protobuf messages, which gRPC carries.

A codec is derived from a dataclass and the descriptor of its message, whose fields have the same names:

| field of the message | type in the dataclass |
|---|---|
| number, bool, string, bytes | ``int``, ``float``, ``bool``, ``str``, ``bytes``, or a NewType of them |
| enum | ``int``, or an IntEnum with the same names and numbers, 0 optional; other numbers of a peer stay an ``int`` |
| ``optional`` | ``T | None`` |
| message | a dataclass; with ``| None``, None means that it is absent, without it an absent message has the defaults |
| message of one repeated field | also ``tuple[T, ...] | None`` |
| ``Error`` | ``TidelogError | None`` |
| repeated | ``tuple[T, ...]`` |

A dataclass field with the metadata :data:`NOT_IN_MESSAGE` has a default and is not sent.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Generator, Iterable
from enum import IntEnum
from functools import cache, cached_property
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError, error_for

V = TypeVar("V")
M = TypeVar("M", bound=Message)
T = TypeVar("T")
_Steps: TypeAlias = Generator[None, None, T]
_Arguments: TypeAlias = dict[str, Any]
"""The arguments of a message's constructor."""

NOT_IN_MESSAGE: Final[dict[str, bool]] = {"is_in_message": False}
"""Metadata of a dataclass field without a counterpart in the message."""
_ERROR: Final = "tidelog.v1.Error"
_SCALARS: Final[dict[int, type]] = {
    FieldDescriptor.CPPTYPE_INT32: int,
    FieldDescriptor.CPPTYPE_INT64: int,
    FieldDescriptor.CPPTYPE_UINT32: int,
    FieldDescriptor.CPPTYPE_UINT64: int,
    FieldDescriptor.CPPTYPE_DOUBLE: float,
    FieldDescriptor.CPPTYPE_FLOAT: float,
    FieldDescriptor.CPPTYPE_BOOL: bool,
    FieldDescriptor.CPPTYPE_ENUM: int,
}


class MessageCodec(Generic[V, M]):
    """A codec of one dataclass and one message type. It is derived, and generates its functions, when it is first used.

    The first use raises the TypeError of :meth:`check` if the two differ.

    The ``in_steps`` functions return generators that yield after each element of a repeated message field, at any
    depth; a step takes microseconds.
    """

    def __init__(self, value_type: type[V], message_type: type[M]) -> None:
        self.value_type = value_type
        self.message_type = message_type

    @cached_property
    def _layout(self) -> _Layout:
        return _layout_of(cast(Any, self.value_type), cast(Descriptor, self.message_type.DESCRIPTOR))

    def check(self) -> None:
        """Derive the codec now.

        Raises:
            TypeError: the dataclass and the message differ; the text names the field.
        """
        _ = self._layout

    def from_message(self, message: M) -> V:
        """Return the value of a message."""
        value: V = self._layout.read(message)
        return value

    def to_message(self, value: V) -> M:
        """Return the message of a value.

        Raises:
            ValueError: a number is out of the range of its field.
        """
        return self.message_type(**self._layout.write(value))

    def from_message_in_steps(self, message: M) -> _Steps[V]:
        """Return the value of a message, in steps."""
        if not self._layout.is_long:
            return self.from_message(message)
        value: V = yield from self._layout.read_in_steps(message)
        return value

    def to_message_in_steps(self, value: V) -> _Steps[M]:
        """Return the message of a value, in steps.

        Raises:
            ValueError: a number is out of the range of its field.
        """
        if not self._layout.is_long:
            return self.to_message(value)
        message = self.message_type(**self._layout.write_short(value))
        yield from self._layout.write_long(message, value)
        return message


_Element: TypeAlias = "_Layout | _Members | _Errors"


class _Layout:
    """A dataclass and its message, with the functions generated from their fields."""

    def __init__(self, value_type: type, fields: list[_Field]) -> None:
        self._value_type = value_type
        self._fields = fields
        self.is_long = any(field.is_long for field in fields)
        """True if the number of elements has no limit, so that reading and writing take steps."""

    @cached_property
    def read(self) -> Callable[[Any], Any]:
        """Return the value of a message."""
        arguments = ", ".join(f"{field.name}={field.reading}" for field in self._fields)
        return self._generated("read", f"def read(message): return value_type({arguments})")

    @cached_property
    def read_in_steps(self) -> Callable[[Any], _Steps[Any]]:
        """Return the value of a long message, in steps."""
        arguments = ", ".join(f"{field.name}={field.reading_in_steps}" for field in self._fields)
        return self._generated("read_in_steps", f"def read_in_steps(message): return value_type({arguments})")

    @cached_property
    def write(self) -> Callable[[Any], _Arguments]:
        """Return the arguments for the message of a value."""
        items = ", ".join(f"{field.name!r}: {field.writing}" for field in self._fields)
        return self._generated("write", f"def write(value): return {{{items}}}")

    @cached_property
    def write_short(self) -> Callable[[Any], _Arguments]:
        """Return the arguments for a long message without the elements that :attr:`write_long` adds."""
        items = ", ".join(f"{field.name!r}: {field.writing_short}" for field in self._fields)
        return self._generated("write_short", f"def write_short(value): return {{{items}}}")

    @cached_property
    def write_long(self) -> Callable[[Message, Any], _Steps[None]]:
        """Add the elements of repeated message fields to a long message, in steps."""
        lines = "\n".join(f" {field.adding_in_steps}" for field in self._fields if field.is_long)
        return self._generated("write_long", f"def write_long(message, value):\n{lines}")

    def _generated(self, name: str, source: str) -> Callable[..., Any]:
        names: dict[str, Any] = {f"element_{field.name}": field.element for field in self._fields}
        names |= {"value_type": self._value_type, "read_each": _read_each, "add_each": _add_each}
        # As the dataclasses module does; the source consists of field names and the texts below.
        exec(source, names)
        return cast("Callable[..., Any]", names[name])


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of both sides, as expressions over ``message`` and ``value``."""

    name: str
    is_optional: bool
    is_repeated: bool
    wrapped: str | None
    """The repeated field of the message that the dataclass has as a tuple."""
    element: _Element | None
    """The conversion of the value, or of each element, unless it is the same on both sides."""

    @property
    def is_long(self) -> bool:
        """True if the field contains any number of messages."""
        return isinstance(self.element, _Layout) and (self.is_repeated or self.element.is_long)

    @property
    def reading(self) -> str:
        """The value."""
        if self.element is None:
            return self._if_present(f"tuple({self._source})" if self.is_repeated else self._source)
        read = f"element_{self.name}.read"
        return self._if_present(
            f"tuple(map({read}, {self._source}))" if self.is_repeated else f"{read}({self._source})"
        )

    @property
    def reading_in_steps(self) -> str:
        """The value, in steps if it is long."""
        if not self.is_long:
            return self.reading
        steps = "read_each({1}, element_{0})" if self.is_repeated else "element_{0}.read_in_steps({1})"
        return self._if_present(f"(yield from {steps.format(self.name, self._source)})")

    @property
    def writing(self) -> str:
        """The argument of the message's constructor."""
        value, write = f"value.{self.name}", f"element_{self.name}.write"
        if self.element is None or isinstance(self.element, _Members):
            return self._if_set(value)
        return self._if_set(f"[*map({write}, {value})]" if self.is_repeated else f"{write}({value})")

    @property
    def writing_short(self) -> str:
        """The argument of the message's constructor without the elements of a long field."""
        if not self.is_long:
            return self.writing
        return self._if_set("()" if self.is_repeated else f"element_{self.name}.write_short(value.{self.name})")

    @property
    def adding_in_steps(self) -> str:
        """The statement that adds the elements of a long field."""
        value = f"value.{self.name}"
        steps = "add_each({1}, {2}, element_{0})" if self.is_repeated else "element_{0}.write_long({1}, {2})"
        return f"if {value} is not None: yield from {steps.format(self.name, self._source, value)}"

    @property
    def _source(self) -> str:
        return f"message.{self.name}" + (f".{self.wrapped}" if self.wrapped else "")

    def _if_present(self, expression: str) -> str:
        return f"{expression} if message.HasField({self.name!r}) else None" if self.is_optional else expression

    def _if_set(self, expression: str) -> str:
        if self.wrapped:
            expression = f"{{{self.wrapped!r}: {expression}}}"
        return f"None if value.{self.name} is None else {expression}" if self.is_optional else expression


class _Members:
    """The members of an IntEnum. Messages take them as they are."""

    def __init__(self, kind: type[IntEnum]) -> None:
        self._members = {member.value: member for member in kind}

    def read(self, number: int) -> int:
        """Return the member of a number, or an unknown number as it is."""
        return self._members.get(number, number)


class _Errors:
    """The conversion of errors."""

    @staticmethod
    def read(message: Any) -> TidelogError:
        """Return the error of a message."""
        return error_for(message.code, message.message)

    @staticmethod
    def write(error: TidelogError) -> _Arguments:
        """Return the arguments for the message of an error."""
        return {"code": error.code.code, "message": error.message}


def _read_each(messages: Iterable[Any], layout: _Layout) -> _Steps[tuple[Any, ...]]:
    values = []
    for message in messages:
        values.append((yield from layout.read_in_steps(message)) if layout.is_long else layout.read(message))
        yield
    return tuple(values)


def _add_each(messages: Any, values: Iterable[Any], layout: _Layout) -> _Steps[None]:
    for value in values:
        if layout.is_long:
            yield from layout.write_long(messages.add(**layout.write_short(value)), value)
        else:
            messages.add(**layout.write(value))
        yield


@cache
def _layout_of(value_type: type[Any], kind: Descriptor) -> _Layout:
    if not dataclasses.is_dataclass(value_type):
        raise TypeError(f"{kind.full_name} needs a dataclass, not {value_type.__qualname__}")
    ours = {f.name: f for f in dataclasses.fields(value_type) if f.metadata.get("is_in_message", True)}
    hints = typing.get_type_hints(value_type)
    if differing := ours.keys() ^ set(kind.fields_by_name):
        names = ", ".join(sorted(differing))
        raise TypeError(f"{value_type.__qualname__} and {kind.full_name} do not both have {names}")
    fields = []
    for name in ours:
        try:
            fields.append(_field_of(kind.fields_by_name[name], hints[name]))
        except TypeError as error:
            raise TypeError(f"{value_type.__qualname__}.{name}: {error}") from error
    return _Layout(value_type, fields)


def _field_of(field: FieldDescriptor, hint: Any) -> _Field:
    """Return a field.

    Raises:
        TypeError: the types differ.
    """
    hint, is_optional = _without_none(hint)
    is_tuple = typing.get_origin(hint) is tuple
    wrapped = _only_field(field) if is_tuple and not field.is_repeated else None
    source = wrapped or field
    if source.is_repeated != is_tuple:
        raise TypeError(f"{hint} is not the type of a {'repeated' if field.is_repeated else 'single'} field")
    may_lack = field.has_presence
    must_lack = may_lack and (
        wrapped is not None or field.message_type is None or field.message_type.full_name == _ERROR
    )
    if (is_optional and not may_lack) or (must_lack and not is_optional):
        raise TypeError(f"None is {'not ' if is_optional else ''}a value of {field.full_name}")
    element = _element_of(source, typing.get_args(hint)[0] if is_tuple else hint)
    return _Field(field.name, is_optional, is_tuple, wrapped.name if wrapped else None, element)


def _without_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) not in (types.UnionType, typing.Union):
        return hint, False
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    if len(kinds) != 1 or len(typing.get_args(hint)) != 2:
        raise TypeError(f"{hint} is neither a type nor a type or None")
    return kinds[0], True


def _only_field(field: FieldDescriptor) -> FieldDescriptor | None:
    fields = field.message_type.fields if field.message_type is not None else ()
    return fields[0] if len(fields) == 1 and fields[0].is_repeated else None


def _element_of(field: FieldDescriptor, hint: Any) -> _Element | None:
    kind = getattr(hint, "__supertype__", hint)
    if field.message_type is not None:
        if field.message_type.full_name != _ERROR:
            return _layout_of(kind, field.message_type)
        expected: type = TidelogError
    elif field.enum_type is not None and kind is not int:
        return _members_of(kind, field.enum_type)
    elif field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        expected = bytes if field.type == FieldDescriptor.TYPE_BYTES else str
    else:
        expected = _SCALARS[field.cpp_type]
    if kind is not expected:
        raise TypeError(f"{hint} is not {expected.__name__}, the type of {field.full_name}")
    return _Errors() if kind is TidelogError else None


def _members_of(kind: Any, enum: EnumDescriptor) -> _Members:
    if not (isinstance(kind, type) and issubclass(kind, IntEnum)):
        raise TypeError(f"{kind} is not an IntEnum, the type of {enum.full_name}")
    ours = {member.value: f"_{member.name}" for member in kind}
    names = {value.number: value.name for value in enum.values}
    if names.keys() - {0} != ours.keys() - {0} or not all(names[n].endswith(name) for n, name in ours.items()):
        raise TypeError(f"{kind.__qualname__} and {enum.full_name} differ")
    return _Members(kind)

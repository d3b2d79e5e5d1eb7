"""The declaration of messages: dataclasses whose fields state their type and versions.

A request's class names its API, its versions and the first flexible one (KIP-482); a response's class its request::

    class DeleteTopicState(Structure):
        name: str | None = string(nullable=6)
        topic_id: bytes = uuid(since=6)

    class DeleteTopicsRequest(Message, api=ApiKey.DELETE_TOPICS, versions=(1, 6), flexible=4):
        topics: list[DeleteTopicState] = array(DeleteTopicState, since=6)
        topic_names: list[str] = array(STRING, until=5)
        timeout_ms: int = int32()

    class DeleteTopicsResponse(Message, answers=DeleteTopicsRequest):
        throttle_time_ms: int = int32()
        responses: list[DeletableTopicResult] = array(DeletableTopicResult)

A field that a version does not have keeps its default when the message is read and is omitted when it is written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, ClassVar, Final, dataclass_transform

from tidelog_foundation.dataclass import dataclass

LAST_VERSION: Final = 32_767
_METADATA_KEY: Final = "kafka"


class Kind(Enum):
    """A primitive type of the protocol."""

    BOOLEAN = auto()
    INT8 = auto()
    INT16 = auto()
    UINT16 = auto()
    INT32 = auto()
    INT64 = auto()
    FLOAT64 = auto()
    UUID = auto()
    STRING = auto()
    BYTES = auto()


STRING: Final = Kind.STRING
INT32: Final = Kind.INT32
INT64: Final = Kind.INT64
UUID: Final = Kind.UUID
BYTES: Final = Kind.BYTES


@dataclass_transform()
class _Declaration(type):
    """The type of declarations. It makes them dataclasses with slots."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        declared = super().__new__(cls, name, bases, namespace, **options)
        # To add slots, ``dataclass`` creates the class again, with ``__slots__`` in its namespace.
        return declared if "__slots__" in namespace else dataclass(slots=True)(declared)


class Structure(metaclass=_Declaration):
    """A dataclass whose fields are declared with the functions below."""


class Message(Structure):
    """The body of a request or response. A response has the API and the versions of the request that it answers."""

    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[tuple[int, int]]
    """The first and last version that the class describes."""
    FLEXIBLE: ClassVar[int]
    """The first flexible version, or LAST_VERSION if there is none."""

    def __init_subclass__(
        cls,
        *,
        api: int | None = None,
        versions: tuple[int, int] = (0, 0),
        flexible: int = 0,
        answers: type[Message] | None = None,
    ) -> None:
        if answers is not None:
            cls.API_KEY, cls.VERSIONS, cls.FLEXIBLE = answers.API_KEY, answers.VERSIONS, answers.FLEXIBLE
        elif api is not None:
            cls.API_KEY, cls.VERSIONS, cls.FLEXIBLE = api, versions, flexible


@dataclass(frozen=True, slots=True)
class Spec:
    """A field. ``nullable`` is the first version in which it may be null, ``tag`` its number as a tagged field."""

    kind: Kind | type[Structure]
    is_array: bool = False
    since: int = 0
    until: int = LAST_VERSION
    nullable: int | None = None
    tag: int | None = None
    tagged: int = 0
    """The first version in which a field with a tag is tagged.

    In earlier versions, from ``since`` on, it is a regular field.
    """


def spec_of(field: dataclasses.Field[Any]) -> Spec:
    """Return the declaration of a field."""
    spec: Spec = field.metadata[_METADATA_KEY]
    return spec


def _declaration(kind: Kind, default: object) -> Callable[..., Any]:
    """Return a function that declares a field of a kind.

    It takes ``default``, ``is_secret``, which leaves the value out of the message's repr, and the options of
    :class:`Spec`.
    """

    def declare(*, default: object = default, is_secret: bool = False, **options: Any) -> Any:
        return dataclasses.field(default=default, repr=not is_secret, metadata={_METADATA_KEY: Spec(kind, **options)})

    return declare


boolean = _declaration(Kind.BOOLEAN, False)
int8 = _declaration(Kind.INT8, 0)
int16 = _declaration(Kind.INT16, 0)
uint16 = _declaration(Kind.UINT16, 0)
int32 = _declaration(Kind.INT32, 0)
int64 = _declaration(Kind.INT64, 0)
float64 = _declaration(Kind.FLOAT64, 0.0)
uuid = _declaration(Kind.UUID, bytes(16))
string = _declaration(Kind.STRING, "")
data = _declaration(Kind.BYTES, b"")
"""Bytes or records, read as a memoryview."""


def structure(kind: type[Structure], **options: Any) -> Any:
    """Declare a struct field. It is nullable, in flexible versions, from version ``nullable`` on."""
    factory: Any = (lambda: None) if options.get("nullable") is not None else kind
    return dataclasses.field(default_factory=factory, metadata={_METADATA_KEY: Spec(kind, **options)})


def array(kind: Kind | type[Structure], *, default_null: bool = False, **options: Any) -> Any:
    """Declare a list of primitives or structs, nullable from version ``nullable`` on."""
    factory: Any = (lambda: None) if default_null else list
    spec = Spec(kind, is_array=True, **options)
    return dataclasses.field(default_factory=factory, metadata={_METADATA_KEY: spec})

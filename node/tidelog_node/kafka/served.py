"""What the listener and the APIs have between them: a request as it came, what answers it, and who may call whom."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from tidelog_node.coordination import GroupCoordinator
from tidelog_node.groups.events import ClientIdentity
from tidelog_node.handlers import NodeContext
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.codec import decode, decode_in_steps, encode_in_steps
from tidelog_node.kafka.protocol.fields import Message
from tidelog_node.kafka.protocol.reader import Reader
from tidelog_node.kafka.protocol.writer import Buffer, Writer
from tidelog_node.partitions.time_slices import TimeSlices

Body: TypeAlias = Sequence[Buffer]
"""A response without its header, in chunks; large ones by reference."""
Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)
_SHORT_BYTES: Final = 4_096
"""Takes a few milliseconds to decode at most, whatever it holds."""


class CloseConnection(Exception):
    """An API asks for the connection to be closed without an answer; the text says why.

    Kafka does so where a client has asked for no answer and must hear of an error all the same.
    """


@dataclass(frozen=True, slots=True)
class Caller:
    """Whom a request came from, and by which door. ``listener`` is the listener's name, such as PLAINTEXT."""

    listener: str
    client: ClientIdentity
    version: int


@dataclass(frozen=True, slots=True)
class KafkaNode:
    """What an API may use of its node. One per node."""

    context: NodeContext
    groups: GroupCoordinator


class Request(NamedTuple):
    """One request: its header's fields, and a reader at its body. The frame stays in memory until it is answered."""

    caller: Caller
    correlation_id: int
    reader: Reader


class Api(Protocol):
    """One API. ``begin`` is called in the order of a connection's requests.

    While one of an API with ``overlaps`` is under way, the connection's next one begins if it is of such an API too;
    all others begin when everything before them has been answered, as with Kafka.
    """

    @property
    def key(self) -> ApiKey:
        """Its number."""
        ...

    @property
    def versions(self) -> tuple[int, int]:
        """The first and the last that are served."""
        ...

    @property
    def flexible(self) -> int:
        """The first version with flexible headers."""
        ...

    @property
    def overlaps(self) -> bool:
        """True if the next request may begin before this one is answered."""
        ...

    def begin(self, node: KafkaNode, request: Request) -> Body | Awaitable[Body | None] | None:
        """Do what must be done in order, and return the response, None for none, or what will return it.

        Both this call and what it returns may raise:
            MalformedMessageError: the bytes are no such request: the connection is closed.
            CloseConnection: the connection is closed.
        """
        ...


@dataclass(frozen=True, slots=True)
class MessageApi(Generic[Q, R]):
    """An API whose messages are declared: ``handle`` is given the request and returns the response."""

    overlaps: ClassVar[bool] = False

    request: type[Q]
    handle: Callable[[KafkaNode, Q, Caller], Awaitable[R]]

    @property
    def key(self) -> ApiKey:
        """Its number."""
        return ApiKey(self.request.API_KEY)

    @property
    def versions(self) -> tuple[int, int]:
        """The first and the last that are served."""
        return self.request.VERSIONS

    @property
    def flexible(self) -> int:
        """The first version with flexible headers."""
        return self.request.FLEXIBLE

    def begin(self, node: KafkaNode, request: Request) -> Awaitable[Body]:
        """Decode all, so that a malformed request does nothing, and then handle; what is long in time slices."""
        caller = request.caller
        if request.reader.remaining > _SHORT_BYTES:
            return self._answer_long(node, request.reader, caller)
        return self._answer(node, decode(self.request, request.reader, caller.version), caller)

    async def _answer_long(self, node: KafkaNode, reader: Reader, caller: Caller) -> Body:
        message = await TimeSlices().result_of(decode_in_steps(self.request, reader, caller.version))
        return await self._answer(node, message, caller)

    async def _answer(self, node: KafkaNode, message: Q, caller: Caller) -> Body:
        response = await self.handle(node, message, caller)
        writer = Writer()
        await TimeSlices().result_of(encode_in_steps(response, writer, caller.version))
        return writer.chunks()

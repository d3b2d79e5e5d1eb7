"""The interface between the listener and the APIs: requests, answers, callers and the API protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from tidelog_foundation.authorization import Access
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.requests.acls import AclOperation
from tidelog_foundation.security import ANONYMOUS, Principal
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.coordination import GroupCoordinator
from tidelog_node.handlers import NodeContext
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.codec import decode, decode_in_steps, encode_in_steps
from tidelog_node.kafka.protocol.fields import Message
from tidelog_node.kafka.protocol.reader import Reader
from tidelog_node.kafka.protocol.writer import Buffer, Writer
from tidelog_node.quotas.usage import RequestUsage
from tidelog_node.shards.connections import UNORDERED
from tidelog_node.shards.events import ClientIdentity
from tidelog_node.telemetry.client_telemetry import ClientSoftware

Body: TypeAlias = Sequence[Buffer]
"""A response without its header, in chunks; large ones by reference."""
Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)
_FIRST_OF_NODES: Final = 4
"""The first version of AddPartitionsToTxn with which partition leaders ask coordinators (KIP-890)."""
SHORT_BYTES: Final = 4_096
"""A request up to this size takes at most a few milliseconds to decode."""


class CloseConnection(Exception):
    """A request to close the connection without an answer, with the reason.

    Kafka does this when a client expects no answer but must learn of an error.
    """


@dataclass(frozen=True, slots=True)
class Caller:
    """The origin of a request. ``listener`` is the listener's name, such as PLAINTEXT."""

    listener: str
    client: ClientIdentity
    version: int
    principal: Principal = ANONYMOUS
    connection_us: int = UNORDERED
    """The time at which the connection was opened, on the monotonic clock."""
    has_token: bool = False
    """True if the client was authenticated by a delegation token."""
    software: ClientSoftware = field(default_factory=ClientSoftware, compare=False, repr=False)
    """The client's software, which ApiVersions names."""
    accesses: dict[str, tuple[object, Access]] = field(default_factory=dict, compare=False, repr=False)
    """The decisions of the guard by API, with the ACLs that they are based on."""

    @property
    def host(self) -> str:
        """The client's address."""
        return self.client.host.removeprefix("/")


class Guard(Protocol):
    """Applies the rule of an API to a request before its handler."""

    def answer(self, key: ApiKey, request: Q, caller: Caller, handle: Callable[[Q], Awaitable[R]]) -> Awaitable[R]:
        """Return the response of ``handle`` to the allowed part of a request, with the denials."""

    def access(self, api: str, caller: Caller) -> Access:
        """Return the decisions about requests of an API, under the current ACLs."""


@dataclass(frozen=True, slots=True)
class KafkaNode:
    """The parts of the node that an API may use. One per node."""

    context: NodeContext
    groups: GroupCoordinator
    guard: Guard | None = None
    """Authorizes requests; None for a node without an authorizer."""


class Request(NamedTuple):
    """One request: its header's fields and a reader of its body. The frame stays in memory until the answer.

    ``usage`` counts what it uses of its client's quotas; None if no client has any, or for a request of another node.
    """

    caller: Caller
    correlation_id: int
    reader: Reader
    usage: RequestUsage | None = None


def is_of_nodes(node: KafkaNode, key: ApiKey, caller: Caller) -> bool:
    """Return whether quotas do not apply to a request, because only nodes send it and the caller may act for one.

    Fetches name their replica instead.
    """
    is_markers = key == ApiKey.WRITE_TXN_MARKERS
    if not is_markers and (key != ApiKey.ADD_PARTITIONS_TO_TXN or caller.version < _FIRST_OF_NODES):
        return False
    if node.guard is None:
        return True
    access = node.guard.access(key.name, caller)
    return access.on_cluster(AclOperation.CLUSTER_ACTION, log=False) or (
        is_markers and access.on_cluster(AclOperation.ALTER, log=False)
    )


class Api(Protocol):
    """One API. ``begin`` is called in the order of a connection's requests.

    While a request of an API with ``overlaps`` is in progress, the connection's next request begins if its API overlaps
    too. All others begin when everything before them is answered, as in Kafka.
    """

    @property
    def key(self) -> ApiKey:
        """Its API key."""

    @property
    def versions(self) -> tuple[int, int]:
        """The first and last supported version."""

    @property
    def flexible(self) -> int:
        """The first version with flexible headers."""

    @property
    def overlaps(self) -> bool:
        """True if the next request may begin before this one is answered."""

    def begin(self, node: KafkaNode, request: Request) -> Body | Awaitable[Body | None] | None:
        """Do the work that must be done in order, and return the response, an awaitable of it, or None for no response.

        Raises:
            MalformedMessageError: The bytes are not such a request, and the connection is closed. The awaitable may
                raise it too.
            CloseConnection: The connection is closed. The awaitable may raise it too.
        """


@dataclass(frozen=True, slots=True)
class MessageApi(Generic[Q, R]):
    """An API with declared messages. ``handle`` takes the request and returns the response."""

    overlaps: ClassVar[bool] = False

    request: type[Q]
    handle: Callable[[KafkaNode, Q, Caller], Awaitable[R]]

    @property
    def key(self) -> ApiKey:
        """Its API key."""
        return ApiKey(self.request.API_KEY)

    @property
    def versions(self) -> tuple[int, int]:
        """The first and last supported version."""
        return self.request.VERSIONS

    @property
    def flexible(self) -> int:
        """The first version with flexible headers."""
        return self.request.FLEXIBLE

    def begin(self, node: KafkaNode, request: Request) -> Awaitable[Body]:
        """Decode the whole request, so that a malformed one has no effect, then handle it.

        Long ones run in time slices.
        """
        if request.reader.remaining > SHORT_BYTES:
            return self._answer_long(node, request)
        return self._answer(node, decode(self.request, request.reader, request.caller.version), request)

    async def _answer_long(self, node: KafkaNode, request: Request) -> Body:
        steps = decode_in_steps(self.request, request.reader, request.caller.version)
        return await self._answer(node, await TimeSlices().result_of(steps), request)

    async def _answer(self, node: KafkaNode, message: Q, request: Request) -> Body:
        caller = request.caller
        if node.guard is None:
            response: Any = await self.handle(node, message, caller)
        else:
            handle = partial(_handle, self.handle, node, caller)
            response = await node.guard.answer(self.key, message, caller, handle)
        if request.usage is not None:
            _count(response, request.usage)
        writer = Writer()
        await TimeSlices().result_of(encode_in_steps(response, writer, caller.version))
        return writer.chunks()


def _count(response: Any, usage: RequestUsage) -> None:
    """Count a request, and name its delay in the response. Some responses have no field for it: the client is muted."""
    delay_ms = usage.answer(getattr(response, "throttle_time_ms", 0))
    if hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = delay_ms


def _handle(
    handle: Callable[[KafkaNode, Q, Caller], Awaitable[R]], node: KafkaNode, caller: Caller, request: Q
) -> Awaitable[R]:
    return handle(node, request, caller)

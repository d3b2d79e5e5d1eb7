"""A Kafka listener with toy APIs on loopback, a client that speaks in frames, and a record of their actions."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Protocol, cast

import uvloop

from tidelog_foundation.config.endpoints import NamedListener
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.transport.budget import ByteBudget
from tidelog_node.handlers.response_budget import ResponseBudget
from tidelog_node.kafka.apis.api_versions import ApiVersionsApi
from tidelog_node.kafka.apis.sasl import APIS as SASL_APIS
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.reader import MalformedMessageError
from tidelog_node.kafka.served import Api, Body, CloseConnection, KafkaNode, Request
from tidelog_node.kafka.server.handshakes import Handshakes
from tidelog_node.kafka.server.limits import ListenerLimits, RequestBudgets
from tidelog_node.kafka.server.listener import KafkaListeners
from tidelog_node.kafka.server.logins import ListenerSasl
from tidelog_node.kafka.server.tls import ListenerTls
from tidelog_node.quotas.client_quotas import ClientQuotas
from tidelog_quorum.metadata.image import MetadataImage

DEADLINE_S = 10.0


@dataclass
class Toy:
    """An API that obeys the request's body.

    ``echo``, ``wait`` (for :meth:`ToyListener.answer`), ``big N``, ``none``, ``principal``, an error.
    """

    key: ApiKey
    overlaps: bool
    begun: list[tuple[int, str]]
    waiting: dict[int, asyncio.Future[bytes]]
    versions: tuple[int, int] = (0, 12)
    flexible: int = 9

    def begin(self, node: KafkaNode, request: Request) -> Body | Awaitable[Body | None] | None:
        body = bytes(request.reader.view[request.reader.position :])
        word, _, rest = body.partition(b" ")
        self.begun.append((request.correlation_id, word.decode()))
        if word == b"wait":
            return self._wait(request.correlation_id)
        if word == b"big":
            return [bytes(int(rest))]
        if word == b"none":
            return None
        if word == b"principal":
            return [str(request.caller.principal).encode()]
        if word == b"token":
            return [str(request.caller.has_token).encode()]
        _raise(word)
        return [body]

    async def _wait(self, correlation_id: int) -> Body:
        future = self.waiting[correlation_id] = asyncio.get_running_loop().create_future()
        answer = await future
        _raise(answer)
        return [answer]


def _raise(word: bytes) -> None:
    if word == b"malformed":
        raise MalformedMessageError("made to be")
    if word == b"close":
        raise CloseConnection("asked for")
    if word == b"fail":
        raise error_for(ErrorCode.NOT_CONTROLLER, "nobody is")
    if word == b"bug":
        raise ZeroDivisionError("a bug")


class Closeable(Protocol):
    """A client's connection, which ends with the listener."""

    def close(self) -> None: ...


@dataclass
class ToyListener:
    """A running listener and its budgets."""

    listeners: KafkaListeners
    requests: ByteBudget
    responses: ResponseBudget
    begun: list[tuple[int, str]]
    waiting: dict[int, asyncio.Future[bytes]]
    clients: list[Closeable] = field(default_factory=list)

    @property
    def handshakes(self) -> Handshakes:
        """The connections whose SASL exchange is in progress."""
        found = self.listeners._exchanges
        assert found is not None
        return found

    async def connect(self, name: str = "PLAINTEXT", receive_buffer: int | None = None) -> Client:
        sock = socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.listeners.ports[name]))
        client = Client(sock)
        self.clients.append(client)
        return client

    async def answer(self, correlation_id: int, body: bytes = b"done") -> None:
        await until(lambda: correlation_id in self.waiting)
        self.waiting.pop(correlation_id).set_result(body)

    async def has_begun(self, *correlation_ids: int) -> None:
        await until(lambda: [number for number, _ in self.begun][-len(correlation_ids) :] == list(correlation_ids))

    async def is_at_rest(self) -> None:
        """Wait until no connection and no budgeted memory is left."""
        await until(lambda: self.listeners.connection_count == 0)
        await until(lambda: (self.requests.taken, self.responses.taken) == (0, 0))


class Client:
    """The client side of a connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        await asyncio.wait_for(self._loop.sock_sendall(self.sock, data), DEADLINE_S)

    async def receive(self) -> tuple[int, bytes]:
        """Return the next response's correlation id and its remaining bytes, including tagged fields."""
        [size] = struct.unpack(">i", await self._exactly(4))
        frame = await self._exactly(size)
        return int.from_bytes(frame[:4], "big", signed=True), frame[4:]

    async def is_closed(self) -> bool:
        """Wait until the other end closes, and return False if it sends data instead."""
        try:
            return await asyncio.wait_for(self._loop.sock_recv(self.sock, 1), DEADLINE_S) == b""
        except ConnectionError:
            return True

    async def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = await asyncio.wait_for(self._loop.sock_recv(self.sock, size - len(data)), DEADLINE_S)
            if not part:
                raise ConnectionError(f"closed after {len(data)} of {size} bytes")
            data += part
        return bytes(data)

    def close(self) -> None:
        self.sock.close()


def request(
    key: ApiKey, correlation_id: int, body: bytes = b"echo", *, version: int = 1, client_id: bytes | None = b"me"
) -> bytes:
    """Return the frame of a request."""
    head = struct.pack(">hhih", key, version, correlation_id, -1 if client_id is None else len(client_id))
    frame = head + (client_id or b"") + (b"\0" if version >= 9 else b"") + body
    return struct.pack(">i", len(frame)) + frame


@contextlib.asynccontextmanager
async def open_listener(
    limits: ListenerLimits | None = None,
    *,
    request_limit: int = 2**27,
    names: tuple[str, ...] = ("PLAINTEXT",),
    inter_broker: str | None = None,
    grace_s: float = 0.0,
    tls: Mapping[str, ListenerTls] | None = None,
    sasl: Mapping[str, ListenerSasl] | None = None,
) -> AsyncIterator[ToyListener]:
    """Serve three toy APIs: METADATA and FETCH take turns, PRODUCE overlaps. At the end all memory must be released."""
    begun: list[tuple[int, str]] = []
    waiting: dict[int, asyncio.Future[bytes]] = {}
    toys: list[Api] = [
        Toy(ApiKey.METADATA, False, begun, waiting),
        Toy(ApiKey.FETCH, False, begun, waiting),
        Toy(ApiKey.PRODUCE, True, begun, waiting),
    ]
    apis = {api.key: api for api in (*toys, *SASL_APIS)}
    apis[ApiKey.API_VERSIONS] = ApiVersionsApi(lambda: apis)
    responses, budget = ResponseBudget(2**30), ByteBudget(request_limit)
    metadata = SimpleNamespace(image=MetadataImage(offset=7))
    context = SimpleNamespace(response_budget=responses, metadata=metadata, quotas=ClientQuotas(lambda: 0, lambda: 0))
    node = cast(KafkaNode, SimpleNamespace(context=context, guard=None))
    addresses = [NamedListener(name, "127.0.0.1", 0) for name in names]
    with KafkaListeners.bind(addresses, limits or ListenerLimits(), inter_broker, tls or {}) as listeners:
        await listeners.serve(node, apis, RequestBudgets(budget, request_limit), sasl or {})
        listener = ToyListener(listeners, budget, responses, begun, waiting)
        try:
            yield listener
        finally:
            for client in listener.clients:
                client.close()
            await listeners.stop(grace_s)
    await listener.is_at_rest()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + DEADLINE_S
    while not condition():
        assert loop.time() < deadline, "it did not come true in time"
        await asyncio.sleep(0.001)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test on uvloop, the loop of nodes."""
    uvloop.run(main())

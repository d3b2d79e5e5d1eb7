"""gRPC services as tables: one line per method, with its handler and the dataclasses of its messages.

This module receives a request through the server's :class:`Intake`, converts it, calls the handler and converts the
response. It converts long messages in time slices. It ends a failed call with the status of its error, and logs an
unexpected error once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import urllib.parse
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeAlias, TypeVar, get_type_hints

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.logs.request_id import REQUEST_ID_KEY, begin_request
from tidelog_foundation.measured_steps import MeasuredSteps
from tidelog_foundation.sasl.logins import Login, Logins
from tidelog_foundation.sasl.sessions import Session
from tidelog_foundation.security import ANONYMOUS, Principal
from tidelog_foundation.time_slices import TimeSlices
from tidelog_foundation.transport.call_times import CallTimer, CallTimes
from tidelog_foundation.transport.elements import UNCOUNTED_BYTES
from tidelog_foundation.transport.intake import Charge, Intake
from tidelog_foundation.transport.message_codec import MessageCodec
from tidelog_foundation.transport.status import SessionEndedError, abort_with
from tidelog_foundation.unexpected import report_unexpected

if TYPE_CHECKING:
    from tidelog_foundation.authorization import Access

logger = logging.getLogger(__name__)
Q = TypeVar("Q")
R = TypeVar("R")
RpcContext: TypeAlias = grpc.aio.ServicerContext[Any, Any]
Read: TypeAlias = Callable[[], Awaitable[Any]]
"""Returns the bytes of the next request of a stream, or EOF."""
Identify: TypeAlias = Callable[[RpcContext], Principal | Session]
"""Returns the principal of a call, or its session on a listener with SASL, or raises TidelogError."""
ErrorDetails: TypeAlias = Callable[[TidelogError], Iterable[tuple[str, str]]]
"""Returns the trailing metadata that a server sends with an error, in addition to its code."""
_OF_NODE_KEY = "tidelog-of-node"
OF_NODE = ((_OF_NODE_KEY, "1"),)
"""The metadata of a node's calls for itself, or for a client whose quotas the request names."""
_USER_AGENT = "user-agent"
_MAX_OPEN_CALLS = 64
"""The most open calls of callers that need not log in."""


def anyone(_: RpcContext) -> Principal:
    """Return the principal of a call to a listener that does not authenticate."""
    return ANONYMOUS


class CallName:
    """A call as the log names it, valid until the call ends."""

    __slots__ = ("_rpc",)

    def __init__(self, rpc: RpcContext) -> None:
        self._rpc = rpc

    def origin(self) -> str:
        """Return the address of the client's host."""
        return host_of(self._rpc.peer())

    def request_id(self) -> str:
        """Return the id that the client has given to the call, empty for none."""
        return _metadata(self._rpc, REQUEST_ID_KEY)


class Caller:
    """The origin of a call, valid until the call ends."""

    __slots__ = ("_rpc", "access", "principal", "session", "usage")

    def __init__(self, rpc: RpcContext, identity: Principal | Session = ANONYMOUS) -> None:
        self._rpc = rpc
        self.session = identity if isinstance(identity, Session) else None
        """The caller's session, None on a listener without SASL."""
        self.principal = identity.principal if isinstance(identity, Session) else identity
        """The identity of the caller."""
        self.access: tuple[object, Access] | None = None
        """The decisions of the guard, with the ACLs that they are based on."""
        self.usage: object = None
        """The record of the server's gate about the call."""

    @property
    def has_token(self) -> bool:
        """True if the caller has logged in with a delegation token."""
        return self.session is not None and self.session.is_token

    @property
    def connection(self) -> str:
        """gRPC's name of the connection, such as ipv4:10.0.0.1:5000."""
        peer: str = self._rpc.peer()
        return peer

    @property
    def host(self) -> str:
        """The address of the caller's host."""
        return host_of(self.connection)

    @property
    def name(self) -> CallName:
        """The call as the log names it."""
        return CallName(self._rpc)

    @property
    def client_id(self) -> str:
        """The first word of the user agent."""
        return self.metadata(_USER_AGENT).partition(" ")[0]

    @property
    def claims_to_be_node(self) -> bool:
        """True if the call has the metadata of a node's. It proves nothing."""
        return bool(self.metadata(_OF_NODE_KEY))

    def metadata(self, name: str) -> str:
        """Return a value of the call's metadata, empty if it has none."""
        return _metadata(self._rpc, name)

    def binary_metadata(self, name: str) -> bytes | None:
        """Return a value of the call's metadata, whose name ends with -bin, or None if it has none."""
        value = next((value for key, value in self._rpc.invocation_metadata() or () if key == name), None)
        return value if isinstance(value, bytes) else None

    def send_metadata(self, name: str, value: str) -> None:
        """Send a value with the response, as trailing metadata."""
        self._rpc.set_trailing_metadata((*(self._rpc.trailing_metadata() or ()), (name, value)))

    @contextlib.contextmanager
    def streaming(self) -> Iterator[None]:
        """Keep the session alive while a stream is open."""
        if self.session is not None:
            self.session.streams += 1
        try:
            yield
        finally:
            if self.session is not None:
                self.session.streams -= 1

    def check_session(self) -> None:
        """Raise if the session has ended since the call began.

        Raises:
            SessionEndedError: A call or a stream's message needs another login (KIP-368).
        """
        if self.session is not None and not self.session.is_valid(time.monotonic() * 1000):
            raise SessionEndedError("the session has ended")

    def when_sent(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the response has been sent or the call has failed."""
        self._rpc.add_done_callback(lambda _: callback())  # type: ignore[arg-type]  # the stub wants a class


class Guard(Protocol):
    """Authorizes calls. It is asked before the handler of each."""

    def answer(self, method: str, request: Q, caller: Caller, handle: Callable[[Q], Awaitable[R]]) -> Awaitable[R]:
        """Return the response of ``handle`` to the allowed part of a request, with the denials.

        Raises:
            TidelogError: The request is denied as a whole.
        """

    def admit(self, method: str, caller: Caller) -> None:
        """Return if the caller may open a stream.

        Raises:
            TidelogError: The stream is denied.
        """


class Gate(Protocol):
    """A server's control over calls with one response."""

    @property
    def is_active(self) -> bool:
        """True if calls must pass the gate."""

    async def run(self, method: str, caller: Caller, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Run a call, which reads its request, when it may begin, and return the response."""


@dataclass(frozen=True, slots=True)
class Call(Generic[Q, R]):
    """A method with one request and one response, of the given dataclasses.

    The request costs ``charge``, by default the server's. A method that converts its messages itself declares the types
    of messages, or ``bytes`` for a serialized response.
    """

    handle: Callable[[Q, Caller], Awaitable[R]]
    request: type[Q]
    response: type[R]
    charge: Charge | None = None


@dataclass(frozen=True, slots=True)
class ResponseStream(Generic[Q, R]):
    """A method with one request and a stream of responses, of the given dataclasses or types of messages."""

    handle: Callable[[Q, Caller], AsyncGenerator[R, None]]
    request: type[Q]
    response: type[R]


@dataclass(frozen=True, slots=True)
class RequestStream:
    """A method with streams of requests and responses. ``handle`` reads the bytes of the requests itself."""

    handle: Callable[[Read, Caller], AsyncGenerator[Message, None]]


@dataclass(frozen=True, slots=True)
class MetadataCall(Generic[R]):
    """A method whose request is in its metadata. The message is not received, so that it needs no memory."""

    handle: Callable[[Caller], Awaitable[R]]
    response: type[R]


Method: TypeAlias = Call[Any, Any] | MetadataCall[Any] | ResponseStream[Any, Any] | RequestStream
_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class Service:
    """A service of a server. ``methods`` is its table, with exactly the methods of ``descriptor``."""

    def __init__(
        self, descriptor: ServiceDescriptor, methods: Mapping[str, Method], error_details: ErrorDetails = lambda _: ()
    ) -> None:
        """Take the table. The codec of a method is derived at its first call.

        Raises:
            TypeError: The table differs from the service.
        """
        different = {method.name for method in descriptor.methods}.symmetric_difference(methods)
        if different:
            raise TypeError(f"the table and {descriptor.full_name} differ in {', '.join(sorted(different))}")
        self._descriptor = descriptor
        self._methods = [
            (method, methods[method.name], _Codecs(method, methods[method.name])) for method in descriptor.methods
        ]
        self._error_details = error_details

    def check(self) -> None:
        """Derive all codecs now.

        Raises:
            TypeError: A dataclass differs from the message of a method.
        """
        for _, _, codecs in self._methods:
            codecs.check()

    def add_to(
        self,
        server: grpc.aio.Server,
        intake: Intake | None = None,
        identify: Identify = anyone,
        guard: Guard | None = None,
        gate: Gate | None = None,
        times: CallTimes | None = None,
    ) -> None:
        """Serve the calls of ``server``. ``intake`` receives all requests except those of request streams.

        Without a guard, everybody may do everything. ``times`` counts the calls.
        """
        times = times or CallTimes()
        handlers = {
            m.name: self._handler_of(m, e, c, intake, identify, guard, gate, times) for m, e, c in self._methods
        }
        _register(server, self._descriptor, handlers)

    def _handler_of(
        self,
        method: MethodDescriptor,
        entry: Method,
        codecs: _Codecs,
        intake: Intake | None,
        identify: Identify,
        guard: Guard | None,
        gate: Gate | None,
        times: CallTimes,
    ) -> _Handler:
        async def answer(_: object, rpc: RpcContext) -> Any:
            assert isinstance(entry, Call | MetadataCall)
            timer, name = CallTimer(), CallName(rpc)
            begin_request(name)
            if times.traces is not None:
                timer.span = times.traces.begin(method.name, rpc.invocation_metadata() or ())
            times.open(method.name)
            try:
                caller = Caller(rpc, identify(rpc))
                if isinstance(entry, MetadataCall):
                    return await codecs.encode(await entry.handle(caller))
                assert intake is not None
                if guard is None:
                    handle = partial(_handle, entry, caller)
                else:
                    handle = partial(_handle_guarded, guard, method.name, entry, caller)
                if gate is not None and gate.is_active:
                    call = partial(_answer, entry, codecs, intake, rpc, handle, timer)
                    return await gate.run(method.name, caller, call)
                return await _answer(entry, codecs, intake, rpc, handle, timer)
            except Exception as error:  # noqa: BLE001  # _abort logs it
                await self._abort(method, rpc, error, times, timer)
            finally:
                times.close(method.name)
                times.end(method.name, timer, name)

        async def answer_all(_: object, rpc: RpcContext) -> AsyncIterator[Any]:
            assert not isinstance(entry, Call | MetadataCall)
            begin_request(CallName(rpc))
            times.open(method.name)
            try:
                caller = Caller(rpc, identify(rpc))
                if guard is not None:
                    guard.admit(method.name, caller)
                admit = None if guard is None else partial(guard.admit, method.name, caller)
                async with contextlib.aclosing(_answers(entry, codecs, intake, rpc, caller, admit)) as responses:
                    async for response in responses:
                        yield response
            except Exception as error:  # noqa: BLE001  # _abort logs it
                await self._abort(method, rpc, error, times)
            finally:
                times.close(method.name)

        if method.server_streaming:
            return grpc.stream_stream_rpc_method_handler(answer_all, None, _serialize)
        return grpc.stream_unary_rpc_method_handler(answer, None, _serialize)

    async def _abort(
        self,
        method: MethodDescriptor,
        rpc: RpcContext,
        error: Exception,
        times: CallTimes,
        timer: CallTimer | None = None,
    ) -> NoReturn:
        cause = error
        while isinstance(cause, ExceptionGroup):
            cause = cause.exceptions[0]
        if not isinstance(cause, TidelogError):
            cause = report_unexpected(logger, error, "%s failed with an unexpected error", method.full_name)
        times.fail(method.name, cause.code, timer)
        # The traceback refers to frames with the request.
        await abort_with(rpc, cause.detached(), self._error_details(cause))


def add_servicer(
    server: grpc.aio.Server, intake: Intake | None, descriptor: ServiceDescriptor, servicer: object
) -> None:
    """Serve the methods of a library's servicer, coroutines that take one request; ``intake`` receives it.

    Without an intake no request is received, and the methods get an empty one. Their callers need not log in, so few
    calls may be open. If there are too many, the host with the most of them loses its oldest one.
    """
    calls = Logins(_MAX_OPEN_CALLS)

    def handler_of(method: MethodDescriptor) -> _Handler:
        kind, serve = GetMessageClass(method.input_type), getattr(servicer, method.name)

        async def answer(_: object, rpc: RpcContext) -> Any:
            refusal = error_for(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{_MAX_OPEN_CALLS} calls of {method.name} are open"
            )
            try:
                async with asyncio.timeout(None) as limit:
                    call = Login(host_of(rpc.peer()), partial(limit.reschedule, 0))
                    if not calls.begin(call):
                        raise refusal
                    try:
                        return await take(rpc)
                    finally:
                        calls.end(call)
            except TimeoutError:
                await abort_with(rpc, refusal)
            except TidelogError as error:
                await abort_with(rpc, error)

        async def take(rpc: RpcContext) -> Any:
            if intake is None:
                return await serve(kind(), rpc)
            message, size = await intake.receive(kind, rpc, intake.charge)
            try:
                return await serve(message, rpc)
            finally:
                intake.charge.give_back(size)

        if method.server_streaming:
            return grpc.stream_stream_rpc_method_handler(answer, None, _serialize)
        return grpc.stream_unary_rpc_method_handler(answer, None, _serialize)

    _register(server, descriptor, {method.name: handler_of(method) for method in descriptor.methods})


def types_of(handler: Callable[..., Awaitable[R]]) -> tuple[type[Any], type[R]]:
    """Return the types of a handler's argument ``request`` and of its response, from its annotations."""
    return _types_of(getattr(handler, "__func__", handler))


@lru_cache(maxsize=512)
def _types_of(function: Callable[..., Awaitable[R]]) -> tuple[type[Any], type[R]]:
    # All servers of a process have the same handlers, and each annotation is text that is compiled.
    hints = get_type_hints(function)
    return hints["request"], hints["return"]


def _register(server: grpc.aio.Server, descriptor: ServiceDescriptor, handlers: dict[str, _Handler]) -> None:
    """Register the handlers of a service's methods."""
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(descriptor.full_name, handlers),))
    server.add_registered_method_handlers(descriptor.full_name, handlers)


def _metadata(rpc: RpcContext, name: str) -> str:
    value = next((value for key, value in rpc.invocation_metadata() or () if key == name), "")
    return value if isinstance(value, str) else value.decode(errors="replace")


def host_of(peer: str) -> str:
    """Return the address in gRPC's peer name, such as ipv4:10.0.0.1:5000 and ipv6:%5B::1%5D:5000."""
    address = urllib.parse.unquote(peer.partition(":")[2])
    return address.rpartition(":")[0].strip("[]") or address


class _Codecs:
    """The request's message type of a method, and the conversions between its messages and dataclasses."""

    def __init__(self, method: MethodDescriptor, entry: Method) -> None:
        kind = (isinstance(entry, RequestStream), not isinstance(entry, Call | MetadataCall))
        if kind != (method.client_streaming, method.server_streaming):
            raise TypeError(f"{method.full_name} is not a {type(entry).__name__}")
        self.request_type: type[Message] = GetMessageClass(method.input_type)
        request = entry.request if isinstance(entry, Call | ResponseStream) else Message
        response = Message if isinstance(entry, RequestStream) else entry.response
        self._request = _codec(request, self.request_type)
        self._response = _codec(response, GetMessageClass(method.output_type))

    def check(self) -> None:
        """Derive both codecs now, or raise TypeError."""
        for codec in (self._request, self._response):
            if codec is not None:
                codec.check()

    async def decode(self, message: Any, size: int) -> Any:
        """Return the request of a message of ``size`` bytes; other tasks run while a long one is converted."""
        if self._request is None:
            return message
        if size <= UNCOUNTED_BYTES:
            return self._request.from_message(message)
        return await TimeSlices().result_of(self._request.from_message_in_steps(message))

    async def encode(self, response: Any) -> Any:
        """Return the message of a response; other tasks run while a long one is converted."""
        if self._response is None:
            return response
        return await TimeSlices().result_of(self._response.to_message_in_steps(response))


def _codec(value_type: type[Any], message_type: type[Message]) -> MessageCodec[Any, Message] | None:
    return None if issubclass(value_type, (Message, bytes)) else MessageCodec(value_type, message_type)


def _handle(call: Call[Q, R], caller: Caller, request: Q) -> Awaitable[R]:
    return call.handle(request, caller)


def _handle_guarded(guard: Guard, method: str, call: Call[Q, R], caller: Caller, request: Q) -> Awaitable[R]:
    return guard.answer(method, request, caller, partial(_handle, call, caller))


async def _answer(
    call: Call[Any, Any],
    codecs: _Codecs,
    intake: Intake,
    rpc: RpcContext,
    handle: Callable[[Any], Awaitable[Any]],
    timer: CallTimer,
) -> Any:
    charge = call.charge or intake.charge
    timer.admit()
    message, size = await intake.receive(codecs.request_type, rpc, charge)
    timer.receive()
    try:
        work = _work(codecs, message, size, handle)
        del message
        return await MeasuredSteps(work, timer)
    finally:
        charge.give_back(size)


async def _work(codecs: _Codecs, message: Any, size: int, handle: Callable[[Any], Awaitable[Any]]) -> Any:
    request = await codecs.decode(message, size)
    del message
    return await codecs.encode(await handle(request))


async def _answers(
    stream: ResponseStream[Any, Any] | RequestStream,
    codecs: _Codecs,
    intake: Intake | None,
    rpc: RpcContext,
    caller: Caller,
    admit: Callable[[], None] | None,
) -> AsyncGenerator[Any, None]:
    """Answer a stream. Its messages need the session and the permission as well, which may end before it does."""

    def check() -> None:
        caller.check_session()
        if admit is not None:
            admit()

    if isinstance(stream, RequestStream):
        read = rpc.read if caller.session is None and admit is None else partial(_read_checked, rpc.read, check)
        with caller.streaming():
            async with contextlib.aclosing(stream.handle(read, caller)) as messages:
                async for each in messages:
                    yield each
        return
    assert intake is not None
    message, size = await intake.receive(codecs.request_type, rpc, intake.charge)
    try:
        request = await codecs.decode(message, size)
        del message
        with caller.streaming():
            async with contextlib.aclosing(stream.handle(request, caller)) as responses:
                async for response in responses:
                    check()
                    yield await codecs.encode(response)
    finally:
        intake.charge.give_back(size)


async def _read_checked(read: Read, check: Callable[[], None]) -> Any:
    """Return the next request of a stream, unless ``check`` raises when it arrives, as Kafka checks each request."""
    raw = await read()
    check()
    return raw


def _serialize(response: Message | bytes) -> bytes:
    return response if isinstance(response, bytes) else response.SerializeToString()

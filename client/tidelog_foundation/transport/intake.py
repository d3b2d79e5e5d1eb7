"""Bounded reception of gRPC requests; they are parsed after their memory is reserved.

gRPC receives and parses a unary request before the service's code runs. This module serves each call as a stream of one
message instead, so that the service decides when to read, and gets bytes:

- A connection receives one unary request at a time, for at most ``RECEIVE_TIMEOUT_S``. For each other call, gRPC keeps
  no more in memory than its flow control allows.
- A request larger than ``SMALL_BYTES`` takes its bytes from a budget until it is answered. If too many requests wait
  for the budget, the call fails before parsing.
- A request with more than ``MAX_ELEMENTS`` elements fails before parsing.

``grpc.max_receive_message_length`` limits a single message, ``grpc.max_concurrent_streams`` the calls of a connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import grpc
import grpc.aio
from google.protobuf.descriptor import Descriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.transport.budget import ByteBudget
from tidelog_foundation.transport.elements import MAX_ELEMENTS, UNCOUNTED_BYTES, check_elements
from tidelog_foundation.transport.status import abort_with

SMALL_BYTES: Final = 64 * 1024
"""The size up to which requests need no budget."""
RECEIVE_TIMEOUT_S: Final = 30.0
MAX_CALLS: Final = 10_000
"""The most concurrent calls of a server; it rejects more."""

_Call: TypeAlias = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


@dataclass(frozen=True, slots=True)
class Charge:
    """The limits and costs of requests: their bytes plus ``extra_bytes`` of a budget, nothing for small ones."""

    budget: ByteBudget
    free_bytes: int = SMALL_BYTES
    extra_bytes: int = 0
    max_elements: int = MAX_ELEMENTS
    """The limit for one request."""

    def size_of(self, raw: bytes) -> int:
        """Return a request's cost."""
        return len(raw) + self.extra_bytes if len(raw) > self.free_bytes else 0


class Intake:
    """Receives a server's unary requests, on its event loop."""

    def __init__(self, charge: Charge) -> None:
        self._charge = charge
        self._turns: dict[str, list[asyncio.Future[None]]] = {}
        """The calls that wait for the receiving one, by connection."""

    def add_service(
        self,
        server: grpc.aio.Server,
        service: ServiceDescriptor,
        servicer: object,
        own: Mapping[str, Handler] | None = None,
    ) -> None:
        """Register the methods of ``servicer`` with ``server``; ``own`` maps methods to their own handlers."""
        handlers = {
            method.name: (own or {}).get(method.name) or self.handler_of(method, getattr(servicer, method.name))
            for method in service.methods
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))
        server.add_registered_method_handlers(service.full_name, handlers)

    def handler_of(
        self,
        method: MethodDescriptor,
        serve: Callable[[Any, _Call], Any],
        *,
        charge: Charge | None = None,
        is_serialized: bool = False,
    ) -> Handler:
        """Return the handler of a method with one request.

        Its requests cost ``charge``, by default the server's. ``is_serialized`` means that ``serve`` returns the
        response's bytes.
        """
        assert not method.client_streaming, f"{method.full_name} receives its requests itself"
        kind = GetMessageClass(method.input_type)
        charge = charge or self._charge
        serialize = None if is_serialized else GetMessageClass(method.output_type).SerializeToString

        async def answer(_: object, call: _Call) -> Any:
            request, size = await self._receive(kind, call, charge)
            try:
                return await serve(request, call)
            finally:
                charge.budget.give_back(size)

        async def answer_all(_: object, call: _Call) -> AsyncIterator[Any]:
            request, size = await self._receive(kind, call, charge)
            try:
                async with contextlib.aclosing(serve(request, call)) as responses:
                    async for response in responses:
                        yield response
            finally:
                charge.budget.give_back(size)

        if not method.server_streaming:
            return grpc.stream_unary_rpc_method_handler(answer, None, serialize)
        is_generator = inspect.isasyncgenfunction(serve)
        return grpc.stream_stream_rpc_method_handler(answer_all if is_generator else answer, None, serialize)

    async def _receive(self, kind: type[Message], call: _Call, charge: Charge) -> tuple[Any, int]:
        """Return a call's request and its cost, or end the call."""
        raw = await self._read(call)
        size = charge.size_of(raw)
        try:
            if size:
                await charge.budget.take(size)
        except TidelogError as error:
            del raw
            await abort_with(call, error)
        try:
            return await parse(kind, raw, charge.max_elements), size
        except TidelogError as error:
            charge.budget.give_back(size)
            await abort_with(call, error)
        except BaseException:
            charge.budget.give_back(size)
            raise

    async def _read(self, call: _Call) -> bytes:
        async with self._turn(call.peer()):
            try:
                async with asyncio.timeout(RECEIVE_TIMEOUT_S):
                    raw = await call.read()
            except TimeoutError:
                text = f"the request did not arrive within {RECEIVE_TIMEOUT_S:.0f} s"
                await abort_with(call, error_for(ErrorCode.REQUEST_TIMED_OUT, text))
        if not isinstance(raw, bytes):
            await abort_with(call, error_for(ErrorCode.INVALID_REQUEST, "the call has no request"))
        return raw

    @contextlib.asynccontextmanager
    async def _turn(self, connection: str) -> AsyncIterator[None]:
        waiting = self._turns.get(connection)
        if waiting is None:
            self._turns[connection] = []
        else:
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiting.append(place)
            try:
                await place
            except asyncio.CancelledError:
                if not place.cancelled():
                    self._pass_on(connection)
                elif place in waiting:
                    waiting.remove(place)
                raise
        try:
            yield
        finally:
            self._pass_on(connection)

    def _pass_on(self, connection: str) -> None:
        waiting = self._turns[connection]
        while waiting:
            place = waiting.pop(0)
            # A cancelled call may not have run since, and may still wait here.
            if not place.done():
                place.set_result(None)
                return
        del self._turns[connection]


async def parse(kind: type[Message], raw: bytes, max_elements: int = MAX_ELEMENTS) -> Any:
    """Return the message; other tasks run while the elements of a long one are counted.

    Raises:
        TidelogError: INVALID_REQUEST
    """
    if len(raw) > UNCOUNTED_BYTES:
        for _ in check_elements(raw, cast(Descriptor, kind.DESCRIPTOR), max_elements):
            await asyncio.sleep(0)
    try:
        return kind.FromString(raw)
    except DecodeError as error:
        text = f"{len(raw)} bytes are not a valid {kind.DESCRIPTOR.name}: {error}"
        raise error_for(ErrorCode.INVALID_REQUEST, text) from error

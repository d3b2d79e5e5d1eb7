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
from collections.abc import AsyncIterator
from typing import Any, Final, TypeAlias, cast

import grpc.aio
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.transport.budget import ByteBudget
from tidelog_foundation.transport.elements import MAX_ELEMENTS, UNCOUNTED_BYTES, check_elements

SMALL_BYTES: Final = 64 * 1024
"""The size up to which requests need no budget."""
RECEIVE_TIMEOUT_S: Final = 30.0
MAX_CALLS: Final = 10_000
"""The most concurrent calls of a server; it rejects more."""

_Call: TypeAlias = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True)
class Charge:
    """The limits and costs of requests: their bytes plus ``extra_bytes`` of a budget, nothing for small ones.

    Small are those of up to ``free_bytes``; -1 means none.
    """

    budget: ByteBudget
    free_bytes: int = SMALL_BYTES
    extra_bytes: int = 0
    max_elements: int = MAX_ELEMENTS
    """The limit for one request."""

    async def take(self, size: int) -> None:
        """Wait until the budget has room for a request of ``size`` bytes, and take it.

        Raises:
            TidelogError: THROTTLING_QUOTA_EXCEEDED: too many bytes wait already.
        """
        if size > self.free_bytes:
            await self.budget.take(size + self.extra_bytes)

    def give_back(self, size: int) -> None:
        """Return what a request of ``size`` bytes took."""
        if size > self.free_bytes:
            self.budget.give_back(size + self.extra_bytes)


class Intake:
    """Receives a server's unary requests, on its event loop. ``charge`` is for methods without their own."""

    def __init__(self, charge: Charge) -> None:
        self.charge = charge
        self._turns: dict[str, list[asyncio.Future[None]]] = {}
        """The calls that wait for the receiving one, by connection."""

    async def receive(self, kind: type[Message], call: _Call, charge: Charge) -> tuple[Any, int]:
        """Return a call's request and its size, which the caller passes to ``charge.give_back`` after the call.

        Raises:
            TidelogError: THROTTLING_QUOTA_EXCEEDED, INVALID_REQUEST or REQUEST_TIMED_OUT. Nothing is taken.
        """
        raw = await self._read(call)
        size = len(raw)
        await charge.take(size)
        try:
            return await parse(kind, raw, charge.max_elements), size
        except BaseException:
            charge.give_back(size)
            raise

    async def _read(self, call: _Call) -> bytes:
        async with self._turn(call.peer()):
            try:
                async with asyncio.timeout(RECEIVE_TIMEOUT_S):
                    raw = await call.read()
            except TimeoutError:
                text = f"the request did not arrive within {RECEIVE_TIMEOUT_S:.0f} s"
                raise error_for(ErrorCode.REQUEST_TIMED_OUT, text) from None
        if not isinstance(raw, bytes):
            raise error_for(ErrorCode.INVALID_REQUEST, "the call has no request")
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

"""The acceptance of connections at limited rates (KIP-612).

A listener over ``max.connection.creation.rate`` accepts nothing for a time: further connections wait in the kernel. A
connection of an address over its quota ``connection_creation_rate`` is held unread for a time and then closed, so that
its client does not try again at once.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, cast

from tidelog_foundation.logs.limit import LogLimit
from tidelog_node.kafka.server.connection_counts import CREATION_RATE, ConnectionCounts
from tidelog_node.quotas.client_quotas import ClientQuotas
from tidelog_node.quotas.connection_rates import ConnectionRates

_MAX_HELD: Final = 128
"""The most connections that are held until they are closed; others are closed at once."""
_MakeProtocol = Callable[[], asyncio.BaseProtocol]


class Acceptance:
    """The limits on new connections of a node's listeners."""

    def __init__(
        self,
        rates: ConnectionRates,
        quotas: ClientQuotas,
        log: LogLimit,
        counts: ConnectionCounts,
        protected: str | None = None,
    ) -> None:
        """The listener ``protected`` has only a limit of its own."""
        self._protected = protected
        self._rates = rates
        self._quotas = quotas
        self._log = log
        self._counts = counts
        self._held: set[asyncio.BaseTransport] = set()

    def accept(self, listener: str, make: _MakeProtocol, pause: Callable[[int], None]) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection, and pause the listener if there are too many."""
        is_protected = listener == self._protected
        delay_ms = self._rates.accept(listener, is_protected=is_protected)
        if delay_ms:
            # The listener must still exist when this connection is accepted.
            asyncio.get_running_loop().call_soon(pause, delay_ms)
        return _Admission(self, listener, make) if self._quotas.addresses and not is_protected else make()

    def admits(self, listener: str, transport: asyncio.Transport) -> bool:
        """Return whether a connection may begin; otherwise it is closed later."""
        peer = transport.get_extra_info("peername")
        limit = self._quotas.addresses.limit_of(peer[0]) if peer else None
        delay_ms = 0 if limit is None else self._rates.admit(peer[0], limit)
        if not delay_ms:
            return True
        text = "A connection from %s to listener %s is refused: the address exceeds connection_creation_rate %g"
        self._log.warning(text, peer[0], listener, limit)
        self._counts.refused[listener, CREATION_RATE] += 1
        if len(self._held) >= _MAX_HELD:
            transport.abort()
        else:
            transport.pause_reading()
            self._held.add(transport)
            asyncio.get_running_loop().call_later(delay_ms / 1000, self._close, transport)
        return False

    def close_held(self) -> None:
        """Close all connections that are held."""
        for transport in tuple(self._held):
            self._close(cast(asyncio.Transport, transport))

    def _close(self, transport: asyncio.Transport) -> None:
        if transport in self._held:
            self._held.discard(transport)
            transport.abort()


class _Admission(asyncio.Protocol):
    """The protocol of a connection until its address is admitted."""

    def __init__(self, acceptance: Acceptance, listener: str, make: _MakeProtocol) -> None:
        self._acceptance = acceptance
        self._listener = listener
        self._make = make

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand the connection over to its protocol, or hold it."""
        stream = cast(asyncio.Transport, transport)
        if self._acceptance.admits(self._listener, stream):
            protocol = self._make()
            stream.set_protocol(protocol)
            protocol.connection_made(transport)


class ListeningSocket:
    """A bound socket that accepts connections, with pauses in which they wait in the kernel."""

    def __init__(self, bound: socket.socket, backlog: int) -> None:
        self._bound = bound
        self._backlog = backlog
        self._make: _MakeProtocol | None = None
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._opening: asyncio.Task[None] | None = None
        self._is_closed = False

    async def serve(self, make: _MakeProtocol) -> None:
        """Accept connections with the protocols that ``make`` returns."""
        self._make = make
        await self._open()

    def pause(self, delay_ms: int) -> None:
        """Accept nothing for a time."""
        if self._server is not None:
            self._server.close()
            self._server = None
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._resume)

    def close(self) -> None:
        """Accept nothing any more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._close_if_over()
        self._bound.close()

    def _close_if_over(self) -> None:
        if self._is_closed and self._server is not None:
            self._server.close()
            self._server = None

    def _resume(self) -> None:
        self._timer = None
        self._opening = asyncio.get_running_loop().create_task(self._open(), name="kafka-listener")

    async def _open(self) -> None:
        if self._is_closed:
            return
        assert self._make is not None
        # A server closes its socket; the duplicate leaves the queue of connections open.
        server = await asyncio.get_running_loop().create_server(
            self._make, sock=self._bound.dup(), backlog=self._backlog
        )
        self._server = server
        self._close_if_over()

"""The Kafka listeners of a node, bound at startup to detect ports in use and served when the node is ready."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

from tidelog_foundation.config.endpoints import NamedListener, format_address
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.logs.limit import LogLimit
from tidelog_foundation.logs.slow_requests import NO_SLOW_REQUESTS, SlowRequests
from tidelog_foundation.metrics import Family
from tidelog_foundation.otel.request_traces import RequestTraces
from tidelog_foundation.sasl.login_counts import LoginCounts
from tidelog_foundation.security import ANONYMOUS, Principal
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.served import Api, KafkaNode
from tidelog_node.kafka.server.acceptance import Acceptance, ListeningSocket
from tidelog_node.kafka.server.authentication import Session
from tidelog_node.kafka.server.connection import Connection, Served
from tidelog_node.kafka.server.connections import Connections, max_handshakes
from tidelog_node.kafka.server.handshakes import Handshakes
from tidelog_node.kafka.server.limits import ListenerLimits, RequestBudgets
from tidelog_node.kafka.server.logins import ListenerSasl, Logins
from tidelog_node.kafka.server.request_times import RequestTimes
from tidelog_node.kafka.server.sasl import SaslConnection
from tidelog_node.kafka.server.session import ClientSession
from tidelog_node.kafka.server.short_way import short_way_of
from tidelog_node.kafka.server.tls import ListenerTls, TlsConnection
from tidelog_node.quotas.connection_rates import ConnectionRates

logger = logging.getLogger(__name__)
_BACKLOG: Final = 512
_SCRATCH_BYTES: Final = 64 * 1024
_Connect = Callable[..., asyncio.BufferedProtocol]
"""Makes the layer over TCP or TLS from the listener's name and the principal of the client's certificate."""


class KafkaListeners:
    """All Kafka listeners of a node, on its event loop. It is a context manager that releases the ports at its end."""

    def __init__(
        self,
        bound: Mapping[str, socket.socket],
        limits: ListenerLimits,
        inter_broker: str | None = None,
        tls: Mapping[str, ListenerTls] = MappingProxyType({}),
        shared: Sequence[tuple[str, socket.socket]] = (),
    ) -> None:
        self.sockets = bound
        """The bound sockets by listener name."""
        self._shared = shared
        self._limits = limits
        self._tls = tls
        self._inter_broker = inter_broker
        self._listening: list[ListeningSocket] = []
        self._acceptance: Acceptance | None = None
        self._rates: ConnectionRates | None = None
        self._connections: Connections | None = None
        self._handshakes: Handshakes | None = None
        """The connections whose TLS handshake is in progress."""
        self._exchanges: Handshakes | None = None
        """The connections whose SASL exchange is in progress."""
        self._logins: Logins | None = None
        self._times: RequestTimes | None = None
        self._watch: asyncio.Task[None] | None = None

    @classmethod
    def bind(
        cls,
        listeners: Iterable[NamedListener],
        limits: ListenerLimits,
        inter_broker: str | None = None,
        tls: Mapping[str, ListenerTls] = MappingProxyType({}),
        shared: Iterable[NamedListener] = (),
    ) -> KafkaListeners:
        """Bind the listeners' ports. Clients are answered only after :meth:`serve`. ``inter_broker`` is a listener's
        name; ``tls`` are the names of those with TLS; ``shared`` are further addresses of the listeners, which other
        processes may have too.

        Raises:
            ConfigError: A port is in use, or a host is not an address of this machine. The message names it.
        """
        bound: dict[str, socket.socket] = {}
        with contextlib.ExitStack() as taken:  # closes the sockets bound before one that cannot be
            for listener in listeners:
                bound[listener.name] = taken.enter_context(_bind(listener, limits))
            also = [(each.name, taken.enter_context(_bind(each, limits, is_shared=True))) for each in shared]
            # From here on, the listeners close them.
            taken.pop_all()
        return cls(bound, limits, inter_broker, tls, also)

    def __enter__(self) -> KafkaListeners:
        return self

    def __exit__(self, *_: object) -> None:
        for _name, bound in self._all():
            bound.close()

    def _all(self) -> list[tuple[str, socket.socket]]:
        return [*self.sockets.items(), *self._shared]

    @property
    def ports(self) -> dict[str, int]:
        """The port of each listener by name. If the configured port is 0, the system chooses one."""
        return {name: bound.getsockname()[1] for name, bound in self.sockets.items()}

    @property
    def connection_count(self) -> int:
        """The number of connections."""
        return len(self._connections) if self._connections is not None else 0

    @property
    def login_counts(self) -> LoginCounts:
        """The authentications of all listeners with SASL."""
        assert self._logins is not None, "the listeners do not serve yet"
        return self._logins.counts

    def families(self) -> Iterable[Family]:
        """Return the metrics of connections and logins, once the listeners serve."""
        if self._connections is None:
            return
        layers = {"tls": self._handshakes, "sasl": self._exchanges}
        handshakes = {name: len(each) for name, each in layers.items() if each is not None}
        yield from self._connections.counts.families(handshakes)
        if self._logins is not None:
            yield from self._logins.counts.families()
        if self._times is not None:
            yield from self._times.families()

    async def serve(
        self,
        node: KafkaNode,
        apis: Mapping[ApiKey, Api],
        requests: RequestBudgets,
        sasl: Mapping[str, ListenerSasl] = MappingProxyType({}),
        rates: ConnectionRates | None = None,
        slow: SlowRequests = NO_SLOW_REQUESTS,
        traces: RequestTraces | None = None,
    ) -> None:
        """Accept and serve connections. Call this once. ``sasl`` has the listeners with SASL, by name.

        ``rates`` counts the connections of the node's other listeners too. ``slow`` logs slow requests, and
        ``traces`` makes spans of all.

        Raises:
            ConfigError: Another process has begun to listen on a port since :meth:`bind`.
        """
        loop = asyncio.get_running_loop()
        log, failures = LogLimit(logger, loop.time), LogLimit(logger, loop.time)
        protected = self._inter_broker if len(self.sockets) > 1 else None
        self._connections = Connections(self._limits, log, protected)
        quotas = node.context.quotas
        self._rates = rates or ConnectionRates(quotas.now_ms, quotas.windows)
        self._rates.change_limits(self._limits.max_creation_rate, _own_rates(self._limits))
        self._acceptance = Acceptance(self._rates, quotas, log, self._connections.counts, protected)
        scratch = bytearray(_SCRATCH_BYTES)
        by_number = {int(key): api for key, api in apis.items()}
        self._times = RequestTimes(by_number, slow, traces)
        responses = node.context.response_budget
        short_way = short_way_of(by_number)
        served = Served(
            by_number, node, requests, responses, self._limits, scratch, log, failures, self._times, short_way
        )
        self._watch = loop.create_task(self._connections.watch(), name="kafka-connections")
        self._handshakes = Handshakes(max_handshakes(), self._limits.handshake_s, self._connections, log)
        self._exchanges = Handshakes(self._limits.max_logins, self._limits.handshake_s, self._connections, log)
        self._logins = Logins(served)
        received = bytearray(_SCRATCH_BYTES)
        for name, bound in self._all():
            _listen(bound)
            tls = self._tls.get(name)
            limits = replace(self._limits, max_idle_s=self._limits.idle_s(name))
            of_listener = replace(served, limits=limits)
            connect: _Connect = partial(Connection, of_listener, self._connections)
            if name in sasl:
                connect = partial(
                    _authenticating, sasl[name], of_listener, self._connections, self._logins, self._exchanges
                )
            make: Callable[[], asyncio.BaseProtocol] = partial(connect, name)
            if tls is not None:
                make = partial(TlsConnection, tls, name, self._handshakes, received, connect)
            listening = ListeningSocket(bound, _BACKLOG)
            self._listening.append(listening)
            make = partial(self._acceptance.accept, name, make, listening.pause)
            await listening.serve(make)

    def change_limits(self, limits: ListenerLimits) -> None:
        """Apply the limits on the number and rate of connections to new ones."""
        self._limits = limits
        if self._connections is not None and self._rates is not None:
            self._connections.change_limits(limits)
            self._rates.change_limits(limits.max_creation_rate, _own_rates(limits))

    async def stop(self, grace_s: float) -> None:
        """Accept no more connections, and close each one when it is answered, or after ``grace_s``."""
        for listening in self._listening:
            listening.close()
        self._listening.clear()
        if self._acceptance is not None:
            self._acceptance.close_held()
        for unfinished in (self._handshakes, self._exchanges):
            if unfinished is not None:
                unfinished.abort_all()
        if self._connections is not None:
            await self._connections.drain(grace_s)
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
            self._watch = None
        if self._logins is not None:
            self._logins.close()


def _own_rates(limits: ListenerLimits) -> dict[str, float]:
    rates = ((name, own.max_creation_rate) for name, own in limits.of_listeners.items())
    return {name: rate for name, rate in rates if rate is not None}


def _authenticating(
    sasl: ListenerSasl,
    served: Served,
    connections: Connections,
    logins: Logins,
    handshakes: Handshakes,
    listener: str,
    principal: Principal = ANONYMOUS,
) -> SaslConnection:
    """Return the SASL layer of a connection. The principal of a certificate does not count on such a listener."""

    def connect(session: Session, host: str) -> Connection:
        of_client = ClientSession(session, sasl, logins, listener, host)
        return Connection(served, connections, listener, session.principal, of_client)

    return SaslConnection(sasl, listener, logins, handshakes, served.scratch, connect)


def _bind(listener: NamedListener, limits: ListenerLimits, *, is_shared: bool = False) -> socket.socket:
    try:
        found = socket.getaddrinfo(listener.host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _cannot_listen(listener.host, listener.port, error) from error
    try:
        # Connections inherit these options. A window larger than 64 KiB is negotiated when they begin.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if is_shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if limits.send_buffer_bytes > 0:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)
        if limits.receive_buffer_bytes > 0:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer_bytes)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise _cannot_listen(listener.host, listener.port, error) from error
    return bound


def _listen(bound: socket.socket) -> None:
    """Listen, or raise an error if another process that has bound the port listens already, which uvloop does not
    report.
    """
    try:
        bound.listen(_BACKLOG)
    except OSError as error:
        host, port = bound.getsockname()[:2]
        raise _cannot_listen(host, port, error) from error


def _cannot_listen(host: str, port: int, error: OSError) -> ConfigError:
    return ConfigError(f"cannot listen on {format_address(host, port)}: {error.strerror or error}")

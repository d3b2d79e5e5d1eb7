"""Limits on the connections of a node's gRPC listeners.

gRPC accepts and closes connections itself and shows none of them. It takes a number of connections and an idle time
for each server. A service sees calls: this module limits the connections of an address that have calls in progress,
and the rates of logins, each of which is a new connection's first act on a listener with SASL.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from tidelog_foundation.config.endpoints import NamedListener
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.log_limit import LogLimit
from tidelog_foundation.sasl.sessions import Session
from tidelog_foundation.security import Principal
from tidelog_foundation.transport import server_options
from tidelog_foundation.transport.services import Identify, RpcContext, host_of
from tidelog_node.kafka.server.connection_counts import CREATION_RATE, MAX_CONNECTIONS_PER_IP
from tidelog_node.kafka.server.limits import ListenerLimits
from tidelog_node.quotas.client_quotas import ClientQuotas
from tidelog_node.quotas.connection_rates import ConnectionRates
from tidelog_node.server.dynamic_config import DynamicNodeConfig

logger = logging.getLogger(__name__)
_UNLIMITED: Final = 2**31 - 1


def grpc_server_options(settings: DynamicNodeConfig, listener: NamedListener) -> list[tuple[str, int | str]]:
    """Return the options of the server of a listener."""
    config, limits = settings.current, settings.listener_limits
    own = limits.own(listener.name).max_connections
    of_all = _UNLIMITED if listener.name == protected_listener(settings) else limits.max_connections
    return server_options(
        min(config.socket_request_max_bytes, config.queued_max_request_bytes),
        max_connections=min(of_all, _UNLIMITED if own is None else own),
        max_idle_ms=int(limits.idle_s(listener.name) * 1000),
    )


def protected_listener(settings: DynamicNodeConfig) -> str | None:
    """Return the inter-broker listener if there are others, to which limits of all listeners do not apply."""
    config = settings.current
    return config.inter_broker_listener.name if len(config.all_listeners) > 1 else None


class GrpcConnections:
    """The calls and logins of a node's gRPC listeners by address, on its event loop."""

    def __init__(
        self, limits: ListenerLimits, rates: ConnectionRates, quotas: ClientQuotas, protected: str | None = None
    ) -> None:
        """``rates`` counts the connections of Kafka listeners too. ``protected`` has only limits of its own."""
        self._rates = rates
        self._quotas = quotas
        self._protected = protected
        self._log = LogLimit(logger, asyncio.get_running_loop().time)
        self._calls: Counter[str] = Counter()
        self._per_host: Counter[str] = Counter()
        """The connections with calls in progress."""
        self._doors: dict[str, _Door] = {}
        self.refused: Counter[tuple[str, str]] = Counter()
        """The refusals by listener and limit."""
        self.change_limits(limits)

    def change_limits(self, limits: ListenerLimits) -> None:
        """Apply limits to further calls."""
        self._limits = limits
        self._is_limited = limits.max_connections_per_ip < _UNLIMITED or bool(limits.max_connections_of_ips)

    def limited(self, listener: str, identify: Identify) -> Identify:
        """Return a function that identifies callers, and refuses those of too many connections of an address."""

        def identify_limited(rpc: RpcContext) -> Principal | Session:
            caller = identify(rpc)
            if self._is_limited:
                self._enter(rpc, listener)
            return caller

        return identify_limited

    async def admit_login(self, listener: str, host: str) -> None:
        """Wait until a login may begin.

        Raises:
            TidelogError: REQUEST_TIMED_OUT: The address exceeds its connection_creation_rate. It is raised after the
                time for which Kafka's connections are held.
        """
        is_protected = listener == self._protected
        limit = None if is_protected else self._quotas.addresses.limit_of(host)
        delay_ms = 0 if limit is None else self._rates.admit(host, limit)
        if delay_ms:
            text = "A login from %s at listener %s is refused: the address exceeds connection_creation_rate %g"
            self._log.warning(text, host, listener, limit)
            self.refused[listener, CREATION_RATE] += 1
            await asyncio.sleep(delay_ms / 1000)
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, f"the address exceeds connection_creation_rate {limit:g}")
        door = self._doors.setdefault(listener, _Door())
        await door.pass_through(lambda: self._rates.accept(listener, is_protected=is_protected))

    def _enter(self, rpc: RpcContext, listener: str) -> None:
        connection: str = rpc.peer()
        if not self._calls[connection]:
            host = host_of(connection)
            limit = self._limits.max_connections_of_ips.get(host, self._limits.max_connections_per_ip)
            if self._per_host[host] >= limit:
                text = "A call from %s at listener %s is refused: it has %d connections, its max.connections.per.ip"
                self._log.warning(text, host, listener, limit)
                self.refused[listener, MAX_CONNECTIONS_PER_IP] += 1
                del self._calls[connection]
                raise error_for(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"the address has {limit} connections (max.connections.per.ip)"
                )
            self._per_host[host] += 1
        self._calls[connection] += 1
        rpc.add_done_callback(lambda _: self._leave(connection))  # type: ignore[arg-type]  # the stub wants a class

    def _leave(self, connection: str) -> None:
        self._calls[connection] -= 1
        if not self._calls[connection]:
            del self._calls[connection]
            host = host_of(connection)
            self._per_host[host] -= 1
            if not self._per_host[host]:
                del self._per_host[host]


class _Door:
    """The logins of one listener, one after another. Others wait while a rate is exceeded."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._opens_s = 0.0

    async def pass_through(self, accept: Callable[[], int]) -> None:
        """Wait for the turn of a login, and count it with ``accept``, which returns the milliseconds until the next."""
        loop = asyncio.get_running_loop()
        async with self._turn:
            delay_s = self._opens_s - loop.time()
            if delay_s > 0:
                await asyncio.sleep(delay_s)
            self._opens_s = loop.time() + accept() / 1000

"""Limits on the connections of a node's gRPC listeners, and on the rates of logins.

A login is a new connection's first act on a listener with SASL, and gRPC shows no connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidelog_foundation.config.endpoints import NamedListener
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.transport.channels import SHARED_PORTS
from tidelog_foundation.transport.grpc_connections import GrpcConnections, limited_server_options
from tidelog_node.kafka.server.connection_counts import CREATION_RATE
from tidelog_node.kafka.server.limits import ListenerLimits
from tidelog_node.quotas.client_quotas import ClientQuotas
from tidelog_node.quotas.connection_rates import ConnectionRates
from tidelog_node.server.dynamic_config import DynamicNodeConfig


def grpc_server_options(settings: DynamicNodeConfig, listener: NamedListener) -> list[tuple[str, int | str]]:
    """Return the options of the server of a listener."""
    config = settings.current
    options = limited_server_options(
        min(config.socket_request_max_bytes, config.queued_max_request_bytes),
        settings.listener_limits,
        listener.name,
        protected_listener(settings),
    )
    if any(shared.name == listener.name for shared in config.shared_listeners):
        options = [SHARED_PORTS, *(option for option in options if option[0] != SHARED_PORTS[0])]
    return options


def protected_listener(settings: DynamicNodeConfig) -> str | None:
    """Return the inter-broker listener if there are others, to which limits of all listeners do not apply."""
    config = settings.current
    return config.inter_broker_listener.name if len(config.all_listeners) > 1 else None


class NodeConnections(GrpcConnections):
    """The calls and logins of a node's gRPC listeners by address, on its event loop."""

    def __init__(
        self, limits: ListenerLimits, rates: ConnectionRates, quotas: ClientQuotas, protected: str | None = None
    ) -> None:
        """``rates`` counts the connections of Kafka listeners too. ``protected`` has only limits of its own."""
        super().__init__(limits, asyncio.get_running_loop().time, protected)
        self._rates = rates
        self._quotas = quotas
        self._doors: dict[str, _Door] = {}

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

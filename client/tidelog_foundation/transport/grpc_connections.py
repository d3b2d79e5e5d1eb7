"""Limits on the connections of a server's gRPC listeners.

gRPC accepts and closes connections itself and shows none of them. It takes a number of connections and an idle time
for each server, which it keeps. A service sees calls: :class:`GrpcConnections` limits the connections of an address,
and of a listener, that have calls in progress. Its limits can change at run time.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NoReturn

from tidelog_foundation.config.connections import ConnectionLimits
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.logs.limit import LogLimit
from tidelog_foundation.metrics import Family, Kind, Metric
from tidelog_foundation.sasl.sessions import Session
from tidelog_foundation.security import Principal
from tidelog_foundation.transport.channels import server_options
from tidelog_foundation.transport.services import Identify, RpcContext, host_of

logger = logging.getLogger(__name__)
MAX_CONNECTIONS: Final = "max.connections"
MAX_CONNECTIONS_PER_IP: Final = "max.connections.per.ip"
REFUSED: Final = Metric(
    "tidelog_grpc_connections_refused_total",
    Kind.COUNTER,
    "Calls and logins over gRPC that were refused because of a limit on connections.",
    labels=("listener", "limit"),
)
METRICS: Final = (REFUSED,)


def limited_server_options(
    max_request_bytes: int, limits: ConnectionLimits, listener: str, protected: str | None
) -> list[tuple[str, int | str]]:
    """Return the options of the server of a listener.

    The number of connections of all listeners does not apply to the listener ``protected``, so that clients of others
    leave room for servers there.
    """
    return server_options(
        max_request_bytes,
        max_connections=limits.of_listener(listener, protected),
        max_idle_ms=int(limits.idle_s(listener) * 1000),
    )


class GrpcConnections:
    """The calls of a server's gRPC listeners by connection, on its event loop."""

    def __init__(
        self,
        limits: ConnectionLimits,
        time: Callable[[], float],
        protected: str | None = None,
        *,
        exempts_addresses: bool = False,
    ) -> None:
        """``time`` is the time in seconds, for the log.

        The listener ``protected`` has only limits of its own. Limits of addresses apply to it too, unless it
        ``exempts_addresses``: then its connections do not count.
        """
        self._log = LogLimit(logger, time)
        self._protected = protected
        self._exempt = protected if exempts_addresses else None
        self._calls: Counter[tuple[str, str]] = Counter()
        """The calls in progress by listener and connection."""
        self._per_host: Counter[str] = Counter()
        """The connections of each address with calls in progress."""
        self._per_listener: Counter[str] = Counter()
        """The connections of each listener with calls in progress."""
        self.refused: Counter[tuple[str, str]] = Counter()
        """The refusals by listener and limit."""
        self.change_limits(limits)

    def change_limits(self, limits: ConnectionLimits) -> None:
        """Apply limits to further calls."""
        self._limits = limits
        self._is_limited = limits.has_numbers

    def limited(self, listener: str, identify: Identify) -> Identify:
        """Return a function that identifies callers, and refuses those of too many connections."""

        def identify_limited(rpc: RpcContext) -> Principal | Session:
            caller = identify(rpc)
            if self._is_limited:
                self._enter(rpc, listener)
            return caller

        return identify_limited

    def families(self) -> Iterable[Family]:
        """Return the metrics."""
        yield REFUSED.of(self.refused)

    def _enter(self, rpc: RpcContext, listener: str) -> None:
        connection = listener, rpc.peer()
        if connection not in self._calls:
            host = host_of(rpc.peer())
            self._check(listener, host)
            self._per_listener[listener] += 1
            if listener != self._exempt:
                self._per_host[host] += 1
        self._calls[connection] += 1
        rpc.add_done_callback(lambda _: self._leave(connection))  # type: ignore[arg-type]  # the stub wants a class

    def _check(self, listener: str, host: str) -> None:
        """Raise if a listener or an address has too many connections for one more."""
        of_listener = self._limits.of_listener(listener, self._protected)
        if self._per_listener[listener] >= of_listener:
            self._refuse(listener, host, MAX_CONNECTIONS, f"listener {listener}", of_listener)
        of_address = self._limits.of_address(host)
        if listener != self._exempt and self._per_host[host] >= of_address:
            self._refuse(listener, host, MAX_CONNECTIONS_PER_IP, "the address", of_address)

    def _refuse(self, listener: str, host: str, key: str, owner: str, limit: int) -> NoReturn:
        text = "A call from %s at listener %s is refused: %s has %d connections, its %s"
        self._log.warning(text, host, listener, owner, limit, key)
        self.refused[listener, key] += 1
        raise error_for(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{owner} has {limit} connections ({key})")

    def _leave(self, connection: tuple[str, str]) -> None:
        self._calls[connection] -= 1
        if self._calls[connection]:
            return
        del self._calls[connection]
        listener, peer = connection
        _decrement(self._per_listener, listener)
        if listener != self._exempt:
            _decrement(self._per_host, host_of(peer))


def _decrement(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]

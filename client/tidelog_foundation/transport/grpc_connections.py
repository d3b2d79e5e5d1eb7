"""Limits on the connections of a server's gRPC listeners.

gRPC accepts and closes connections itself and shows none of them. It takes a number of connections and an idle time
for each server. A service sees calls: :class:`GrpcConnections` limits the connections of an address that have calls in
progress.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from tidelog_foundation.config.connections import UNLIMITED, ConnectionLimits
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.log_limit import LogLimit
from tidelog_foundation.metrics import Family, Kind, Metric
from tidelog_foundation.sasl.sessions import Session
from tidelog_foundation.security import Principal
from tidelog_foundation.transport.channels import server_options
from tidelog_foundation.transport.services import Identify, RpcContext, host_of

logger = logging.getLogger(__name__)
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
    own = limits.own(listener).max_connections
    of_all = UNLIMITED if listener == protected else limits.max_connections
    return server_options(
        max_request_bytes,
        max_connections=min(of_all, UNLIMITED if own is None else own),
        max_idle_ms=int(limits.idle_s(listener) * 1000),
    )


class GrpcConnections:
    """The calls of a server's gRPC listeners by address, on its event loop."""

    def __init__(self, limits: ConnectionLimits, time: Callable[[], float], exempt: str | None = None) -> None:
        """``time`` is the time in seconds, for the log. Calls to the listener ``exempt`` neither count nor fail."""
        self._log = LogLimit(logger, time)
        self._exempt = exempt
        self._calls: Counter[str] = Counter()
        self._per_host: Counter[str] = Counter()
        """The connections with calls in progress."""
        self.refused: Counter[tuple[str, str]] = Counter()
        """The refusals by listener and limit."""
        self.change_limits(limits)

    def change_limits(self, limits: ConnectionLimits) -> None:
        """Apply limits to further calls."""
        self._limits = limits

    def limited(self, listener: str, identify: Identify) -> Identify:
        """Return a function that identifies callers, and refuses those of too many connections of an address."""
        if listener == self._exempt:
            return identify

        def identify_limited(rpc: RpcContext) -> Principal | Session:
            caller = identify(rpc)
            if self._limits.has_address_limits:
                self._enter(rpc, listener)
            return caller

        return identify_limited

    def families(self) -> Iterable[Family]:
        """Return the metrics."""
        yield REFUSED.of(self.refused)

    def _enter(self, rpc: RpcContext, listener: str) -> None:
        connection: str = rpc.peer()
        if not self._calls[connection]:
            host = host_of(connection)
            limit = self._limits.of_address(host)
            if self._per_host[host] >= limit:
                text = "A call from %s at listener %s is refused: it has %d connections, its max.connections.per.ip"
                self._log.warning(text, host, listener, limit)
                self.refused[listener, MAX_CONNECTIONS_PER_IP] += 1
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

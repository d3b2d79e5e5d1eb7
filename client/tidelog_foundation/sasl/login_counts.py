"""The outcomes of logins with SASL, counted by listener and mechanism."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum
from typing import Final

from tidelog_foundation.metrics import Family, Kind, Metric

SOCKET_SERVER: Final = "kafka.server:type=socket-server-metrics,listener=*,networkProcessor=*"
"""The MBean of Kafka for the sockets of a listener."""
LOGINS: Final = Metric(
    "tidelog_logins_total",
    Kind.COUNTER,
    "Logins with SASL since the start. The mechanism is empty if the client named none that is enabled.",
    labels=("listener", "mechanism", "result"),
    kafka=(f"{SOCKET_SERVER}: successful-authentication-total", f"{SOCKET_SERVER}: failed-authentication-total"),
)
RELOGINS: Final = Metric(
    "tidelog_reauthentications_total",
    Kind.COUNTER,
    "Further logins of authenticated clients since the start (KIP-368).",
    labels=("listener", "mechanism", "result"),
    kafka=(f"{SOCKET_SERVER}: successful-reauthentication-total", f"{SOCKET_SERVER}: failed-reauthentication-total"),
)
EXPIRED: Final = Metric(
    "tidelog_expired_sessions_closed_total",
    Kind.COUNTER,
    "Connections of Kafka clients that were closed because their session had expired.",
    labels=("listener",),
    kafka=(f"{SOCKET_SERVER}: expired-connections-killed-count",),
)
SESSIONS: Final = Metric(
    "tidelog_grpc_sessions",
    Kind.GAUGE,
    "The sessions of clients that have logged in to a gRPC listener.",
    labels=("listener",),
)
METRICS: Final = (LOGINS, RELOGINS, EXPIRED, SESSIONS)


def no_logins() -> Iterable[Family]:
    """Return the metrics of a process that counts no logins, which have no values."""
    yield from (metric.of({}) for metric in METRICS)


class Result(Enum):
    """The outcome of a login."""

    SUCCESS = "success"
    FAILURE = "failure"


class LoginCounts:
    """The logins of some listeners since the start. The mechanisms are those that the listeners have enabled."""

    def __init__(self) -> None:
        self._logins: Counter[tuple[str, str, Result]] = Counter()
        self._relogins: Counter[tuple[str, str, Result]] = Counter()
        self._expired: Counter[str] = Counter()

    def count(self, listener: str, mechanism: str, result: Result, *, is_again: bool = False) -> None:
        """Count a login, or a further one of an authenticated client."""
        counts = self._relogins if is_again else self._logins
        counts[listener, mechanism, result] += 1

    def count_expired(self, listener: str) -> None:
        """Count a connection that is closed because its session has expired."""
        self._expired[listener] += 1

    def total(self, result: Result, *, is_again: bool = False) -> int:
        """Return the number of logins with a result, or of further ones."""
        counts = self._relogins if is_again else self._logins
        return sum(count for key, count in counts.items() if key[2] is result)

    @property
    def expired(self) -> int:
        """The number of connections that were closed because their session had expired."""
        return self._expired.total()

    def families(self) -> Iterable[Family]:
        """Return the counts."""
        for metric, counts in ((LOGINS, self._logins), (RELOGINS, self._relogins)):
            yield metric.of({(listener, name, result.value): n for (listener, name, result), n in counts.items()})
        yield EXPIRED.of({(listener,): count for listener, count in self._expired.items()})

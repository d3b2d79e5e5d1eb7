"""The connections of the Kafka listeners, counted by listener."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from tidelog_foundation.metrics import Family, Kind, Metric
from tidelog_foundation.sasl.login_counts import SOCKET_SERVER

CONNECTIONS: Final = Metric(
    "tidelog_kafka_connections",
    Kind.GAUGE,
    "The open connections of Kafka clients whose handshakes have ended.",
    labels=("listener",),
    kafka=(f"{SOCKET_SERVER}: connection-count",),
)
HANDSHAKES: Final = Metric(
    "tidelog_kafka_handshakes",
    Kind.GAUGE,
    "The connections of Kafka clients in a handshake, of TLS or SASL.",
    labels=("layer",),
)
ACCEPTED: Final = Metric(
    "tidelog_kafka_connections_accepted_total",
    Kind.COUNTER,
    "Connections of Kafka clients that have begun since the start, after their handshakes.",
    labels=("listener",),
    kafka=(f"{SOCKET_SERVER}: connection-creation-total",),
)
CLOSED: Final = Metric(
    "tidelog_kafka_connections_closed_total",
    Kind.COUNTER,
    "Connections of Kafka clients that have ended since the start.",
    labels=("listener",),
    kafka=(f"{SOCKET_SERVER}: connection-close-total",),
)
REFUSED: Final = Metric(
    "tidelog_kafka_connections_refused_total",
    Kind.COUNTER,
    "Connections of Kafka clients that were closed because of a limit: a setting, a quota, the reserved file "
    "descriptors (open.files), or the number of handshakes in progress (handshakes).",
    labels=("listener", "limit"),
)
METRICS: Final = (CONNECTIONS, HANDSHAKES, ACCEPTED, CLOSED, REFUSED)

MAX_CONNECTIONS: Final = "max.connections"
MAX_CONNECTIONS_PER_IP: Final = "max.connections.per.ip"
CREATION_RATE: Final = "connection_creation_rate"
OPEN_FILES: Final = "open.files"
MAX_HANDSHAKES: Final = "handshakes"


class ConnectionCounts:
    """The connections of a node's Kafka listeners since its start."""

    def __init__(self) -> None:
        self.accepted: Counter[str] = Counter()
        self.closed: Counter[str] = Counter()
        self.refused: Counter[tuple[str, str]] = Counter()
        """By listener and limit."""

    def open(self, listener: str) -> int:
        """Return the number of a listener's open connections."""
        return self.accepted[listener] - self.closed[listener]

    def families(self, handshakes: Mapping[str, int]) -> Iterable[Family]:
        """Return the counts. ``handshakes`` are those in progress, by layer."""
        open_now = {(name,): count - self.closed[name] for name, count in self.accepted.items()}
        yield CONNECTIONS.of(open_now)
        yield HANDSHAKES.of({(layer,): count for layer, count in handshakes.items()})
        yield ACCEPTED.of({(name,): count for name, count in self.accepted.items()})
        yield CLOSED.of({(name,): count for name, count in self.closed.items()})
        yield REFUSED.of(self.refused)

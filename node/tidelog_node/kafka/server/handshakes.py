"""The connections of a node's Kafka listeners whose clients are not known yet, limited in number and time."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Protocol

from tidelog_foundation.logs.limit import LogLimit
from tidelog_node.kafka.server.connection_counts import MAX_HANDSHAKES
from tidelog_node.kafka.server.connections import Connections


class Handshake(Protocol):
    """A connection during its TLS handshake or its SASL exchange."""

    listener: str
    host: str
    """The client's address."""

    def fail(self, reason: str, level: int = logging.WARNING) -> None:
        """Close at once, and log the reason."""


class Handshakes:
    """The unfinished handshakes of a node, of TLS and SASL.

    When there are too many, one of the host with the most ends. A host can therefore not keep others away with
    connections that send nothing.
    """

    def __init__(self, limit: int, timeout_s: float, connections: Connections, log: LogLimit) -> None:
        self.timeout_s = timeout_s
        self._limit = limit
        self._connections = connections
        self._log = log
        self._all: dict[Handshake, None] = {}
        self._per_host: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._all)

    def admit(self, connection: Handshake) -> bool:
        """Begin a handshake, or refuse it if the host has too many connections or the node is stopping."""
        host = connection.host
        if not self._connections.may_connect(connection.listener, host):
            return False
        if len(self._all) >= self._limit:
            busiest = self._per_host.most_common(1)[0][0]
            oldest = next(each for each in self._all if each.host == busiest)
            self._connections.counts.refused[oldest.listener, MAX_HANDSHAKES] += 1
            oldest.fail(f"{self._limit} handshakes are in progress, most of them from its host")
        self._all[connection] = None
        self._per_host[host] += 1
        self._connections.begin_handshake(host)
        return True

    def has_file(self, listener: str, file: int) -> bool:
        """Return whether a connection may have this file descriptor, which is not one of those reserved for logs."""
        return self._connections.has_file(listener, file)

    def forget(self, connection: Handshake) -> None:
        """Remove a handshake that has ended."""
        if self._all.pop(connection, connection) is None:
            self._connections.end_handshake(connection.host)
            self._per_host[connection.host] -= 1
            if not self._per_host[connection.host]:
                del self._per_host[connection.host]

    def report(self, connection: Handshake, reason: str, level: int = logging.WARNING) -> None:
        """Log a failure that the client caused."""
        text = "A connection from %s to listener %s is closed: %s"
        self._log.log(level, text, connection.host, connection.listener, reason)

    def abort_all(self) -> None:
        """End all handshakes."""
        for connection in tuple(self._all):
            connection.fail("the node is stopping", logging.DEBUG)

"""All connections of a node's Kafka listeners: their limits and timeouts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import sys
from collections import Counter
from typing import Final

from tidelog_foundation.logs.limit import LogLimit
from tidelog_node.kafka.server.connection import Connection
from tidelog_node.kafka.server.connection_counts import (
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    OPEN_FILES,
    ConnectionCounts,
)
from tidelog_node.kafka.server.limits import ListenerLimits

_CHECK_INTERVAL_S: Final = 1.0
_CHECKS_PER_TIME: Final = 4
_SPARE_FILES: Final = 256
_SPARE_SHARE: Final = 8
"""The number of file descriptors reserved from connections, at most an eighth of the process limit.

A log that cannot open a file fails, and its node with it. Unfinished TLS handshakes may have half of them.
"""


class Connections:
    """The open connections of a node. The task :meth:`watch` checks their timeouts.

    ``protected`` is the inter-broker listener if there are others too. ``max.connections`` does not keep a node away
    from it: the longest idle connection of another listener is closed instead (KIP-612; Kafka's
    SocketServer.ConnectionQuotas).
    """

    def __init__(self, limits: ListenerLimits, log: LogLimit, protected: str | None = None) -> None:
        self._limits = limits
        self._log = log
        self._protected = protected
        self._all: set[Connection] = set()
        self._per_host: Counter[str] = Counter()
        self._unknown_per_host: Counter[str] = Counter()
        """The connections in a handshake, of TLS or SASL."""
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._is_draining = False
        self._files = _files_for_connections()
        self.counts = ConnectionCounts()

    def __len__(self) -> int:
        return len(self._all)

    def change_limits(self, limits: ListenerLimits) -> None:
        """Apply limits to new connections. Those that exist stay."""
        self._limits = limits

    def admit(self, connection: Connection) -> bool:
        """Accept a new connection, or refuse it if there are too many or the node is stopping."""
        limits, host = self._limits, connection.host
        if not self.may_connect(connection.listener, host):
            return False
        own = limits.own(connection.listener).max_connections
        if own is not None and self.counts.open(connection.listener) >= own:
            text = "A connection from %s to listener %s is refused: it has %d connections, its max.connections"
            self._log.warning(text, host, connection.listener, own)
            self.counts.refused[connection.listener, MAX_CONNECTIONS] += 1
            return False
        if len(self._all) >= limits.max_connections and not self._makes_room(connection):
            text = "A connection from %s to listener %s is refused: there are %d connections, max.connections is %d"
            self._log.warning(text, host, connection.listener, len(self._all), limits.max_connections)
            self.counts.refused[connection.listener, MAX_CONNECTIONS] += 1
            return False
        # The system assigns the lowest free descriptor.
        if connection.file >= self._files and not self._makes_room(connection):
            text = "A connection from %s to listener %s is refused: %d files are open, the rest are reserved for logs"
            self._log.warning(text, host, connection.listener, connection.file)
            self.counts.refused[connection.listener, OPEN_FILES] += 1
            return False
        self._all.add(connection)
        self.counts.accepted[connection.listener] += 1
        self._is_empty.clear()
        self._per_host[host] += 1
        return True

    def may_connect(self, listener: str, host: str) -> bool:
        """Return whether a host may have one more connection, those in a handshake included. A refusal counts."""
        if self._is_draining:
            return False
        limit = self._limits.max_connections_of_ips.get(host, self._limits.max_connections_per_ip)
        if self._per_host[host] + self._unknown_per_host[host] < limit:
            return True
        text = "A connection from %s is refused: it has %d connections, the limit max.connections.per.ip"
        self._log.warning(text, host, limit)
        self.counts.refused[listener, MAX_CONNECTIONS_PER_IP] += 1
        return False

    def begin_handshake(self, host: str) -> None:
        """Count a connection whose client is not known yet."""
        self._unknown_per_host[host] += 1

    def end_handshake(self, host: str) -> None:
        """Count it no more: it is closed, or :meth:`admit` follows."""
        self._unknown_per_host[host] -= 1
        if not self._unknown_per_host[host]:
            del self._unknown_per_host[host]

    def has_file(self, listener: str, file: int) -> bool:
        """Return whether a connection may have this file descriptor, which is not one of those reserved for logs.

        A refusal counts.
        """
        if file < self._files:
            return True
        self.counts.refused[listener, OPEN_FILES] += 1
        return False

    def forget(self, connection: Connection) -> None:
        """Remove a connection from the counts."""
        if connection not in self._all:
            return
        self._all.remove(connection)
        self.counts.closed[connection.listener] += 1
        if not self._all:
            self._is_empty.set()
        self._per_host[connection.host] -= 1
        if not self._per_host[connection.host]:
            del self._per_host[connection.host]

    async def watch(self) -> None:
        """Close the connections that have timed out, until cancelled."""
        loop = asyncio.get_running_loop()
        limits = self._limits
        idle_s = [own.max_idle_s for own in limits.of_listeners.values() if own.max_idle_s is not None]
        shortest = min(limits.max_idle_s, limits.frame_pause_s, limits.wanted_pause_s, *idle_s)
        interval_s = min(_CHECK_INTERVAL_S, shortest / _CHECKS_PER_TIME)
        while True:
            await asyncio.sleep(interval_s)
            now = loop.time()
            for connection in tuple(self._all):
                reason = connection.overdue(now)
                if reason is not None:
                    text = "A connection from %s to listener %s is closed: %s"
                    self._log.log(logging.INFO, text, connection.host, connection.listener, reason)
                    connection.abort()

    async def drain(self, grace_s: float) -> None:
        """Close every connection when its requests are answered, or after ``grace_s``.

        A connection that was accepted before but is only set up now is refused.
        """
        self._is_draining = True
        for connection in tuple(self._all):
            connection.drain()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_empty.wait(), grace_s)
        for connection in tuple(self._all):
            connection.abort()
        await self._is_empty.wait()

    def _makes_room(self, connection: Connection) -> bool:
        if connection.listener != self._protected:
            return False
        others = [c for c in self._all if c.listener != self._protected]
        if others:
            oldest = min(others, key=lambda c: c.last_active)
            oldest.abort()
            # The connection is lost in a later iteration of the loop and must not be chosen again before.
            self.forget(oldest)
        return bool(others)


def max_handshakes() -> int:
    """Return the number of TLS handshakes that may be in progress at the same time."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, _spare_files(limit) // 2)


def _files_for_connections() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit - _spare_files(limit)


def _spare_files(limit: int) -> int:
    return _SPARE_FILES if limit == resource.RLIM_INFINITY else min(_SPARE_FILES, limit // _SPARE_SHARE)

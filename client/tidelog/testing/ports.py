"""Ports that test servers keep over a restart: given ports, those of earlier runs, or any free ones."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import socket
from collections.abc import Callable, Iterable, Mapping

from tidelog.testing.cluster_folder import Ports
from tidelog.testing.process import Place

_LOWEST, _HIGHEST = 15_000, 32_000
"""Below the kernel's range for outgoing connections, so that no connection takes the port of a server that is down."""
_leases: dict[int, socket.socket] = {}


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return ``count`` different ports without a listener and without a lease."""
    ports = lease_ports(count, host)
    release_ports(ports)
    return ports


def lease_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return ``count`` free ports, leased until :func:`release_ports` or the end of this process.

    The lease is a UDP socket on the port, which other processes detect. The servers listen on TCP alone, and may be
    down for a while.
    """
    ports: list[int] = []
    try:
        while len(ports) < count:
            ports.append(_lease_any(host))
    except OSError:
        release_ports(ports)
        raise
    return ports


def lease_port(port: int, host: str = "127.0.0.1") -> bool:
    """Lease this port. Return False if another process listens on it or leases it."""
    lease = socket.socket(type=socket.SOCK_DGRAM)
    with contextlib.suppress(OSError), socket.socket() as probe:
        # Closed connections of an earlier server may linger; they do not hinder its successor.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        lease.bind((host, port))
        probe.bind((host, port))
        _leases[port] = lease
        return True
    lease.close()
    return False


def release_ports(ports: Iterable[int]) -> None:
    """Release leased ports."""
    for port in ports:
        if lease := _leases.pop(port, None):
            lease.close()


def _lease_any(host: str) -> int:
    for _ in range(1000):
        port = random.randrange(_LOWEST, _HIGHEST)
        if lease_port(port, host):
            return port
    raise OSError(f"no free port from {_LOWEST} to {_HIGHEST} on {host}")


ProcessName = tuple[str, int]
"""``("controller", 1)`` or ``("node", 2)``."""
OnBusyPort = Callable[[str, int, int], None]
"""Callback with a process's name in messages, the port that it should have, and the port that it gets instead."""


class ClusterPorts:
    """The ports of one cluster's processes, leased until :meth:`release`.

    A process listens on the port of its place, else on the one given, else on the one that it had before (``kept``),
    else on any that is free. A kept port that is in use gives way to a free one, as does a given port where ``on_busy``
    reports it; without ``on_busy`` the process that cannot listen on a given port fails.
    """

    def __init__(self, kept: Mapping[ProcessName, Ports], on_busy: OnBusyPort | None = None) -> None:
        self._kept = kept
        self._on_busy = on_busy
        self._leases: list[int] = []

    def assign(
        self, places: Mapping[ProcessName, Place], given: Mapping[ProcessName, Ports] | None = None
    ) -> dict[ProcessName, Place]:
        """Return the places with their ports. A node also has a port for Kafka's clients."""
        nothing, given = Ports(), given or {}
        wanted = {name: (given.get(name, nothing), self._kept.get(name, nothing)) for name in places}
        chosen = {
            name: dataclasses.replace(
                place,
                port=place.port or self._choose(*(ports.port for ports in wanted[name])),
                kafka_port=place.kafka_port or self._choose(*(ports.kafka_port for ports in wanted[name])),
            )
            for name, place in places.items()
        }
        # Processes without a given or kept port choose last, so that they do not take another process's kept port.
        return {name: self._complete(name, place, *wanted[name]) for name, place in chosen.items()}

    def lease_any(self, count: int) -> list[int]:
        """Return free ports."""
        ports = lease_ports(count)
        self._leases += ports
        return ports

    def release(self) -> None:
        """Release the ports."""
        release_ports(self._leases)
        self._leases.clear()

    def _choose(self, given: int, kept: int) -> int:
        """Return the first available port, or 0."""
        if given and self._on_busy is None:
            return given
        for port in (given, kept):
            if port and lease_port(port):
                self._leases.append(port)
                return port
        return 0

    def _complete(self, name: ProcessName, place: Place, given: Ports, kept: Ports) -> Place:
        port = place.port or self._any_instead_of(name, given.port or kept.port)
        kafka_port = place.kafka_port
        if name[0] == "node" and not kafka_port:
            kafka_port = self._any_instead_of(name, given.kafka_port or kept.kafka_port)
        return dataclasses.replace(place, port=port, kafka_port=kafka_port)

    def _any_instead_of(self, name: ProcessName, wanted: int) -> int:
        [port] = self.lease_any(1)
        if wanted and self._on_busy is not None:
            self._on_busy(f"{name[0]} {name[1]}", wanted, port)
        return port

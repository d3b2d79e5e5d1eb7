"""Port assignment for a local cluster's processes: given ports, earlier ports, or any free ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from tidelog.testing.cluster_folder import Ports
from tidelog.testing.ports import lease_port, lease_ports, release_ports
from tidelog.testing.process import Place

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

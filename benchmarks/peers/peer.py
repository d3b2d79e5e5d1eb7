"""What a cluster that takes part in the comparison can do, and what both have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks import process

SETTINGS: Mapping[str, object] = {
    "broker.session.timeout.ms": 2_000,
    "broker.heartbeat.interval.ms": 300,
    "controller.quorum.election.timeout.ms": 1_000,
    "replica.lag.time.max.ms": 30_000,
}
"""What both clusters are told, so that what they wait for is the same: the last two are Kafka's defaults."""


@dataclass(frozen=True, slots=True)
class Size:
    """How many processes a cluster has."""

    controllers: int
    brokers: int

    def __str__(self) -> str:
        return f"{self.controllers}+{self.brokers}"


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of all processes of a cluster, in MB.

    ``resident`` is the sum of their resident pages, in which a page that n of them share counts n times;
    ``proportional`` counts it once.
    """

    resident: float
    proportional: float


class Peer(ABC):
    """A cluster of processes on loopback; started, measured and ended by one thread.

    It may be started again after :meth:`close`, empty. No process outlives the one that made it.
    """

    def __init__(self, name: str, size: Size) -> None:
        self.name = name
        self.size = size

    @abstractmethod
    def prepare(self) -> None:
        """Do once what an installation does before the first start; not part of any measurement."""

    @abstractmethod
    def start(self) -> None:
        """Start all processes with empty logs; returns before they serve."""

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """The addresses of the brokers' Kafka listeners."""

    @abstractmethod
    def pids(self) -> Mapping[str, int]:
        """Return the ids of the processes that run, by their names."""

    @abstractmethod
    def kill(self, broker_id: int) -> None:
        """SIGKILL a broker; returns when it is gone."""

    @abstractmethod
    def restart(self, broker_id: int) -> None:
        """Start a broker that was killed; returns before it serves."""

    @abstractmethod
    def last_words(self) -> str:
        """Return what the processes printed last, for the message of a failure."""

    @abstractmethod
    def close(self) -> None:
        """End all processes and remove their data. Does nothing when it is not started."""

    def memory(self) -> Memory:
        """Return the memory of all processes now."""
        pids = self.pids().values()
        return Memory(sum(map(process.resident_mb, pids)), sum(map(process.proportional_mb, pids)))

    def cpu(self) -> dict[str, float]:
        """Return the seconds of CPU that each process has used since it was started."""
        return {name: process.cpu_seconds(pid) for name, pid in self.pids().items()}

    def cpu_seconds(self) -> float:
        """Return the seconds of CPU that all processes together have used."""
        return sum(self.cpu().values())

"""The interface of a cluster in the comparison, and the common parts of both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks import process

STOP_TIMEOUT_S = 300.0

SETTINGS: Mapping[str, object] = {
    "broker.session.timeout.ms": 2_000,
    "broker.heartbeat.interval.ms": 300,
    "controller.quorum.election.timeout.ms": 1_000,
    "replica.lag.time.max.ms": 30_000,
    "offsets.topic.num.partitions": 50,
    "transaction.state.log.num.partitions": 50,
}
"""The settings of both clusters, so that they wait equally long. The last four are Kafka's defaults."""


@dataclass(frozen=True, slots=True)
class Size:
    """The numbers of processes of a cluster."""

    controllers: int
    brokers: int

    def __str__(self) -> str:
        return f"{self.controllers}+{self.brokers}"


WHOLE, PAIR, SMALL = Size(3, 3), Size(1, 2), Size(1, 1)


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of all processes of a cluster, in MB.

    ``resident`` is the sum of their resident pages and counts a page shared by n of them n times; ``proportional``
    counts it once.
    """

    resident: float
    proportional: float


class Peer(ABC):
    """A cluster of processes on loopback, started, measured and ended by one thread.

    After :meth:`close` it may be started again with no data. No process outlives its creator.
    """

    def __init__(self, name: str, size: Size) -> None:
        self.name = name
        self.size = size

    @abstractmethod
    def prepare(self) -> None:
        """Do the work of an installation before the first start, which is not measured."""

    @abstractmethod
    def start(self) -> None:
        """Start all processes with empty logs, and return before they serve."""

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """The addresses of the brokers' Kafka listeners."""

    @abstractmethod
    def pids(self) -> Mapping[str, int]:
        """Return the ids of the running processes by name."""

    @abstractmethod
    def broker_pid(self, broker_id: int) -> int:
        """Return the process id of a running broker."""

    @abstractmethod
    def kill(self, broker_id: int) -> None:
        """Kill a broker with SIGKILL, and return when it is gone."""

    @abstractmethod
    def stop(self, broker_id: int) -> None:
        """Stop a broker with SIGTERM, and return when it has ended.

        Raises:
            subprocess.TimeoutExpired: It has not ended in five minutes.
        """

    @abstractmethod
    def data_folder(self, broker_id: int) -> Path:
        """Return the folder of a broker that has one folder per partition."""

    @abstractmethod
    def restart(self, broker_id: int) -> None:
        """Start a killed or stopped broker, and return before it serves."""

    @abstractmethod
    def last_words(self) -> str:
        """Return the last output of the processes, for error messages."""

    @abstractmethod
    def close(self) -> None:
        """End all processes and remove their data. Do nothing if the cluster is not running."""

    def memory(self) -> Memory:
        """Return the current memory of all processes."""
        pids = self.pids().values()
        return Memory(sum(map(process.resident_mb, pids)), sum(map(process.proportional_mb, pids)))

    def cpu(self) -> dict[str, float]:
        """Return each process's CPU seconds since its start."""
        return {name: process.cpu_seconds(pid) for name, pid in self.pids().items()}

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of all processes together."""
        return sum(self.cpu().values())

"""The interface of a cluster to a run: its processes, and the faults that can be injected and healed.

A driver does one thing to one process when it is told to; the nemesis decides the target, the time and the duration.
All effects end with the driver: :meth:`FaultDriver.close` undoes them, and so does any end of the runner's process.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tidelog_chaos.workload.library import Library


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """A process of the cluster."""

    kind: Literal["controller", "node"]
    id: int

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


CLIENTS: Final = "clients"
"""In a cut, the workload's clients."""

End = Member | Literal["clients"]
Cut = frozenset[tuple[End, End]]
"""Pairs (from, to); no packet passes from the first to the second."""


@dataclass(frozen=True, slots=True)
class Delay:
    """The fate of each packet that a process sends: a delay of ``ms`` plus or minus ``jitter_ms``, or loss."""

    ms: float = 100
    jitter_ms: float = 50
    loss: float = 0.0
    """The share of lost packets, from 0 to 1."""

    def __str__(self) -> str:
        return f"{self.ms:.0f} ± {self.jitter_ms:.0f} ms, {self.loss:.0%} lost"


class FaultDriver:
    """A cluster under faults. One thread uses it; every method blocks.

    Each fault has a method that begins it and one that ends it; ending a fault that did not begin does nothing. A run
    never injects the faults that :meth:`refusals` names.

    This base is an existing cluster at the given addresses, to which nothing is done. A driver supports the faults that
    it overrides.
    """

    def __init__(self, bootstrap_servers: str = "", kafka_bootstrap_servers: str = "") -> None:
        self._bootstrap_servers = bootstrap_servers
        self._kafka_bootstrap_servers = kafka_bootstrap_servers

    @property
    def bootstrap_servers(self) -> str:
        """The addresses at which clients find the cluster."""
        return self._bootstrap_servers

    @property
    def kafka_bootstrap_servers(self) -> str:
        """The addresses of the nodes' Kafka listeners, reachable from this process."""
        return self._kafka_bootstrap_servers

    @property
    def client_settings(self) -> Mapping[str, str]:
        """The settings with which Tidelog's clients connect."""
        return {"bootstrap.servers": self.bootstrap_servers}

    @property
    def kafka_client_settings(self) -> Mapping[str, str]:
        """The settings with which Kafka's clients connect, by librdkafka's names."""
        return {"bootstrap.servers": self.kafka_bootstrap_servers}

    def load_settings(self, library: Library) -> Mapping[str, str]:
        """Return the settings with which the library's clients, those under load, connect."""
        return self.kafka_client_settings if library.is_kafkas else self.client_settings

    @property
    def members(self) -> Sequence[Member]:
        """The processes that faults may hit."""
        return ()

    def refusals(self, faults: Iterable[str]) -> Mapping[str, str]:
        """Return the faults that are impossible here, each with the reason. Called before :meth:`start`."""
        return dict.fromkeys(faults, "this driver does nothing to the cluster; use --faults none")

    def start(self) -> None:
        """Start the cluster, or find it; it is ready when the call returns."""

    def close(self) -> None:
        """Undo all faults, and end everything that :meth:`start` began."""

    def is_running(self, member: Member) -> bool:
        """Return whether the process exists, even paused."""
        return True

    def kill(self, member: Member) -> None:
        """End the process at once."""
        raise _not_refused("kill")

    def stop(self, member: Member) -> None:
        """Stop the process in a controlled way, and wait until it is gone."""
        raise _not_refused("stop")

    def revive(self, member: Member) -> None:
        """Restart a process that was killed or stopped."""

    def pause(self, member: Member) -> None:
        """Suspend the process without ending it."""
        raise _not_refused("pause")

    def resume(self, member: Member) -> None:
        """End :meth:`pause`."""

    def slow(self, member: Member, share: float) -> None:
        """Leave the process about ``share`` of the CPU time, from 0 to 1."""
        raise _not_refused("slow")

    def unslow(self, member: Member) -> None:
        """End :meth:`slow`."""

    def cut(self, cut: Cut) -> None:
        """Drop all packets from the first to the second of each pair, in place of the previous cut.

        An empty cut heals the network.
        """
        if cut:
            raise _not_refused("partition")

    def delay(self, member: Member, delay: Delay) -> None:
        """Delay the packets that the process sends to the others."""
        raise _not_refused("delay")

    def undelay(self, member: Member) -> None:
        """End :meth:`delay`."""

    def fill_disk(self, member: Member) -> None:
        """Leave no space on the disk of a node."""
        raise _not_refused("disk-full")

    def free_disk(self, member: Member) -> None:
        """End :meth:`fill_disk`."""

    def damage(self, member: Member, kind: str, dice: random.Random) -> str | None:
        """Damage data that a killed node had not synced, as a machine's crash may; return a description.

        ``kind`` is ``truncate`` or ``flip`` of one log, or ``lose``: all unflushed data of every log. None means that
        there was nothing to damage.
        """
        raise _not_refused("disk-corrupt")

    def skew(self, member: Member, ms: int) -> None:
        """Move the wall clock of the process ahead of the machine's, or behind if negative; 0 heals."""
        if ms:
            raise _not_refused("clock")

    def renew_certificate(self, member: Member) -> None:
        """Give the process a new certificate, which it must use without a restart."""
        raise _not_refused("certificates")

    def spoil_certificate(self, member: Member, kind: str) -> None:
        """Replace the process's certificate by an ``expired`` or a ``broken`` one, which it must refuse."""
        raise _not_refused("certificates")

    def change_credentials(self, kind: str) -> str | None:
        """Give the clients' user a ``new-password``, of which the clients are told, or another salt for the
        ``same-password``, or create and delete an ``other-user``.

        Return a description, or None if the cluster did not answer.
        """
        raise _not_refused("credentials")

    def connect_library(self, library: Library) -> None:
        """Tell the library's clients of each new password."""

    def faults_of_credentials(self, library: Library) -> list[str]:
        """Return what is wrong with users and passwords, as sentences. No fault is active."""
        return []

    def failures(self) -> Mapping[Member, str]:
        """Return how processes ended that this run did not end."""
        return {}

    def stop_nodes(self) -> bool:
        """Stop the nodes in a controlled way, so that their files can be read; False if that is not possible."""
        return False

    def replica_folders(self, partition: str) -> Mapping[str, Path]:
        """Return the folder of each replica of ``topic-0`` by its node's name; empty if the files are elsewhere."""
        return {}


def _not_refused(fault: str) -> AssertionError:
    return AssertionError(f"{fault} was not refused before the run")

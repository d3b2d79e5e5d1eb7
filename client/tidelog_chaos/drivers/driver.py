"""What a run needs of a cluster: the processes it has, and the ways to hurt and heal each of them.

A driver does one thing to one process when it is told to; which, when and for how long is the nemesis's business. What
a driver does ends with it: :meth:`FaultDriver.close` undoes everything, and so does the end of the runner's process, in
whatever way it comes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol


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
"""Pairs (from, to) between which no packet passes in that direction."""


@dataclass(frozen=True, slots=True)
class Delay:
    """What happens to each packet that a process sends: it waits ``ms`` plus or minus ``jitter_ms``, or is lost."""

    ms: float = 100
    jitter_ms: float = 50
    loss: float = 0.0
    """The share that is lost, from 0 to 1."""

    def __str__(self) -> str:
        return f"{self.ms:.0f} ± {self.jitter_ms:.0f} ms, {self.loss:.0%} lost"


class FaultDriver(Protocol):
    """A cluster under faults. One thread uses it; every method blocks.

    Each fault has a method that begins it and one that ends it; ending what did not begin does nothing. Those faults
    that :meth:`refusals` names are never asked for.
    """

    @property
    def bootstrap_servers(self) -> str:
        """Where clients find the cluster."""

    @property
    def kafka_bootstrap_servers(self) -> str:
        """Where clients of Kafka find it: at addresses that lead to the nodes' Kafka listeners, from this process."""

    @property
    def members(self) -> Sequence[Member]:
        """The processes that faults may hit."""

    def refusals(self, faults: Iterable[str]) -> Mapping[str, str]:
        """Return those of the faults that cannot be had here, each with the reason. Called before :meth:`start`."""

    def start(self) -> None:
        """Bring the cluster up, or find it; it is ready when the call returns."""

    def close(self) -> None:
        """Undo all faults, and end what :meth:`start` began."""

    def is_running(self, member: Member) -> bool:
        """Return whether the process exists; a paused one does."""

    def kill(self, member: Member) -> None:
        """End the process at once."""

    def stop(self, member: Member) -> None:
        """Stop the process in a controlled way, and wait until it is gone."""

    def revive(self, member: Member) -> None:
        """Let a process that was killed or stopped come back."""

    def pause(self, member: Member) -> None:
        """Stop the process without ending it."""

    def resume(self, member: Member) -> None:
        """End :meth:`pause`."""

    def slow(self, member: Member, share: float) -> None:
        """Leave the process about ``share`` of the time, from 0 to 1."""

    def unslow(self, member: Member) -> None:
        """End :meth:`slow`."""

    def cut(self, cut: Cut) -> None:
        """Let no packet pass from the first to the second of each pair; the empty cut heals. The last call holds."""

    def delay(self, member: Member, delay: Delay) -> None:
        """Delay what the process sends to the others."""

    def undelay(self, member: Member) -> None:
        """End :meth:`delay`."""

    def fill_disk(self, member: Member) -> None:
        """Leave no space on the disk of a node."""

    def free_disk(self, member: Member) -> None:
        """End :meth:`fill_disk`."""

    def damage(self, member: Member, kind: str, dice: random.Random) -> str | None:
        """Change what a killed node had not put on the disk, as a machine's crash may; returns what was done.

        ``kind`` is ``truncate`` or ``flip`` of one log, or ``lose``: all that was not flushed, of every log. None says
        that there was nothing to damage.
        """

    def skew(self, member: Member, ms: int) -> None:
        """Put the wall clock of the process so far before (or, negative, behind) the machine's; 0 heals."""

    def failures(self) -> Mapping[Member, str]:
        """Return how processes ended that nobody here ended."""

    def stop_nodes(self) -> bool:
        """Stop the nodes in a controlled way, so that their files can be read; False where that is not possible."""

    def replica_folders(self, partition: str) -> Mapping[str, Path]:
        """Return by its node's name where each replica of ``topic-0`` has its files; empty where they are elsewhere."""

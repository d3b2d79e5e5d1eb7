"""The base of the drivers, which supports no fault: a driver supports the faults that it overrides."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tidelog_chaos.drivers.driver import Cut, Delay, Member


class Unsupported:
    """An existing cluster at the given addresses, to which nothing is done.

    The base of the drivers: a fault without an override fails here, and is refused before a run begins.
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
        """The addresses at which Kafka clients find the cluster."""
        return self._kafka_bootstrap_servers

    @property
    def members(self) -> Sequence[Member]:
        """No process that a fault could hit."""
        return ()

    def refusals(self, faults: Iterable[str]) -> Mapping[str, str]:
        """Refuse every fault."""
        return dict.fromkeys(faults, "this driver does nothing to the cluster; use --faults none")

    def start(self) -> None:
        """Do nothing: the cluster exists."""

    def close(self) -> None:
        """Do nothing."""

    def is_running(self, member: Member) -> bool:
        """Return True: no fault here ends it."""
        return True

    def kill(self, member: Member) -> None:
        """Fail."""
        raise _refused("kill")

    def stop(self, member: Member) -> None:
        """Fail."""
        raise _refused("stop")

    def revive(self, member: Member) -> None:
        """Do nothing."""

    def pause(self, member: Member) -> None:
        """Fail."""
        raise _refused("pause")

    def resume(self, member: Member) -> None:
        """Do nothing."""

    def slow(self, member: Member, share: float) -> None:
        """Fail."""
        raise _refused("slow")

    def unslow(self, member: Member) -> None:
        """Do nothing."""

    def cut(self, cut: Cut) -> None:
        """Fail, except for the empty cut."""
        if cut:
            raise _refused("partition")

    def delay(self, member: Member, delay: Delay) -> None:
        """Fail."""
        raise _refused("delay")

    def undelay(self, member: Member) -> None:
        """Do nothing."""

    def fill_disk(self, member: Member) -> None:
        """Fail."""
        raise _refused("disk-full")

    def free_disk(self, member: Member) -> None:
        """Do nothing."""

    def damage(self, member: Member, kind: str, dice: random.Random) -> str | None:
        """Fail."""
        raise _refused("disk-corrupt")

    def skew(self, member: Member, ms: int) -> None:
        """Fail, except for 0."""
        if ms:
            raise _refused("clock")

    def failures(self) -> Mapping[Member, str]:
        """Return nothing: the run does not own the processes."""
        return {}

    def stop_nodes(self) -> bool:
        """Return False: the run does not own the nodes."""
        return False

    def replica_folders(self, partition: str) -> Mapping[str, Path]:
        """Return nothing: the files are elsewhere."""
        return {}


def _refused(fault: str) -> AssertionError:
    return AssertionError(f"{fault} was not refused before the run")

"""Processes of this machine on loopback: killed, suspended, slowed down, with small disks and clocks of their own.

Pauses and the processes themselves end with the runner, because a guardian then kills the whole group; the small disks
are mounted in the run's own namespace (:mod:`tidelog_chaos.isolation`).
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tidelog.testing.local import LocalCluster, divide_settings
from tidelog.testing.process import Place, ProcessHandle
from tidelog_chaos.background import BackgroundThread
from tidelog_chaos.deadline import Deadline
from tidelog_chaos.drivers.disks import SmallDisk
from tidelog_chaos.drivers.driver import FaultDriver, Member
from tidelog_chaos.drivers.log_damage import damage_log
from tidelog_chaos.drivers.users import REAUTHENTICATION_MS, RunUsers
from tidelog_chaos.isolation import is_isolated, why_not
from tidelog_chaos.skewed_clock import write_skew
from tidelog_chaos.workload.library import Library

_READY_S = 120.0
_STOP_S = 30.0
_ENDS_OF_A_STOP = (0, -signal.SIGTERM)
"""SIGTERM counts only before the process has run a line: later it always has a handler."""
_NETWORK = "all processes share this machine's loopback: use --driver netns"


class LocalDriver(FaultDriver):
    """A :class:`~tidelog.testing.LocalCluster` in ``data_dir`` with faults.

    With ``security``, all connections are encrypted and authenticated, as in a ``LocalCluster``. With ``disk-full``
    among the ``faults`` each node has a disk of ``disk_mib`` MiB in memory, with ``clock`` each process a clock of its
    own. ConfigError refuses an unknown setting of ``config`` at once.
    """

    def __init__(
        self,
        data_dir: Path,
        controllers: int,
        nodes: int,
        config: Mapping[str, object],
        faults: Sequence[str],
        disk_mib: int = 512,
        security: str | None = None,
    ) -> None:
        super().__init__()
        divide_settings(config)
        if security is not None:
            config = {"connections.max.reauth.ms": REAUTHENTICATION_MS, **config}
        self._data_dir = data_dir
        self._users: RunUsers | None = None
        self._cluster = LocalCluster(controllers, nodes, data_dir, config, place=self._place, security=security)
        self._members = [Member("controller", i + 1) for i in range(controllers)]
        self._members += [Member("node", i + 1) for i in range(nodes)]
        self._faults = faults
        self._is_secured = security is not None
        self._disk_mib = disk_mib
        self._disks: dict[Member, SmallDisk] = {}
        self._slowed: dict[Member, DutyCycle] = {}

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes."""
        return self._cluster.bootstrap_servers

    @property
    def kafka_bootstrap_servers(self) -> str:
        """The addresses of all nodes' Kafka listeners."""
        return self._cluster.kafka_bootstrap_servers

    @property
    def client_settings(self) -> Mapping[str, str]:
        """The settings of the cluster's administrator."""
        return self._cluster.client_settings()

    @property
    def kafka_client_settings(self) -> Mapping[str, str]:
        """The settings of the cluster's administrator."""
        return self._cluster.kafka_client_settings()

    def load_settings(self, library: Library) -> Mapping[str, str]:
        """Return the settings of the clients' user of a cluster with users."""
        settings = super().load_settings(library)
        return settings if self._users is None else self._users.client_settings(settings)

    @property
    def members(self) -> Sequence[Member]:
        """All processes."""
        return self._members

    def refusals(self, faults: Iterable[str]) -> Mapping[str, str]:
        """Refuse the faults that loopback, this machine or its user does not support."""
        reasons = {fault: self._refusal(fault) for fault in faults}
        return {fault: reason for fault, reason in reasons.items() if reason}

    def start(self) -> None:
        """Start every process and wait until it is ready."""
        for member in self._members:
            directory = self._directory(member)
            directory.mkdir(parents=True, exist_ok=True)
            if "clock" in self._faults:
                write_skew(self._clock_file(member), 0)
            if "disk-full" in self._faults and member.kind == "node":
                self._disks[member] = SmallDisk(directory / "data", self._disk_mib)
                self._disks[member].mount()
        self._cluster.start()
        self._cluster.wait_ready(_READY_S)
        if self._is_secured:
            self._users = RunUsers(self.client_settings)
            self._users.create()

    def close(self) -> None:
        """End every process at once; the nodes' data on disks in memory is copied to their folders."""
        if self._users is not None:
            self._users.close()
        for member in list(self._slowed):
            self.unslow(member)
        for process in self._processes():
            process.kill()
        self._cluster.close()
        while self._disks:
            self._disks.popitem()[1].unmount()

    def is_running(self, member: Member) -> bool:
        """Return whether the process exists."""
        return self._process(member).is_running

    def kill(self, member: Member) -> None:
        """Send SIGKILL."""
        self._process(member).kill()

    def stop(self, member: Member) -> None:
        """Send SIGTERM; raise RuntimeError if the process does not end cleanly."""
        process = self._process(member)
        code = process.stop(_STOP_S)
        if code not in _ENDS_OF_A_STOP:
            raise RuntimeError(f"{member} ended with {code} when it was told to stop: {process.log_tail()}")

    def revive(self, member: Member) -> None:
        """Start the process again."""
        self._process(member).start()

    def pause(self, member: Member) -> None:
        """Send SIGSTOP."""
        self._process(member).pause()

    def resume(self, member: Member) -> None:
        """Send SIGCONT."""
        self._process(member).resume()

    def slow(self, member: Member, share: float) -> None:
        """Send SIGSTOP and SIGCONT, ten times a second."""
        self.unslow(member)
        cycle = self._slowed[member] = DutyCycle(self._process(member), share)
        cycle.start()

    def unslow(self, member: Member) -> None:
        """End :meth:`slow`."""
        cycle = self._slowed.pop(member, None)
        if cycle is not None:
            cycle.stop()

    def fill_disk(self, member: Member) -> None:
        """Let another file take all space."""
        self._disks[member].fill()

    def free_disk(self, member: Member) -> None:
        """Remove that file."""
        if member in self._disks:
            self._disks[member].make_room()

    def damage(self, member: Member, kind: str, dice: random.Random) -> str | None:
        """Truncate a log or all of them, or flip a bit in one, behind the flushed part."""
        return damage_log(self._directory(member) / "data", kind, dice)

    def skew(self, member: Member, ms: int) -> None:
        """Change the process's wall clock."""
        if "clock" in self._faults:
            write_skew(self._clock_file(member), ms)

    def renew_certificate(self, member: Member) -> None:
        """Replace the file of the process's certificate and key."""
        self._cluster.security.issue(_name(member), self._process(member).host)

    def spoil_certificate(self, member: Member, kind: str) -> None:
        """Replace that file by an expired certificate, or by half of the file."""
        self._cluster.security.spoil(_name(member), kind)

    def change_credentials(self, kind: str) -> str | None:
        """Alter the credentials as the administrator."""
        assert self._users is not None
        return self._users.change(kind)

    def connect_library(self, library: Library) -> None:
        """Tell the library's clients of each new password of their user."""
        if self._users is not None:
            self._users.on_change = library.replace_credentials

    def faults_of_credentials(self, library: Library) -> list[str]:
        """Try former passwords at each node, and revoke the rights of a connected user."""
        if self._users is None:
            return []
        settings = super().load_settings(library)
        return self._users.faults(library, settings["bootstrap.servers"].split(","), settings)

    def failures(self) -> Mapping[Member, str]:
        """Return how processes ended by themselves, with their last output."""
        found = {member: self._process(member).failure for member in self._members}
        return {member: failure for member, failure in found.items() if failure is not None}

    def stop_nodes(self) -> bool:
        """Send SIGTERM to all nodes; return whether all ended cleanly."""
        nodes = [process for process in self._processes() if process.name.startswith("node")]
        for node in nodes:
            node.terminate()
        deadline = Deadline(_STOP_S)
        codes = [node.wait_or_kill(deadline.left_s) for node in nodes]
        return all(code in _ENDS_OF_A_STOP for code in codes)

    def replica_folders(self, partition: str) -> Mapping[str, Path]:
        """Return the folder of the partition on each node."""
        folders = {str(m): self._directory(m) / "data" / partition for m in self._members if m.kind == "node"}
        return {name: folder for name, folder in folders.items() if folder.is_dir()}

    def _refusal(self, fault: str) -> str | None:
        match fault:
            case "partition" | "delay":
                return _NETWORK
            case "certificates" | "credentials" if not self._is_secured:
                return "the cluster has no certificates and users without --secure"
            case "disk-full" if not is_isolated():
                reason = why_not(network=False)
                return reason and f"a small disk needs a file system of its own: {reason}"
            case _:
                return None

    def _place(self, kind: str, node_id: int) -> Place:
        return Place(launcher=self._launcher(kind, node_id))

    def _launcher(self, kind: str, node_id: int) -> tuple[str, ...]:
        if "clock" not in self._faults:
            return ("-m",)
        return ("-m", "tidelog_chaos.skewed_clock", str(self._data_dir / f"{kind}-{node_id}" / "clock"))

    def _clock_file(self, member: Member) -> Path:
        return self._directory(member) / "clock"

    def _directory(self, member: Member) -> Path:
        return self._data_dir / _name(member)

    def _process(self, member: Member) -> ProcessHandle:
        return (self._cluster.controllers if member.kind == "controller" else self._cluster.nodes)[member.id]

    def _processes(self) -> list[ProcessHandle]:
        return [*self._cluster.controllers.values(), *self._cluster.nodes.values()]


def _name(member: Member) -> str:
    return f"{member.kind}-{member.id}"


_PERIOD_S = 0.1


class DutyCycle(BackgroundThread):
    """Suspends a process for a part of each tenth of a second until :meth:`stop`, which leaves it running."""

    def __init__(self, process: ProcessHandle, share: float) -> None:
        super().__init__(f"slow {process.name}")
        self._process = process
        self._share = share

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._process.pause()
                self._stopping.wait(_PERIOD_S * (1 - self._share))
                self._process.resume()
                self._stopping.wait(_PERIOD_S * self._share)
        finally:
            self._process.resume()

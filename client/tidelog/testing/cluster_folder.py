"""The data folder of a local cluster: its locks, and the ports and configurations of an earlier cluster.

Two locks ensure that one cluster at a time uses a folder. The owner's lock ends with the process that created the
cluster. The members' lock ends with the last of the cluster's processes, which outlive a killed owner for a moment.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from tidelog.testing.process import PROPERTIES_FILE
from tidelog_foundation.config.endpoints import speaks_grpc
from tidelog_foundation.config.process import load_properties
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.waiting import ReportedBlock

_OWNER_LOCK, _MEMBERS_LOCK = ".owner.lock", ".members.lock"
_MEMBERS_TIMEOUT_S = 10.0
_POLL_INTERVAL_S = 0.02
_LISTENER = re.compile(r"(\w+)://[^,]*:(\d+)")


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one process; 0 for none."""

    port: int = 0
    kafka_port: int = 0


class FolderLocks:
    """The locks of one folder, from :meth:`take` to :meth:`release`."""

    def __init__(self, owner_fd: int, members_fd: int) -> None:
        self._owner_fd = owner_fd
        self.members_fd = members_fd
        """The descriptor that every process of the cluster inherits."""

    @classmethod
    def take(cls, folder: Path) -> FolderLocks:
        """Lock a folder, and create it if it does not exist.

        Raises:
            ConfigError: another cluster runs in it, or processes of an earlier one do not end.
            OSError: it cannot be created or locked.
        """
        folder.mkdir(parents=True, exist_ok=True)
        owner_fd = os.open(folder / _OWNER_LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if not _lock(owner_fd):
                raise ConfigError(
                    f"{folder} is in use by another local cluster: stop that one, or choose another folder"
                )
            return cls(owner_fd, _lock_of_members(folder))
        except BaseException:
            os.close(owner_fd)
            raise

    def release(self) -> None:
        """Release the folder for another cluster."""
        os.close(self.members_fd)
        os.close(self._owner_fd)


def kept_properties(folder: Path, kind: str) -> dict[int, dict[str, str]]:
    """Return the configurations of the controllers (``controller``) or the nodes (``node``) in a folder, by id."""
    paths = {path.parent.name.removeprefix(f"{kind}-"): path for path in folder.glob(f"{kind}-*/{PROPERTIES_FILE}")}
    return {int(number): load_properties(path) for number, path in sorted(paths.items()) if number.isdecimal()}


def kept_ports(folder: Path) -> dict[tuple[str, int], Ports]:
    """Return the latest ports of the processes in a folder by name, such as ``("node", 2)``."""
    return {
        (kind, number): _ports_in(properties.get("listeners", ""))
        for kind in ("controller", "node")
        for number, properties in kept_properties(folder, kind).items()
    }


def _ports_in(listeners: str) -> Ports:
    """Return the ports of a gRPC and of a Kafka listener, whose names are their security protocols."""
    ports = {speaks_grpc(name): int(port) for name, port in _LISTENER.findall(listeners)}
    return Ports(ports.get(True, 0), ports.get(False, 0))


def _lock_of_members(folder: Path) -> int:
    deadline = time.monotonic() + _MEMBERS_TIMEOUT_S
    members_fd = os.open(folder / _MEMBERS_LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    with ReportedBlock(f"processes of an earlier local cluster in {folder} to end"):
        while not _lock(members_fd):
            if time.monotonic() > deadline:
                os.close(members_fd)
                raise ConfigError(
                    f"{folder} is in use by processes of an earlier local cluster that have not ended within "
                    f"{_MEMBERS_TIMEOUT_S:.0f} s"
                )
            time.sleep(_POLL_INTERVAL_S)
    return members_fd


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

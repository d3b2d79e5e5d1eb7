"""The surroundings of this process as the operating system tells them: limits, file systems, clock, version.

A file system may not answer for a long time, so callers on an event loop use a thread.
"""

from __future__ import annotations

import errno
import os
import resource
import time
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Final

from tidelog_foundation.requests.features import FeatureDescription
from tidelog_foundation.requests.processes import (
    MEMORY_MAPS,
    OPEN_FILES,
    THREADS,
    UNLIMITED,
    DescribeProcessResponse,
    DirectoryState,
    ResourceUse,
)

_PROC: Final = Path("/proc")
_CONTROL_GROUPS: Final = Path("/sys/fs/cgroup")


def describe_process(
    directories: Iterable[Path], features: Iterable[FeatureDescription] = ()
) -> DescribeProcessResponse:
    """Return the state of this process with the file systems of its directories. Blocks while a file system does."""
    states = tuple(map(directory_state, directories))
    used = resources()
    # The clock is read last, so that a slow file system does not make it look late.
    time_ms = time.time_ns() // 1_000_000
    return DescribeProcessResponse(time_ms, metadata.version("tidelog"), tuple(features), used, states)


def directory_state(path: Path) -> DirectoryState:
    """Return the state of the file system below a path."""
    try:
        found = os.statvfs(path)
    except OSError as error:
        return DirectoryState(str(path), is_read_only=error.errno == errno.EROFS, error=error.strerror or str(error))
    # Some file systems allocate inodes as they need them and have no number of them.
    files = (found.f_files, found.f_favail) if found.f_files else (-1, -1)
    return DirectoryState(
        str(path),
        bool(found.f_flag & os.ST_RDONLY),
        found.f_blocks * found.f_frsize,
        found.f_bavail * found.f_frsize,
        *files,
    )


def resources(proc: Path = _PROC, control_groups: Path = _CONTROL_GROUPS) -> tuple[ResourceUse, ...]:
    """Return what this process uses of limited resources. The numbers that only Linux has are unknown elsewhere."""
    own = proc / "self"
    processes = [_soft_limit(resource.RLIMIT_NPROC), _control_group_limit(own, control_groups)]
    return (
        ResourceUse(OPEN_FILES, _entries(own / "fd"), _soft_limit(resource.RLIMIT_NOFILE)),
        ResourceUse(THREADS, _entries(own / "task"), min((p for p in processes if p >= 0), default=UNLIMITED)),
        ResourceUse(MEMORY_MAPS, _lines(own / "maps"), _number(proc / "sys" / "vm" / "max_map_count")),
    )


def _soft_limit(kind: int) -> int:
    soft, _ = resource.getrlimit(kind)
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def _control_group_limit(own: Path, control_groups: Path) -> int:
    """Return ``pids.max`` of the process's control group, or the lowest of those above it (cgroup v2)."""
    try:
        lines = (own / "cgroup").read_text().splitlines()
    except OSError:
        return UNLIMITED
    group = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    if group is None:
        return UNLIMITED
    above = [control_groups / group, *(control_groups / group).parents]
    limits = (_number(each / "pids.max") for each in above if each.is_relative_to(control_groups))
    return min((limit for limit in limits if limit >= 0), default=UNLIMITED)


def _number(path: Path) -> int:
    try:
        text = path.read_text().strip()
    except OSError:
        return UNLIMITED
    return int(text) if text.isascii() and text.isdigit() else UNLIMITED


def _entries(path: Path) -> int:
    try:
        return len(os.listdir(path))
    except OSError:
        return UNLIMITED


def _lines(path: Path) -> int:
    try:
        with path.open("rb") as file:
            return sum(1 for _ in file)
    except OSError:
        return UNLIMITED

"""The operating system's figures for a process, from Linux's ``/proc``; KeyError or FileNotFoundError elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

_MB_OF_KIB = 1024 / 1e6


def resident_mb(pid: int) -> float:
    """Return the resident memory in MB, including pages that other processes share."""
    return _smaps(pid)["Rss"] * _MB_OF_KIB


def proportional_mb(pid: int) -> float:
    """Return the proportional set size in MB, which counts a page shared by n processes as an n-th."""
    return _smaps(pid)["Pss"] * _MB_OF_KIB


def anonymous_bytes(pid: int) -> int:
    """Return the process's own memory in bytes, without mapped files."""
    return _smaps(pid)["Anonymous"] * 1024


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def tree_cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process and its descendants, also of those that have ended and were waited for."""
    children: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(path.name))
        used[int(path.name)] = sum(map(int, fields[11:15]))
    total, left = 0, [pid]
    while left:
        each = left.pop()
        total += used[each]
        left += children.get(each, [])
    return total / os.sysconf("SC_CLK_TCK")


def run_seconds(pid: int) -> float:
    """Return the CPU seconds of all threads that live, to the nanosecond; those of :func:`cpu_seconds` are in ticks."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def disk_read_bytes(pid: int) -> int:
    """Return the bytes that the process has caused the storage to read, not those from the page cache."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["read_bytes"])


def file_descriptors(pid: int) -> int:
    """Return the number of open files, sockets and similar descriptors."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads(pid: int) -> int:
    """Return the number of threads."""
    return len(os.listdir(f"/proc/{pid}/task"))


def _smaps(pid: int) -> dict[str, int]:
    """Return the sums over all mappings in KiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {line.partition(":")[0]: int(line.split()[1]) for line in lines}

"""Runs a module with a wall clock that another process puts forward and back: ``python -m tidelog_chaos.skewed_clock``.

It takes a file, then the module and its arguments. The file holds the difference to the machine's clock: 8 bytes, a
little-endian number of milliseconds, read on each look at the clock. What a system administrator or NTP can do to a
clock is done to Python's ``time.time()`` and ``time.time_ns()`` before anything else is loaded; the monotonic clock,
by which leases and timeouts go, stays, as it does on a real machine. So do gRPC's deadlines, which it reckons by the
wall clock before it hands them to a library that sees the machine's. The servers know nothing of it.
"""

from __future__ import annotations

import mmap
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc.aio._utils

SIZE = 8
"""The bytes of the file."""


def write_skew(path: Path, skew_ms: int) -> None:
    """Write how far the clock shall be ahead; a process that has the file takes it over at once."""
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.write(skew_ms.to_bytes(SIZE, "little", signed=True))


def install(path: Path) -> None:
    """Replace the wall clock of this process for its lifetime."""
    with path.open("rb") as file:
        shared = mmap.mmap(file.fileno(), SIZE, access=mmap.ACCESS_READ)
    real: Callable[[], int] = time.time_ns

    def skewed_ns() -> int:
        return real() + int.from_bytes(shared[:SIZE], "little", signed=True) * 1_000_000

    def skewed_s() -> float:
        return skewed_ns() / 1e9

    grpc_utils: Any = grpc.aio._utils
    grpc_utils.time = SimpleNamespace(time=time.time)
    time.time_ns = skewed_ns
    time.time = skewed_s


def main() -> None:
    """Install the clock, then run the module as ``python -m`` would."""
    path, module, *arguments = sys.argv[1:]
    install(Path(path))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

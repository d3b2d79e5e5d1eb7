"""Runs a module with a wall clock that another process can move: ``python -m tidelog_chaos.skewed_clock``.

It takes a file, then the module and its arguments. The file has the difference to the machine's clock: 8 bytes, a
little-endian number of milliseconds, read at each look at the clock. As an administrator or NTP would change the clock,
this module changes Python's ``time.time()`` and ``time.time_ns()`` before anything else is loaded. The monotonic clock,
which leases and timeouts use, is unchanged, as on a real machine. So are gRPC's deadlines, which gRPC computes from the
wall clock before it passes them to a library that uses the machine's. The servers know nothing of it.
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
"""The size of the file in bytes."""


def write_skew(path: Path, skew_ms: int) -> None:
    """Write the clock's lead; a process with the file adopts it at once."""
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

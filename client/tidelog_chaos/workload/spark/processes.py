"""The processes of a Spark program: the driver's Python, its JVM, and the Python workers. Linux only.

All of them inherit a mark in their environment. Workers that outlive a killed JVM have another parent, and are found by
the mark too.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_MARK = "TIDELOG_CHAOS_SPARK"
_PROC = Path("/proc")
_WORKER = b"-m\0pyspark."
_GONE_S = 30.0
KILLS = ("driver", "jvm", "all", "worker", "worker", "workers")
"""The kinds of kills; one that is listed twice is drawn twice as often.

``driver`` is the driver's Python and its JVM, whose workers live on until they notice; ``all`` has the workers as well.
"""


class SparkProcesses:
    """One start of a program, in a process group of its own, with its standard input open."""

    def __init__(self, program: Path, settings: Mapping[str, Any], log: Path, environment: Mapping[str, str]) -> None:
        self._mark = f"{_MARK}={uuid.uuid4().hex}".encode()
        name, _, mark = self._mark.decode().partition("=")
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                # Without -P, modules beside the program would hide others.
                [sys.executable, "-P", str(program)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
                env={**os.environ, **environment, name: mark},
            )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(settings).encode() + b"\n")
            self._process.stdin.flush()

    @property
    def exit_code(self) -> int | None:
        """The exit code of the driver's Python, or None while it runs."""
        return self._process.poll()

    def kill(self, kind: str, dice: random.Random) -> int:
        """Kill processes with SIGKILL, and return their number."""
        found = self._find(kind)
        if kind == "worker" and found:
            found = [dice.choice(found)]
        return _kill(found)

    def end(self) -> None:
        """Kill everything, and wait until it is gone."""
        deadline_s = time.monotonic() + _GONE_S
        while _kill(self._find("all")) and time.monotonic() < deadline_s:
            self._process.poll()
            time.sleep(0.02)
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(_GONE_S)

    def _find(self, kind: str) -> Sequence[int]:
        """Return the processes of a kind: ``worker`` has the workers without the processes that fork them."""
        marked = dict(_marked(self._mark))
        own = {self._process.pid} & marked.keys()
        python = {pid for pid, arguments in marked.items() if _WORKER in arguments}
        match kind:
            case "driver":
                return sorted(marked.keys() - python)
            case "jvm":
                return sorted(marked.keys() - python - own)
            case "workers":
                return sorted(python)
            case "worker":
                parents = {_parent(pid) for pid in python}
                return sorted(python - parents)
            case _:
                return sorted(marked)


def why_no_processes() -> str | None:
    """Return why processes cannot be found here, or None."""
    is_there = (_PROC / "self" / "environ").exists()
    return None if is_there else f"it finds the processes of Spark in {_PROC}, which this system does not have"


def _marked(mark: bytes) -> list[tuple[int, bytes]]:
    found = []
    for folder in _PROC.iterdir():
        # A process may end at any time, and others belong to other users.
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append((int(folder.name), (folder / "cmdline").read_bytes()))
    return found


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        # The name of the program, in parentheses, may contain spaces.
        return int((_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _kill(pids: Sequence[int]) -> int:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)

"""`SparkProcess`: a command with a Spark driver as a process of its own, which tests kill as a whole or in part."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

_TIMEOUT_S = 30.0


class SparkProcess:
    """``tidelog ARGUMENT...``, which is started again wherever it has ended. ``log`` gets what it prints."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        self._command = [str(Path(sys.executable).with_name("tidelog")), *arguments]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    @property
    def is_running(self) -> bool:
        """True while the process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process unless it runs."""
        if self.is_running:
            return
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.starts += 1

    def kill(self) -> None:
        """End the process at once. Its JVM ends by itself, soon after."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """End the process in order, or at once if it takes too long."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def terminate(self, timeout_s: float) -> int:
        """Send SIGTERM, and return the exit code.

        Raises:
            TimeoutExpired: the process does not end in time.
        """
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(timeout_s)

    def wait(self, timeout_s: float) -> int:
        """Wait until the process has ended by itself, and return the exit code.

        Raises:
            TimeoutExpired: it does not end in time.
        """
        assert self._process is not None
        return self._process.wait(timeout_s)

    def kill_jvm(self) -> bool:
        """Kill the driver's JVM. Return False if there is none."""
        return self._kill_first("java")

    def kill_python_worker(self) -> bool:
        """Kill a Python process of the executor, of its tasks. Return False if there is none."""
        return self._kill_first("python", below="java")

    def jvm_pid(self) -> int | None:
        """Return the pid of the driver's JVM, or None if there is none."""
        return next(self._pids("java", None), None)

    def _kill_first(self, name: str, below: str | None = None) -> bool:
        for pid in self._pids(name, below):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            return True
        return False

    def _pids(self, name: str, below: str | None) -> Iterator[int]:
        assert self._process is not None
        found = _descendants(self._process.pid, below is None)
        return (pid for pid, command in found if command.startswith(name))


def _descendants(root: int, is_below: bool) -> Iterator[tuple[int, str]]:
    """Yield the pids and commands below a process, the deepest first; without ``is_below``, those below its JVM."""
    children: dict[int, list[tuple[int, str]]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                text = (folder / "stat").read_text()
            except OSError:
                continue
            command, _, rest = text.partition("(")[2].rpartition(")")
            children.setdefault(int(rest.split()[1]), []).append((int(folder.name), command))
    pending, found = [(root, is_below)], []
    while pending:
        parent, is_counted = pending.pop(0)
        for pid, command in children.get(parent, ()):
            if is_counted:
                found.append((pid, command))
            pending.append((pid, is_counted or command == "java"))
    yield from reversed(found)

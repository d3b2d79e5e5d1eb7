"""``load_client``, the compiled client of loads that Python could not send, which Go builds on the fly."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from benchmarks.peers.peer import Memory

_SOURCE: Final = Path(__file__).parent / "load_client"
_PROGRAM: Final = Path(__file__).parents[2] / "build" / "peers" / "load-client"
_DEADLINE_S: Final = 300.0

Flags = Mapping[str, object]
Answer = Mapping[str, Any]
"""The figures of a command, and percentiles of the times that it measured, by name."""


class Target(Protocol):
    """The cluster under load."""

    @property
    def name(self) -> str:
        """Its name in error messages."""

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the brokers' Kafka listeners."""

    def pids(self) -> Mapping[str, int]:
        """Return the ids of the processes whose CPU time is measured."""

    def memory(self) -> Memory:
        """Return the current memory of the processes."""


class LoadClient:
    """The commands of the client, each a process of its own. Flags have ``_`` for hyphens."""

    def __init__(self) -> None:
        """Build the client.

        Raises:
            FileNotFoundError: Go is not installed.
            subprocess.CalledProcessError: The build failed.
        """
        go = shutil.which("go")
        if go is None:
            raise FileNotFoundError("there is no go on the PATH; the client of these loads is built with it")
        _PROGRAM.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([go, "build", "-o", _PROGRAM, "."], cwd=_SOURCE, check=True)

    def run(self, target: Target, command: str, flags: Flags, deadline_s: float = _DEADLINE_S) -> Answer:
        """Run a command to its end, and add the cluster's resident memory of that time, ``resident_mb``.

        Raises:
            RuntimeError: The client failed.
            subprocess.TimeoutExpired: It took longer than the deadline.
        """
        with self.started(target, command, flags) as client:
            return {**client.answer(deadline_s), "resident_mb": target.memory().resident}

    @contextlib.contextmanager
    def started(self, target: Target, command: str, flags: Flags) -> Iterator[RunningClient]:
        """Start a command, yield it, and kill it if it still runs afterwards."""
        arguments = command_line(target.bootstrap_servers, target.pids(), command, flags)
        with subprocess.Popen(
            [str(_PROGRAM), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield RunningClient(process, f"{command} on {target.name}")
            finally:
                process.kill()


class RunningClient:
    """A command that runs."""

    def __init__(self, process: subprocess.Popen[str], name: str) -> None:
        self._process = process
        self._name = name

    def first_line(self) -> Answer:
        """Wait for the first object of a command that prints more than one.

        Raises:
            RuntimeError: The client failed before.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(self._failure(self._process.communicate()[1]))
        return _answer(line)

    def check(self) -> None:
        """Raise RuntimeError if the command has ended."""
        if self._process.poll() is not None:
            raise RuntimeError(self._failure(self._process.communicate()[1]))

    def answer(self, deadline_s: float = _DEADLINE_S) -> Answer:
        """Close the client's input, wait for its end, and return what it has measured.

        Raises:
            RuntimeError: The client failed.
            subprocess.TimeoutExpired: It took longer than the deadline.
        """
        output, errors = self._process.communicate(timeout=deadline_s)
        if self._process.returncode:
            raise RuntimeError(self._failure(errors))
        return _answer(output)

    def _failure(self, errors: str) -> str:
        return f"{self._name}: {errors.strip()}"


def command_line(servers: str, pids: Mapping[str, int], command: str, flags: Flags) -> list[str]:
    """Return the arguments of a command."""
    own = {"servers": servers, "pids": ",".join(map(str, pids.values())), **flags}
    return [command, *(f"-{key.replace('_', '-')}={value}" for key, value in own.items())]


def _answer(text: str) -> Answer:
    found = json.loads(text)
    assert isinstance(found, dict)
    return found

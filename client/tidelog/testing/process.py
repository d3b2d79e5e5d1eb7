"""A process of a test cluster (start, kill, pause, resume, stop) and its process group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, ClassVar, Protocol

from tidelog.testing import guardian
from tidelog_foundation.waiting import ReportedBlock

PROPERTIES_FILE = "server.properties"
"""The name of a process's configuration file in its directory."""
_LOG_TAIL_LINES = 12
_GONE_S = 60.0
"""A killed process is gone sooner, unless the kernel cannot end it."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place where a process of a cluster runs, and its start command there.

    A ``port`` or ``kafka_port`` of 0 stands for any free port of this machine. ``wrapper`` is a command, such as
    ``nsenter``, that runs the interpreter with its arguments and keeps the process id. ``launcher`` has the
    interpreter's arguments before the module's name and arguments.
    """

    host: str = "127.0.0.1"
    port: int = 0
    wrapper: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ("-m",)
    kafka_port: int = 0


@dataclass(frozen=True, slots=True)
class Start:
    """A start of an interpreter with ``arguments``, whose output is appended to ``log``.

    The process joins the process group ``group`` and keeps the descriptors ``inherited`` open. ``wrapper`` is that of
    its :class:`Place`.
    """

    wrapper: tuple[str, ...]
    arguments: tuple[str, ...]
    log: Path
    group: int
    inherited: tuple[int, ...]
    environment: Mapping[str, str]


class RunningProcess(Protocol):
    """A started process: the part of :class:`subprocess.Popen` that a :class:`ProcessHandle` uses."""

    @property
    def pid(self) -> int:
        """The process id."""

    @property
    def returncode(self) -> int | None:
        """The exit code that ``poll`` or ``wait`` has returned, or None."""

    def poll(self) -> int | None:
        """Return the exit code of a process that has ended, negative for a signal, or None."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code. Raise subprocess.TimeoutExpired."""

    def send_signal(self, sig: int) -> None:
        """Send a signal to the process unless it has ended."""


def start_process(start: Start) -> RunningProcess:
    """Start a fresh interpreter."""
    with start.log.open("ab") as log:
        return subprocess.Popen(
            [*start.wrapper, sys.executable, *start.arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            process_group=start.group,
            pass_fds=start.inherited,
            env=start.environment,
        )


def start_environment() -> dict[str, str]:
    """Return the environment of a cluster's processes: this process's, without gRPC's own reports."""
    return {**os.environ, "GRPC_VERBOSITY": os.environ.get("GRPC_VERBOSITY", "NONE")}


class ProcessGroup:
    """The process group of a cluster. All its processes die with the process that created it.

    ``inherited`` has descriptors that every member keeps open for its life.
    """

    def __init__(self, inherited: Sequence[int] = ()) -> None:
        self.inherited = tuple(inherited)
        self._guardian = subprocess.Popen(
            [sys.executable, "-I", "-S", guardian.__file__], stdin=subprocess.PIPE, process_group=0
        )

    @property
    def id(self) -> int:
        """The process group id of new members."""
        return self._guardian.pid

    def close(self) -> None:
        """Kill every member at once and reap the guardian."""
        stdin: IO[bytes] | None = self._guardian.stdin
        if stdin is not None and not stdin.closed:
            stdin.close()
        self._guardian.wait()


class ProcessHandle:
    """A controller or a storage node of a :class:`~tidelog.testing.LocalCluster`.

    Not thread-safe: use a process from one thread at a time. ``launch`` starts the processes of all clusters; a program
    with many clusters may replace it by a quicker start.
    """

    launch: ClassVar[Callable[[Start], RunningProcess]] = staticmethod(start_process)

    def __init__(self, node_id: int, module: str, place: Place, directory: Path, group: ProcessGroup) -> None:
        self.id = node_id
        self.host = place.host
        self.port = place.port
        self.kafka_port = place.kafka_port
        self._place = place
        self.directory = directory
        self.metrics_address: str | None = None
        """``host:port`` of its metrics, None without them."""
        self._module = module
        self._group = group
        self._process: RunningProcess | None = None
        self._is_ended = False

    @property
    def address(self) -> str:
        """``host:port`` of its gRPC listener; unchanged by a restart."""
        return f"{self.host}:{self.port}"

    @property
    def kafka_address(self) -> str:
        """``host:port`` of a node's Kafka listener; unchanged by a restart. Controllers have none."""
        return f"{self.host}:{self.kafka_port}"

    @property
    def pid(self) -> int:
        """The process id of the latest start. Raise RuntimeError before the first."""
        if self._process is None:
            raise RuntimeError(f"{self.name} was never started")
        return self._process.pid

    @property
    def name(self) -> str:
        """The name in messages, e.g. ``node 2``."""
        return f"{'node' if self._module == 'tidelog_node' else 'controller'} {self.id}"

    @property
    def is_running(self) -> bool:
        """True if the process exists, possibly paused."""
        return self._process is not None and self._process.poll() is None

    @property
    def failure(self) -> str | None:
        """The unexpected end of the process with its last output, or None."""
        if self._process is None or self._is_ended or self._process.poll() is None:
            return None
        return f"{self.name} ended by itself with exit code {self._process.returncode}:\n{self.log_tail()}"

    @property
    def log_path(self) -> Path:
        """The file with the process's output, over all of its starts."""
        return self.directory / "process.log"

    @property
    def properties_path(self) -> Path:
        """The process's configuration file."""
        return self.directory / PROPERTIES_FILE

    def configure(self, properties: Mapping[str, object]) -> None:
        """Write the configuration for the next start. Only the owner can read it, since it may contain passwords."""
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = [f"{key}={value}" for key, value in properties.items()]
        self.properties_path.touch(0o600)
        self.properties_path.write_text("\n".join(lines) + "\n")

    def start(self) -> None:
        """Start the process unless it is running; return before it is ready."""
        if self.is_running:
            return
        self._is_ended = False
        self._process = ProcessHandle.launch(
            Start(
                self._place.wrapper,
                (*self._place.launcher, self._module, str(self.properties_path)),
                self.log_path,
                self._group.id,
                self._group.inherited,
                start_environment(),
            )
        )

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process has ended.

        Raises:
            RuntimeError: The process still exists after a minute.
        """
        self._end(signal.SIGKILL)
        try:
            with ReportedBlock(f"{self.name} to be gone after SIGKILL"):
                self.wait(_GONE_S)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{self.name} still exists {_GONE_S:.0f} s after SIGKILL") from None

    def pause(self) -> None:
        """Send SIGSTOP: the process keeps its connections and does nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT after a pause."""
        self._signal(signal.SIGCONT)

    def stop(self, timeout_s: float = 20.0) -> int:
        """Send SIGTERM (a clean stop) and wait, with SIGKILL after ``timeout_s``. Return the exit code."""
        self.terminate()
        with ReportedBlock(f"{self.name} to stop"):
            return self.wait_or_kill(timeout_s)

    def terminate(self) -> None:
        """Send SIGTERM, which requests a clean stop, without waiting."""
        self._end(signal.SIGTERM)

    def wait_or_kill(self, timeout_s: float) -> int:
        """Wait for the process to end, with SIGKILL after ``timeout_s``. Return the exit code."""
        try:
            return self.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return -signal.SIGKILL

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for the process to end. Raise subprocess.TimeoutExpired."""
        return 0 if self._process is None else self._process.wait(timeout_s)

    def log_tail(self) -> str:
        """Return the last lines of the process's output."""
        with contextlib.suppress(FileNotFoundError):
            return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:])
        return ""

    def _end(self, number: signal.Signals) -> None:
        if self.is_running:
            self._is_ended = True
            self._signal(number)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

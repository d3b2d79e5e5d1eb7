"""The start of the processes of a :class:`~tidelog.testing.LocalCluster` by a fork of a server that has imported them.

``ProcessHandle.launch = ForkedProcesses().launch`` makes all clusters of this process use one server. A start for which
a fork differs from a fresh process is a fresh one: another environment, other limits or another namespace than at the
creation of :class:`ForkedProcesses`, a wrapper other than ``nsenter --net=FILE --``, or an interpreter that runs no
module. Needs Linux.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import fork_server
from fork_server import MAX_REQUEST_BYTES, ForkRequest

from tidelog.testing.process import RunningProcess, Start, start_environment, start_process

_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_LIMITS = sorted(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))
_NETWORK = "--net="
_UNREAD = ("PYTEST_", "SPARK_", "PYSPARK_")
"""Beginnings of variables of the environment that tests and Spark change and that no process of a cluster reads."""


class ForkedProcesses:
    """A fork server, started by the first use, and its children. The server ends with this process or before."""

    def __init__(self) -> None:
        self._surroundings = _surroundings(start_environment())
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self, start: Start) -> RunningProcess:
        """Start a process by a fork where that equals a fresh start, else as a fresh one."""
        if not self._is_like_the_server(start):
            return start_process(start)
        _, module, *arguments = start.arguments
        ignored = tuple(number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_IGN)
        network = start.wrapper[1].removeprefix(_NETWORK) if start.wrapper else ""
        request = ForkRequest(module, tuple(arguments), os.getcwd(), start.group, ignored, network)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, start.log.open("ab") as log:
            descriptors = [log.fileno(), theirs.fileno(), *start.inherited]
            socket.send_fds(self._server(), [request.encode()], descriptors)
        return ForkedProcess(ours, start.arguments)

    def close(self) -> None:
        """End the server. Its children must have ended."""
        if self._control is not None and self._process is not None:
            self._control.close()
            self._process.wait()
            self._control = self._process = None

    def _is_like_the_server(self, start: Start) -> bool:
        is_module = start.arguments[0] == "-m"
        return is_module and _is_known(start.wrapper) and self._surroundings == _surroundings(start.environment)

    def _server(self) -> socket.socket:
        with self._lock:
            if self._control is None:
                self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with theirs:
                    # Its own process group: Ctrl-C ends the tests, which end their clusters.
                    self._process = subprocess.Popen(
                        [sys.executable, fork_server.__file__, str(theirs.fileno())],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        pass_fds=[theirs.fileno()],
                        process_group=0,
                        env=dict(self._surroundings.environment),
                    )
            return self._control


def _is_known(wrapper: tuple[str, ...]) -> bool:
    """Return whether a child can do as the wrapper: nothing, or the entry of a network namespace."""
    match wrapper:
        case ():
            return True
        case ("nsenter", network, "--"):
            return network.startswith(_NETWORK)
        case _:
            return False


class ForkedProcess:
    """A child of the fork server, with the meaning of the same members of :class:`subprocess.Popen`."""

    def __init__(self, channel: socket.socket, arguments: tuple[str, ...]) -> None:
        self._channel = channel
        self._arguments = arguments
        self.returncode: int | None = None
        answer = channel.recv(MAX_REQUEST_BYTES).decode()
        if not answer.isdecimal():
            channel.close()
            raise OSError(f"cannot fork {' '.join(arguments)}: {answer or 'the fork server ended'}")
        self.pid = int(answer)

    def poll(self) -> int | None:
        """Return the exit code of a process that has ended, negative for a signal, or None."""
        if self.returncode is None and select.select([self._channel], [], [], 0)[0]:
            self._take_end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code. Raise subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._channel], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self._arguments, timeout or 0.0)
            self._take_end()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """Send a signal to the process unless it has ended. Its id is its own until ``poll`` has seen the end."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def _take_end(self) -> None:
        answer = self._channel.recv(MAX_REQUEST_BYTES)
        self._channel.close()
        if not answer:
            raise OSError(f"cannot follow process {self.pid} ({' '.join(self._arguments)}): the fork server ended")
        self.returncode = int(answer)


class _Surroundings(NamedTuple):
    """The properties of a process that its children have too."""

    environment: Mapping[str, str]
    namespaces: tuple[str, ...]
    groups: str
    limits: tuple[tuple[int, int], ...]
    processors: frozenset[int]
    niceness: int
    file_mode_mask: str


def _surroundings(environment: Mapping[str, str]) -> _Surroundings:
    process = Path("/proc/self")
    status = (process / "status").read_text()
    return _Surroundings(
        {name: value for name, value in environment.items() if not name.startswith(_UNREAD)},
        tuple(os.readlink(namespace) for namespace in sorted((process / "ns").iterdir())),
        (process / "cgroup").read_text(),
        tuple(resource.getrlimit(number) for number in _LIMITS),
        frozenset(os.sched_getaffinity(0)),
        os.nice(0),
        next(line for line in status.splitlines() if line.startswith("Umask")),
    )

"""`ConnectProcess`: ``tidelog connect`` as a process of its own, which tests kill as a whole or in part."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2

from tidelog.testing.ports import free_ports

_TIMEOUT_S = 30.0


class ConnectProcess:
    """A worker that is started again wherever it has ended."""

    def __init__(self, settings: Mapping[str, str], log: Path) -> None:
        self.url = f"http://127.0.0.1:{free_ports(1)[0]}"
        given = {"listeners": self.url, **settings}
        overrides = [part for key, value in given.items() for part in ("--override", f"{key}={value}")]
        self._command = [str(Path(sys.executable).with_name("tidelog")), "connect", *overrides]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._http = httpx2.Client(base_url=self.url, timeout=_TIMEOUT_S, trust_env=False)
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
        self._http.close()
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill_jvm(self) -> bool:
        """Kill the driver's JVM. Return False if there is none."""
        return self._kill_first("java")

    def kill_python_worker(self) -> bool:
        """Kill a Python process of the executor, of its tasks. Return False if there is none."""
        return self._kill_first("python", below="java")

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Return the answer of the REST API as JSON; None while it does not answer, or refuses the request."""
        try:
            answer = (
                self._http.request(method, path, json=body) if body is not None else self._http.request(method, path)
            )
        except httpx2.HTTPError:
            return None
        return (answer.json() if answer.content else {}) if answer.is_success else None

    def restart_failed(self, name: str) -> str | None:
        """Restart a connector that has failed; return its error, if it has one."""
        status = self.request("GET", f"/connectors/{name}/status")
        states = [] if status is None else [status["connector"], *status["tasks"]]
        failed = [each for each in states if each["state"] == "FAILED"]
        if not failed:
            return None
        self.request("POST", f"/connectors/{name}/restart?includeTasks=true&onlyFailed=true")
        return str(failed[0].get("trace"))

    def _kill_first(self, name: str, below: str | None = None) -> bool:
        assert self._process is not None
        for pid, command in _descendants(self._process.pid, below is None):
            if command.startswith(name):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                return True
        return False


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

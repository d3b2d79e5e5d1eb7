"""Controllers in separate network namespaces, connected by a bridge, so that one can be cut off from the others."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_PORT = 9093
_serial = itertools.count()


class IsolatedControllers:
    """A context manager that removes the namespaces, bridge and processes at its end. It needs root and iproute2.

    The addresses are of a private network that exists only on this machine.
    """

    def __init__(self, directory: Path, count: int, config: Mapping[str, object]) -> None:
        self._directory = directory
        self._config = config
        # The kernel needs time to remove an interface, so no name is reused. Names have at most 15 characters.
        self._name = f"tl{os.getpid() % 100_000}x{next(_serial)}"
        self._subnet = f"10.213.{os.getpid() % 250}"
        self.ids = range(1, count + 1)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._stack = contextlib.ExitStack()

    @property
    def addresses(self) -> list[str]:
        """``host:port`` of each controller, by id from 1 on."""
        return [f"{self._host(i)}:{_PORT}" for i in self.ids]

    def __enter__(self) -> IsolatedControllers:
        try:
            self._make_network()
            for i in self.ids:
                self._start(i)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def cut_off(self, isolated: int) -> None:
        """Block all packets between one controller and the others. This process still reaches all of them."""
        self._set_routes(isolated, "add")

    def heal(self, isolated: int) -> None:
        """Undo :meth:`cut_off`."""
        self._set_routes(isolated, "del")

    def log(self, controller_id: int) -> str:
        """Return a controller's output."""
        return (self._directory / f"{controller_id}.log").read_text()

    def _set_routes(self, isolated: int, verb: str) -> None:
        for other in self.ids:
            if other != isolated:
                for here, there in ((isolated, other), (other, isolated)):
                    _run("ip", "-n", self._namespace(here), "route", verb, "blackhole", f"{self._host(there)}/32")

    def _make_network(self) -> None:
        bridge = f"{self._name}b"
        _run("ip", "link", "add", bridge, "type", "bridge")
        self._stack.callback(_run, "ip", "link", "del", bridge)
        _run("ip", "addr", "add", f"{self._subnet}.254/24", "dev", bridge)
        _run("ip", "link", "set", bridge, "up")
        for i in self.ids:
            namespace, outside = self._namespace(i), f"{self._name}v{i}"
            _run("ip", "netns", "add", namespace)
            self._stack.callback(_run, "ip", "netns", "del", namespace)
            _run("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            _run("ip", "link", "set", outside, "master", bridge, "up")
            _run("ip", "-n", namespace, "addr", "add", f"{self._host(i)}/24", "dev", "eth0")
            _run("ip", "-n", namespace, "link", "set", "eth0", "up")
            _run("ip", "-n", namespace, "link", "set", "lo", "up")

    def _start(self, controller_id: int) -> None:
        host = self._host(controller_id)
        settings = {
            "node.id": controller_id,
            "cluster.id": "isolated",
            "listeners": f"GRPC://{host}:{_PORT}",
            "controller.quorum.voters": ",".join(f"{i}@{self._host(i)}:{_PORT}" for i in self.ids),
            "metadata.log.dir": self._directory / str(controller_id),
            **self._config,
        }
        properties = self._directory / f"{controller_id}.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = ["ip", "netns", "exec", self._namespace(controller_id)]
        with (self._directory / f"{controller_id}.log").open("wb") as log:
            process = subprocess.Popen(
                [*command, sys.executable, "-m", "tidelog_quorum", str(properties)], stdout=log, stderr=log
            )
        self._stack.callback(_kill, process)
        self._processes[controller_id] = process

    def _namespace(self, controller_id: int) -> str:
        return f"{self._name}n{controller_id}"

    def _host(self, controller_id: int) -> str:
        return f"{self._subnet}.{controller_id}"


def why_not() -> str | None:
    """Return the reason why this machine does not support the namespaces, or None."""
    if not sys.platform.startswith("linux"):
        return f"network namespaces are Linux's, this is {sys.platform}"
    if os.geteuid() != 0:
        return "only root can make a network namespace"
    if shutil.which("ip") is None:
        return "iproute2 is not installed"
    namespace = f"tlprobe{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", namespace], capture_output=True, text=True)
    if made.returncode:
        return made.stderr.strip()
    subprocess.run(["ip", "netns", "del", namespace], check=True)
    return None


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()

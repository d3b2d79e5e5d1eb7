"""Apache Kafka in KRaft mode: separate broker and controller processes on loopback.

The JVM has the options of Kafka 4's ``kafka-server-start.sh`` and ``kafka-run-class.sh``: a heap of 1 GiB, G1 with
their options, the JMX agent and the garbage collection log. The settings are Kafka's defaults except
:data:`benchmarks.peers.peer.SETTINGS`, the addresses, the folders, and the replication factors of the internal topics.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.peers.maven import Installation
from benchmarks.peers.peer import SETTINGS, STOP_TIMEOUT_S, Peer, Size
from tidelog.testing.ports import free_ports
from tidelog.testing.process import ProcessGroup

HEAP_OPTIONS = ("-Xmx1G", "-Xms1G")
PERFORMANCE_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
JMX_OPTIONS = (
    "-Dcom.sun.management.jmxremote",
    "-Dcom.sun.management.jmxremote.authenticate=false",
    "-Dcom.sun.management.jmxremote.ssl=false",
)
_LOGGING = Path(__file__).parent / "log4j2.properties"
_FIRST_CONTROLLER = 101
_MOST_REPLICAS = 3
_TAIL_LINES = 8


class ApacheKafka(Peer):
    """A cluster of Apache Kafka. Its folders are formatted once, and each start uses a copy of them."""

    def __init__(
        self,
        installation: Installation,
        size: Size,
        folder: Path,
        settings: Mapping[str, object] | None = None,
        java_options: Sequence[str] = (),
    ) -> None:
        """``folder`` is empty and receives all files of the cluster; its creator removes it.

        ``settings`` and ``java_options`` are added to those of all processes.
        """
        super().__init__(f"Apache Kafka {installation.version}", size)
        self._java = _Java(installation, java_options)
        self._template, self._run = folder / "template", folder / "run"
        self._settings = settings or {}
        self._group: ProcessGroup | None = None
        self._properties: dict[int, dict[str, object]] = {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def prepare(self) -> None:
        """Format the folders of all processes, Kafka's own step before the first start."""
        cluster_id = _cluster_id()
        for node_id, properties in self._layout(self._template).items():
            path = _write_properties(self._template / f"{node_id}.properties", properties)
            self._java.run("kafka.tools.StorageTool", "format", "--cluster-id", cluster_id, "--config", str(path))

    def start(self) -> None:
        self._group = ProcessGroup()
        self._properties = self._layout(self._run)
        for node_id in self._properties:
            shutil.copytree(self._template / str(node_id), self._run / str(node_id))
            self._launch(node_id)

    @property
    def bootstrap_servers(self) -> str:
        listeners = (self._properties[broker]["listeners"] for broker in range(1, self.size.brokers + 1))
        return ",".join(str(listener).partition("://")[2] for listener in listeners)

    def pids(self) -> Mapping[str, int]:
        return {name(node_id): process.pid for node_id, process in self._processes.items() if process.poll() is None}

    def broker_pid(self, broker_id: int) -> int:
        return self._processes[broker_id].pid

    def kill(self, broker_id: int) -> None:
        self._processes[broker_id].kill()
        self._processes[broker_id].wait()

    def stop(self, broker_id: int) -> None:
        self._processes[broker_id].terminate()
        self._processes[broker_id].wait(STOP_TIMEOUT_S)

    def data_folder(self, broker_id: int) -> Path:
        return self._run / str(broker_id) / "data"

    def restart(self, broker_id: int) -> None:
        self._launch(broker_id)

    def last_words(self) -> str:
        return "\n".join(self._tails())

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        self._processes.clear()
        if self._group is not None:
            self._group.close()
            self._group = None
        shutil.rmtree(self._run, ignore_errors=True)

    def _layout(self, folder: Path) -> dict[int, dict[str, object]]:
        return {node: {**properties, **self._settings} for node, properties in layout(self.size, folder).items()}

    def _launch(self, node_id: int) -> None:
        assert self._group is not None, "the cluster is not started"
        folder = self._run / str(node_id)
        path = _write_properties(folder / "server.properties", self._properties[node_id])
        with self._log(node_id).open("ab") as log:
            self._processes[node_id] = subprocess.Popen(
                [*self._java.server(folder), "kafka.Kafka", str(path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=self._group.id,
            )

    def _log(self, node_id: int) -> Path:
        return self._run / str(node_id) / "process.log"

    def _tails(self) -> Iterator[str]:
        for node_id in self._processes:
            lines = self._log(node_id).read_text(errors="replace").splitlines()
            yield "\n".join([f"{name(node_id)}:", *lines[-_TAIL_LINES:]])


def layout(size: Size, folder: Path) -> dict[int, dict[str, object]]:
    """Return the properties of each process by id, with currently free ports. Broker ids begin with 1."""
    brokers = list(range(1, size.brokers + 1))
    controllers = list(range(_FIRST_CONTROLLER, _FIRST_CONTROLLER + size.controllers))
    ids = brokers + controllers
    ports = dict(zip(ids, free_ports(len(ids)), strict=True))
    common = {
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{node}@127.0.0.1:{ports[node]}" for node in controllers),
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        **_internal_topics(min(_MOST_REPLICAS, size.brokers)),
        **SETTINGS,
    }
    roles = dict.fromkeys(brokers, ("broker", "PLAINTEXT")) | dict.fromkeys(controllers, ("controller", "CONTROLLER"))
    return {
        node: {
            "node.id": node,
            "process.roles": role,
            "listeners": f"{listener}://127.0.0.1:{ports[node]}",
            "log.dirs": folder / str(node) / "data",
            **common,
        }
        for node, (role, listener) in roles.items()
    }


def name(node_id: int) -> str:
    """Return a process's name for messages."""
    if node_id < _FIRST_CONTROLLER:
        return f"broker {node_id}"
    return f"controller {node_id - _FIRST_CONTROLLER + 1}"


def _internal_topics(replicas: int) -> dict[str, int]:
    """Return the settings that a cluster of fewer than three brokers needs to create its internal topics."""
    factors = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    return {f"{topic}.replication.factor": replicas for topic in factors} | {
        "transaction.state.log.min.isr": min(2, replicas),
        "share.coordinator.state.topic.min.isr": min(2, replicas),
    }


def _cluster_id() -> str:
    """Return an id in the format of Kafka's tool: 22 characters that do not begin like an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _write_properties(path: Path, properties: Mapping[str, object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path


class _Java:
    """The commands that run Kafka's classes."""

    def __init__(self, installation: Installation, options: Sequence[str]) -> None:
        self._options = tuple(options)
        home = os.environ.get("JAVA_HOME")
        self._program = f"{home}/bin/java" if home else "java"
        self._class_path = ("-cp", f"{installation.libs}/*")

    def server(self, folder: Path) -> list[str]:
        """Return the command of a server that logs into a folder, up to the name of its class."""
        logs = (
            f"-Xlog:gc*:file={folder}/kafkaServer-gc.log:time,tags:filecount=10,filesize=100M",
            f"-Dkafka.logs.dir={folder}",
            f"-Dlog4j2.configurationFile=file:{_LOGGING}",
        )
        return [
            self._program,
            *HEAP_OPTIONS,
            *PERFORMANCE_OPTIONS,
            *JMX_OPTIONS,
            *self._options,
            *logs,
            *self._class_path,
        ]

    def run(self, main_class: str, *arguments: str) -> None:
        """Run a tool to completion.

        Raises:
            RuntimeError: The tool failed. The message has its output.
        """
        command = [self._program, *self._options, *self._class_path, main_class, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{main_class} ended with {done.returncode}:\n{done.stdout}{done.stderr}")

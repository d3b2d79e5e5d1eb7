"""Kafka Connect and Tidelog's connectors by the same work: lines of a file to a topic, and of a topic to a file.

Each has its own cluster, the FileStream connectors with their defaults, and StringConverter. The first third of the
lines warms the worker up, in particular the JVM; the figures are those of the rest. Tidelog's worker commits lines
and positions together, exactly once; Kafka's FileStream connectors may write lines twice after a crash.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from confluent_kafka import Consumer, TopicPartition

from benchmarks import process
from benchmarks.peers.apache_kafka import PERFORMANCE_OPTIONS
from benchmarks.peers.client import SILENT, Sender
from benchmarks.peers.clusters import Clusters, create_topic
from benchmarks.peers.comparison import ratio_of
from benchmarks.peers.maven import fetch_mirror_jars
from benchmarks.peers.peer import Peer
from benchmarks.result import Bar, Result
from tidelog.testing.process import ProcessGroup

SETTINGS: Final = {"transaction.two.phase.commit.enable": "true"}
"""Settings of Tidelog's nodes, which sources need."""
_LINES, _FEW_LINES = 6_000_000, 3_000_000
_LINE_BYTES: Final = 100
_WARM_SHARE: Final = 1 / 3
_HEAP_OPTIONS: Final = ("-Xms256M", "-Xmx2G")
"""Those of connect-standalone.sh."""
_TIMEOUT_S: Final = 600.0
_LOOK_S: Final = 0.05
_LOGGING: Final = Path(__file__).parent / "log4j2.properties"
_SOURCE, _SINK = "source", "sink"
_CLASSES: Final = {_SOURCE: "FileStreamSource", _SINK: "FileStreamSink"}


@dataclass(frozen=True, slots=True)
class _Speed:
    """Lines per second, and the worker's CPU seconds per million lines."""

    rate: float
    cpu_s: float


def connectors(clusters: Clusters) -> list[Result]:
    """Return the speed of both workers as a source and as a sink, by turns."""
    lines, rounds = (_FEW_LINES, 1) if clusters.options.quick else (_LINES, 3)
    found: dict[tuple[str, str], list[_Speed]] = {}
    with clusters.options.scratch() as folder:
        text = folder / "lines.txt"
        text.write_bytes((b"x" * _LINE_BYTES + b"\n") * lines)
        for peer in clusters.peers:
            create_topic(peer, "to-file", 1, 1)
            clusters.options.say(f"producing {lines} records to {peer.name}")
            Sender(peer.bootstrap_servers, "to-file").send(b"x" * _LINE_BYTES, lines)
        for number in range(rounds):
            for kind in (_SOURCE, _SINK):
                for peer in clusters.peers:
                    clusters.options.say(f"{kind} of {peer.name}")
                    run = _Run(peer, kind, f"{peer.name.split()[0].lower()}-{kind}-{number}", folder, text)
                    found.setdefault((kind, peer.name), []).append(run.measure(lines))
    ours, theirs = (peer.name for peer in clusters.peers)
    return [line for kind in (_SOURCE, _SINK) for line in _results(kind, found[kind, ours], found[kind, theirs])]


def _results(kind: str, ours: Sequence[_Speed], theirs: Sequence[_Speed]) -> list[Result]:
    name = {_SOURCE: "connect, a file of 100 B lines to a topic", _SINK: "connect, a topic of 100 B lines to a file"}[
        kind
    ]
    parts: tuple[tuple[str, str, Literal["higher", "lower"], Callable[[_Speed], float], Bar | None], ...] = (
        (name, "lines/s", "higher", lambda each: each.rate, Bar.on_ratio(at_least=1)),
        (f"{name}: CPU of the worker", "s/million lines", "lower", lambda each: each.cpu_s, None),
    )
    return [
        Result(
            text,
            statistics.median(map(value, ours)),
            unit,
            f"Kafka Connect at {statistics.median(map(value, theirs)):,.2f}",
            ratio_of([*map(value, ours)], [*map(value, theirs)], better),
            bar,
        )
        for text, unit, better, value, bar in parts
    ]


class _Run:
    """One worker with one connector."""

    def __init__(self, peer: Peer, kind: str, name: str, folder: Path, lines: Path) -> None:
        self._peer, self._kind, self._name = peer, kind, name
        self._log = folder / f"{name}.log"
        self._file = lines if kind == _SOURCE else folder / f"{name}.txt"
        self._topic = name if kind == _SOURCE else "to-file"
        config = {"connector.class": _CLASSES[kind], "file": str(self._file)}
        config["topic" if kind == _SOURCE else "topics"] = self._topic
        is_ours = peer.name.lower().startswith("tidelog")
        settings = {"bootstrap.servers": peer.bootstrap_servers, "group.id": "connectors", "enable.metrics.push": False}
        self._consumer = Consumer({**settings, "isolation.level": "read_committed"}, logger=SILENT)
        self._command = (_tidelog_command if is_ours else _kafka_command)(peer, name, config, folder)

    def measure(self, lines: int) -> _Speed:
        """Return the speed behind the first third of the lines."""
        if self._kind == _SOURCE:
            create_topic(self._peer, self._topic, 1, 1)
        group = ProcessGroup()
        try:
            with self._log.open("wb") as log:
                running = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    process_group=group.id,
                )
            count = self._read_count if self._kind == _SOURCE else self._written_count
            first = self._wait(running, count, round(lines * _WARM_SHARE))
            last = self._wait(running, count, lines)
            running.terminate()
            # The figures are complete. Kafka Connect's worker may not end while it closes a sink's consumer.
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(60)
        finally:
            group.close()
            self._consumer.close()
            if self._kind == _SINK:
                self._file.unlink(missing_ok=True)
        moved = last[0] - first[0]
        return _Speed(moved / (last[2] - first[2]), (last[1] - first[1]) / moved * 1e6)

    def _wait(self, running: subprocess.Popen[bytes], count: Callable[[], int], least: int) -> tuple[int, float, float]:
        """Wait for so many lines, and return their number, the CPU seconds and the time."""
        deadline = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline and running.poll() is None:
            found = count()
            if found >= least:
                return found, process.tree_cpu_seconds(running.pid), time.monotonic()
            time.sleep(_LOOK_S)
        raise RuntimeError(f"{self._name} has not moved {least} lines:\n{self._log.read_text()[-4_000:]}")

    def _read_count(self) -> int:
        # The markers of commits count too: a handful.
        end: int = self._consumer.get_watermark_offsets(TopicPartition(self._topic, 0), timeout=30)[1]
        return end

    def _written_count(self) -> int:
        return self._file.stat().st_size // (_LINE_BYTES + 1) if self._file.exists() else 0


def _tidelog_command(peer: Peer, name: str, config: dict[str, str], folder: Path) -> list[str]:
    path = folder / f"{name}.yaml"
    settings = {
        "bootstrap.servers": peer.bootstrap_servers,
        "storage.replication.factor": "1",
        "checkpoint.location": str(folder / f"{name}-checkpoints"),
        "spark.ui.enabled": "false",
    }
    parts = [f"name: {name}\nsettings:\n", *(f"  {key}: {value!r}\n" for key, value in settings.items())]
    parts += [f"connectors:\n  {name}:\n", *(f"    {key}: {value!r}\n" for key, value in config.items())]
    path.write_text("".join(parts))
    return [sys.executable, "-c", "from tidelog_cli.main import main; main()", "pipeline", "run", str(path)]


def _kafka_command(peer: Peer, name: str, config: dict[str, str], folder: Path) -> list[str]:
    libs = fetch_mirror_jars()
    string = "org.apache.kafka.connect.storage.StringConverter"
    worker = {
        "bootstrap.servers": peer.bootstrap_servers,
        "key.converter": string,
        "value.converter": string,
        "offset.storage.file.filename": folder / f"{name}.offsets",
        "listeners": "http://127.0.0.1:0",
        "plugin.path": libs,
    }
    package = "org.apache.kafka.connect.file."
    connector = {**config, "name": name, "connector.class": f"{package}{config['connector.class']}Connector"}
    paths = []
    for part, settings in (("worker", worker), ("connector", connector)):
        paths.append(folder / f"{name}-{part}.properties")
        paths[-1].write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    home = os.environ.get("JAVA_HOME")
    return [
        f"{home}/bin/java" if home else "java",
        *_HEAP_OPTIONS,
        *PERFORMANCE_OPTIONS,
        f"-Dkafka.logs.dir={folder}",
        f"-Dlog4j2.configurationFile=file:{_LOGGING}",
        "-cp",
        f"{libs}/*",
        "org.apache.kafka.connect.cli.ConnectStandalone",
        *map(str, paths),
    ]

"""MirrorMaker 2 and ``tidelog mirror run`` by the same work: from Apache Kafka to Tidelog, each as one process.

The source has all records before a mirror starts. The first third warms the process up, in particular the JVM; the
records per CPU second of the mirror's process are those of the rest.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from benchmarks import process
from benchmarks.peers.apache_kafka import PERFORMANCE_OPTIONS
from benchmarks.peers.client import SILENT, Sender
from benchmarks.peers.clusters import Clusters, create_topic
from benchmarks.peers.comparison import ratio_of
from benchmarks.peers.maven import fetch_mirror_jars
from benchmarks.result import Bar, Result
from tidelog.testing.process import ProcessGroup

_PARTITIONS = 12
_RECORD_BYTES = 1_024
_RECORDS, _FEW_RECORDS = 1_500_000, 300_000
_WARM_SHARE = 1 / 3
_JAVA_BATCH_BYTES = 16_384
"""The batch.size of Java's producer. librdkafka's default, 1 MB, would make fewer and larger batches."""
_HEAP_OPTIONS = ("-Xms256M", "-Xmx2G")
"""Those of connect-mirror-maker.sh."""
_TIMEOUT_S = 900.0
_LOOK_S = 0.2
_TOPIC = "mirrored"
_LOGGING = Path(__file__).parent / "log4j2.properties"
_SETTINGS = {
    "topics": _TOPIC,
    "replication.factor": 1,
    "heartbeats.topic.replication.factor": 1,
    "checkpoints.topic.replication.factor": 1,
    "offset-syncs.topic.replication.factor": 1,
    "offset.storage.replication.factor": 1,
    "status.storage.replication.factor": 1,
    "config.storage.replication.factor": 1,
}


def mirrors(clusters: Clusters) -> list[Result]:
    """Return the records per CPU second of both mirrors, by turns."""
    tidelog, kafka = clusters.peers
    records, rounds = (_FEW_RECORDS, 1) if clusters.options.quick else (_RECORDS, 3)
    create_topic(kafka, _TOPIC, _PARTITIONS, 1)
    clusters.options.say(f"producing {records} records to {kafka.name}")
    Sender(kafka.bootstrap_servers, _TOPIC, batch_size=_JAVA_BATCH_BYTES).send(
        bytes(os.urandom(_RECORD_BYTES)), records
    )
    ours: list[tuple[float, float]] = []
    theirs: list[tuple[float, float]] = []
    with clusters.options.scratch() as folder:
        for number in range(rounds):
            for name, command, found in (
                (f"tidelog{number}", _tidelog_command(), ours),
                (f"mm{number}", _mirror_maker_command(folder), theirs),
            ):
                clusters.options.say(f"mirroring with {name}")
                run = _Run(name, command, kafka.bootstrap_servers, tidelog.bootstrap_servers, folder)
                found.append(run.measure(records))
    ratio = ratio_of([cpu for cpu, _ in ours], [cpu for cpu, _ in theirs], "higher")
    text = f"MirrorMaker 2 at {statistics.median(cpu for cpu, _ in theirs):,.0f}"
    speed = f"MirrorMaker 2 at {statistics.median(speed for _, speed in theirs):,.0f}"
    return [
        Result(
            "mirror 1 KiB records, Kafka to Tidelog: by CPU",
            statistics.median(cpu for cpu, _ in ours),
            "records/CPU s",
            text,
            ratio,
            Bar.on_ratio(at_least=5),
        ),
        Result(
            "mirror 1 KiB records, Kafka to Tidelog",
            statistics.median(speed for _, speed in ours),
            "records/s",
            speed,
            ratio_of([speed for _, speed in ours], [speed for _, speed in theirs], "higher"),
        ),
    ]


class _Run:
    """One run of a mirror, whose alias names its remote topic."""

    def __init__(self, alias: str, command: Sequence[str], source: str, target: str, folder: Path) -> None:
        self._alias = alias
        self._command = command
        self._target = target
        self._path = folder / f"{alias}.properties"
        self._log = folder / f"{alias}.log"
        settings = {
            "clusters": f"{alias}, target",
            f"{alias}.bootstrap.servers": source,
            "target.bootstrap.servers": target,
            f"{alias}->target.enabled": "true",
            **_SETTINGS,
        }
        self._path.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))

    def measure(self, records: int) -> tuple[float, float]:
        """Return the records per CPU second, and per second."""
        group = ProcessGroup()
        try:
            with self._log.open("wb") as log:
                running = subprocess.Popen(
                    [*self._command, str(self._path)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    process_group=group.id,
                )
            first = self._wait(running, round(records * _WARM_SHARE))
            last = self._wait(running, records)
            running.terminate()
            running.wait(60)
        finally:
            group.close()
        copied = last[0] - first[0]
        return copied / (last[1] - first[1]), copied / (last[2] - first[2])

    def _wait(self, running: subprocess.Popen[bytes], count: int) -> tuple[int, float, float]:
        """Wait until the target has so many records, and return its number, the CPU seconds and the time."""
        consumer = Consumer({"bootstrap.servers": self._target, "group.id": "mirrors"}, logger=SILENT)
        topic, deadline = f"{self._alias}.{_TOPIC}", time.monotonic() + _TIMEOUT_S
        try:
            while time.monotonic() < deadline and running.poll() is None:
                found = consumer.list_topics(timeout=30).topics.get(topic)
                if found is not None and found.error is None:
                    copied = sum(
                        consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1]
                        for partition in found.partitions
                    )
                    if copied >= count:
                        return copied, process.cpu_seconds(running.pid), time.monotonic()
                time.sleep(_LOOK_S)
        finally:
            consumer.close()
        raise RuntimeError(f"{self._alias} has not copied {count} records:\n{self._log.read_text()[-4_000:]}")


def _tidelog_command() -> list[str]:
    return [sys.executable, "-c", "from tidelog_cli.main import main; main()", "mirror", "run"]


def _mirror_maker_command(folder: Path) -> list[str]:
    home = os.environ.get("JAVA_HOME")
    libs = fetch_mirror_jars()
    return [
        f"{home}/bin/java" if home else "java",
        *_HEAP_OPTIONS,
        *PERFORMANCE_OPTIONS,
        f"-Dkafka.logs.dir={folder}",
        f"-Dlog4j2.configurationFile=file:{_LOGGING}",
        "-cp",
        f"{libs}/*",
        "org.apache.kafka.connect.mirror.MirrorMaker",
    ]

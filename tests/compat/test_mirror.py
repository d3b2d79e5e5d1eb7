"""Mirrors between Apache Kafka and Tidelog: exactly once under kill -9, active-active, and Kafka's MirrorClient."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest
from compat.cluster import Deployment
from compat.jars import QUICK_JAVA, java, mirror_class_path
from mirror_process import FAST

from tidelog.testing import LocalCluster

pytestmark = pytest.mark.compat

PARTITIONS = 3
TOPIC, GROUP = "orders", "billing"
KILLS = 4
TIDELOG_MIRROR = (sys.executable, "-c", "from tidelog_cli.main import main; main()", "mirror", "run")
LOGGING = Path(__file__).parents[2] / "benchmarks" / "peers" / "log4j2.properties"
JAVA_TERMINATED = 143
"""The exit status of a JVM that SIGTERM has ended, after its shutdown hooks."""
Records = dict[int, list[tuple[int, bytes | None]]]
"""Timestamp and value of each record, in order, by partition."""


@pytest.fixture(scope="module")
def tidelog() -> Iterator[LocalCluster]:
    with LocalCluster(controllers=1, nodes=1) as cluster:
        yield cluster


class Mirror:
    """A process of ``tidelog mirror run``, or of another program that takes the same file."""

    def __init__(self, folder: Path, settings: dict[str, str], command: Sequence[str] = TIDELOG_MIRROR) -> None:
        self._path = folder / "mirror.properties"
        self._path.write_text("".join(f"{key}={value}\n" for key, value in {**FAST, **settings}.items()))
        self._log = folder / "mirror.log"
        self._command = command
        self._start()

    def _start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*self._command, str(self._path)], stdout=log, stderr=log)

    def kill_and_restart(self) -> None:
        """Kill the process, and start another one."""
        self._process.kill()
        self._process.wait()
        self._start()

    def stop(self, status: int = 0) -> None:
        """End the process by SIGTERM."""
        self._process.send_signal(signal.SIGTERM)
        try:
            assert self._process.wait(60) == status, self.log
        finally:
            self._process.kill()
            self._process.wait()

    @property
    def log(self) -> str:
        """The process's last output."""
        return self._log.read_text()[-4_000:]


class Writer:
    """A thread that writes numbered records in transactions, and aborts each fifth."""

    def __init__(self, servers: str) -> None:
        self._producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": "writer"})
        self._stops = threading.Event()
        self.number = 0
        self._thread = threading.Thread(target=self._run, name="writer")
        self._thread.start()

    def stop(self) -> None:
        self._stops.set()
        self._thread.join(60)

    def _run(self) -> None:
        self._producer.init_transactions(30)
        while not self._stops.is_set():
            self._producer.begin_transaction()
            for _ in range(30):
                partition = self.number % PARTITIONS
                self._producer.produce(TOPIC, b"%d" % self.number, b"k", partition=partition)
                self.number += 1
            if self.number // 30 % 5:
                self._producer.commit_transaction(30)
            else:
                self._producer.abort_transaction(30)
            time.sleep(0.01)


def wait_for(condition: Callable[[], bool], what: Callable[[], str], timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


def records(servers: str, topic: str) -> Records:
    """Return all committed records of a topic."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "enable.partition.eof": True}
    )
    found: Records = defaultdict(list)
    try:
        listed = consumer.list_topics(topic, timeout=30).topics[topic]
        if listed.error is not None:
            return found
        consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in listed.partitions])
        open_partitions = set(listed.partitions)
        while open_partitions:
            for message in consumer.consume(1000, 1.0):
                if message.error() is not None:
                    open_partitions.discard(message.partition())
                else:
                    found[message.partition()].append((message.timestamp()[1], message.value()))
    finally:
        consumer.close()
    return found


def count(servers: str, topic: str) -> int:
    """Return the number of offsets of a topic."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "reader"})
    try:
        listed = consumer.list_topics(topic, timeout=30).topics[topic]
        found = (
            [] if listed.error is not None else [confluent_kafka.TopicPartition(topic, i) for i in listed.partitions]
        )
        return sum(consumer.get_watermark_offsets(each, timeout=30)[1] for each in found)
    finally:
        consumer.close()


def names(servers: str) -> set[str]:
    return set(confluent_kafka.admin.AdminClient({"bootstrap.servers": servers}).list_topics(timeout=30).topics)


def test_exactly_once_from_kafka_survives_kills(kafka: Deployment, tidelog: LocalCluster, tmp_path: Path) -> None:
    kafka.create(TOPIC, PARTITIONS)
    here = tidelog.kafka_bootstrap_servers
    settings = {
        "clusters": "A, B",
        "A.bootstrap.servers": kafka.servers,
        "B.bootstrap.servers": here,
        "A->B.enabled": "true",
        "A->B.topics": TOPIC,
        "A->B.groups": GROUP,
        "B.exactly.once.source.support": "enabled",
        "sync.group.offsets.enabled": "true",
    }
    writer, mirror = Writer(kafka.servers), Mirror(tmp_path, settings)
    try:
        wait_for(lambda: count(here, f"A.{TOPIC}") > 0, lambda: mirror.log)
        for _ in range(KILLS):
            goal = count(here, f"A.{TOPIC}") + 100
            mirror.kill_and_restart()
            wait_for(lambda goal=goal: count(here, f"A.{TOPIC}") > goal, lambda: mirror.log)  # type: ignore[misc]
        writer.stop()
        original = records(kafka.servers, TOPIC)
        consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.servers, "group.id": GROUP})
        at_end = [
            confluent_kafka.TopicPartition(
                TOPIC,
                index,
                consumer.get_watermark_offsets(confluent_kafka.TopicPartition(TOPIC, index), timeout=30)[1],
            )
            for index in range(PARTITIONS)
        ]
        consumer.commit(offsets=at_end, asynchronous=False)
        consumer.close()
        wait_for(lambda: records(here, f"A.{TOPIC}") == original, lambda: f"a record is lost or doubled: {mirror.log}")
        _check_group(here)
        _check_java(here)
    finally:
        writer.stop()
        mirror.stop()
    # No record comes after the mirror's end, and the copy has the original's order and timestamps.
    assert records(here, f"A.{TOPIC}") == original


def _check_group(servers: str) -> None:
    """Wait for the group's translated offsets, which leave at most the last records to be read again."""
    reader = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": GROUP})
    partitions = [confluent_kafka.TopicPartition(f"A.{TOPIC}", index) for index in range(PARTITIONS)]
    ends = [reader.get_watermark_offsets(p, timeout=30)[1] for p in partitions]

    def is_near() -> bool:
        committed = [p.offset for p in reader.committed(partitions, timeout=30)]
        return all(end - 250 <= offset <= end for offset, end in zip(committed, ends, strict=True))

    wait_for(is_near, lambda: f"{reader.committed(partitions, timeout=30)} of {ends}")
    reader.close()


def _check_java(servers: str) -> None:
    """Kafka's own program reads heartbeats, checkpoints and translated offsets."""
    command = [java(), *QUICK_JAVA, "-cp", mirror_class_path(), "TranslateOffsets", servers, "A", GROUP]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines() if not line.startswith("offset "))
    assert lines["upstream"] == "A"
    assert lines["hops"] == "1"
    assert lines["checkpoints"] == "A.checkpoints.internal"
    assert f"A.{TOPIC}" in lines["remote"].split(",")
    offsets = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("offset ")]
    assert sorted(name for name, _ in offsets) == [f"A.{TOPIC}-{index}" for index in range(PARTITIONS)]
    reader = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": GROUP})
    partitions = [confluent_kafka.TopicPartition(f"A.{TOPIC}", index) for index in range(PARTITIONS)]
    committed = {f"{p.topic}-{p.partition}": p.offset for p in reader.committed(partitions, timeout=30)}
    reader.close()
    assert {name: int(offset) for name, offset in offsets} == committed


def test_kafka_and_tidelog_copy_each_other_without_a_loop(
    kafka: Deployment, tidelog: LocalCluster, tmp_path: Path
) -> None:
    here = tidelog.kafka_bootstrap_servers
    settings = {
        "clusters": "A, B",
        "A.bootstrap.servers": kafka.servers,
        "B.bootstrap.servers": here,
        "A->B.enabled": "true",
        "B->A.enabled": "true",
        "topics": ".*both",
        "emit.heartbeats.interval.seconds": "1",
    }
    for servers in (kafka.servers, here):
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": servers})
        admin.create_topics([confluent_kafka.admin.NewTopic("both", 2, 1)])["both"].result(30)
        producer = confluent_kafka.Producer({"bootstrap.servers": servers, "compression.type": "zstd"})
        for number in range(1_000):
            producer.produce("both", b"%d of %s" % (number, servers.encode()), partition=number % 2)
        producer.flush()
    mirror = Mirror(tmp_path, settings)
    try:
        for source, alias, target in ((kafka.servers, "A", here), (here, "B", kafka.servers)):
            wait_for(
                lambda s=source, a=alias, t=target: records(t, f"{a}.both") == records(s, "both"),  # type: ignore[misc]
                lambda: mirror.log,
            )
            wait_for(lambda a=alias, t=target: f"{a}.heartbeats" in names(t), lambda: mirror.log)  # type: ignore[misc]
        assert {name for servers in (kafka.servers, here) for name in names(servers) if "both" in name} == {
            "both",
            "A.both",
            "B.both",
        }
    finally:
        mirror.stop()


def mirror_maker(folder: Path) -> tuple[str, ...]:
    """Return the command of MirrorMaker 2."""
    options = (*QUICK_JAVA, f"-Dkafka.logs.dir={folder}", f"-Dlog4j2.configurationFile=file:{LOGGING}")
    return (java(), *options, "-cp", mirror_class_path(), "org.apache.kafka.connect.mirror.MirrorMaker")


def test_mirror_goes_on_where_mirrormaker_ended(kafka: Deployment, tidelog: LocalCluster, tmp_path: Path) -> None:
    topic, here = "taken", tidelog.kafka_bootstrap_servers
    kafka.create(topic, PARTITIONS)
    settings = {
        "clusters": "A, B",
        "A.bootstrap.servers": kafka.servers,
        "B.bootstrap.servers": here,
        "A->B.enabled": "true",
        "A->B.topics": topic,
        "offset.flush.interval.ms": "1000",
        "status.storage.replication.factor": "1",
        "config.storage.replication.factor": "1",
    }
    written = 0

    def write(number: int) -> None:
        nonlocal written
        producer = confluent_kafka.Producer({"bootstrap.servers": kafka.servers})
        for _ in range(number):
            producer.produce(topic, b"%d" % written, partition=written % PARTITIONS)
            written += 1
        assert producer.flush(30) == 0

    write(3_000)
    mirror = Mirror(tmp_path, settings, mirror_maker(tmp_path))
    try:
        wait_for(lambda: count(here, f"A.{topic}") == written, lambda: mirror.log)
        write(1_000)
    finally:
        mirror.stop(JAVA_TERMINATED)
    by_mirror_maker = count(here, f"A.{topic}")
    write(1_000)
    mirror = Mirror(tmp_path, settings)
    original = records(kafka.servers, topic)
    try:
        wait_for(lambda: count(here, f"A.{topic}") >= written, lambda: mirror.log)
    finally:
        mirror.stop()
    # MirrorMaker 2 has committed its positions when it ended, so that nothing comes twice either.
    assert records(here, f"A.{topic}") == original, f"MirrorMaker 2 had copied {by_mirror_maker} of {written} records"

"""A soak test: ``python -m benchmarks.soak --minutes 60``.

A cluster of three controllers and three nodes serves a steady load for the given time: a producer and members of a
group, of which one leaves and joins again. Topics are created, written and deleted all the time. After a third of the
time every process is restarted, one after another; after two thirds the replicas of the load's topic leave one node,
and return. Every few seconds the memory, the descriptors, the tasks and the disk of each process are sampled.

The result says whether these are flat: for each process and quantity, the slope of a line through the samples after the
warm-up of its latest start must be within a bound. It is written as JSON, and as a plot.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.machine import facts
from benchmarks.soak_trend import BOUNDS, Sample, Trend, trends_of
from tidelog import AdminClient, Consumer, KafkaError, Message, NewTopic, Producer, TopicPartition
from tidelog.admin import NewPartitionReassignment
from tidelog.testing import LocalCluster
from tidelog.testing.process import ProcessHandle

_TOPIC, _GROUP = "soak", "soak"
_PARTITIONS = 6
_VALUE_BYTES = 1_000
_RETENTION_BYTES = 2 << 20
"""Per partition: retention deletes as much as the load writes after less than a minute."""
_SEGMENT_BYTES = 1 << 20
_BLOCK_BYTES = 512
_CHURN_S = 5.0
_SAMPLE_S = 5.0
_MOST_SAMPLES = 200
"""Of each process; a long run takes them less often."""
_WAIT_S = 120.0
_CONFIG: Mapping[str, object] = {
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 5,
    "log.retention.check.interval.ms": 10_000,
    "log.segment.delete.delay.ms": 1_000,
    "metadata.log.max.record.bytes.between.snapshots": 256 * 1024,
}
_GAUGES = {
    "tidelog_event_loop_tasks": "tasks",
    "process_open_fds": "descriptors",
    "process_resident_memory_bytes": "memory_mb",
}


@dataclass(slots=True)
class Counts:
    """The work of the load so far, and its errors."""

    acknowledged: int = 0
    read: int = 0
    failed: int = 0
    topics: int = 0
    members: int = 0
    errors: dict[str, int] = field(default_factory=dict)


class Load:
    """The clients: a producer, members of a group of which one is replaced all the time, and short-lived topics."""

    def __init__(self, bootstrap_servers: str, records_per_s: float) -> None:
        self._servers = bootstrap_servers
        self._interval_s = 1 / records_per_s
        self._stopping = threading.Event()
        works = (self._produce, self._read, self._replace_members, self._churn_topics)
        self._threads = [threading.Thread(target=self._guarded, args=(work,), daemon=True) for work in works]
        self.counts = Counts()

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(_WAIT_S)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Repeat a work until the end; an error is counted, and the client replaced."""
        while not self._stopping.is_set():
            try:
                work()
            except Exception as error:  # noqa: BLE001  # every kind counts
                self._count(f"{work.__name__.strip('_')}: {error}")
                self._stopping.wait(1)

    def _count(self, text: str) -> None:
        self.counts.errors[text[:200]] = self.counts.errors.get(text[:200], 0) + 1

    def _produce(self) -> None:
        value = b"v" * _VALUE_BYTES
        settings = {"bootstrap.servers": self._servers, "enable.idempotence": True, "linger.ms": 5}
        with Producer(settings) as producer:
            began, sent = time.monotonic(), 0
            while not self._stopping.is_set():
                due = int((time.monotonic() - began) / self._interval_s)
                while sent < due and len(producer) < 50_000:
                    producer.produce(_TOPIC, value, b"%d" % sent, on_delivery=self._delivered)
                    sent += 1
                sent = max(sent, due - 1_000)
                producer.poll(0.01)
            producer.flush(30)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.counts.acknowledged += 1
        else:
            self.counts.failed += 1
            self._count(f"delivery: {error.name()}")

    def _read(self) -> None:
        with self._member() as consumer:
            while not self._stopping.is_set():
                self._poll(consumer)

    def _replace_members(self) -> None:
        with self._member() as consumer:
            self.counts.members += 1
            end = time.monotonic() + 2 * _CHURN_S
            while time.monotonic() < end and not self._stopping.is_set():
                self._poll(consumer)
        self._stopping.wait(_CHURN_S)

    @contextlib.contextmanager
    def _member(self) -> Iterator[Consumer]:
        settings = {"bootstrap.servers": self._servers, "group.id": _GROUP, "auto.offset.reset": "earliest"}
        with Consumer(settings) as consumer:
            consumer.subscribe([_TOPIC])
            yield consumer

    def _poll(self, consumer: Consumer) -> None:
        for message in consumer.consume(500, timeout=0.5):
            if message.error() is None:
                self.counts.read += 1

    def _churn_topics(self) -> None:
        with AdminClient({"bootstrap.servers": self._servers}) as admin:
            while not self._stopping.wait(_CHURN_S):
                name = f"soak-{self.counts.topics}"
                admin.create_topics([NewTopic(name, 3, 3)])[name].result(30)
                with Producer({"bootstrap.servers": self._servers}) as producer:
                    for number in range(100):
                        producer.produce(name, b"%d" % number)
                    producer.flush(30)
                admin.delete_topics([name])[name].result(30)
                self.counts.topics += 1


class Sampler:
    """Samples every process in a thread of its own."""

    def __init__(self, cluster: LocalCluster, duration_s: float) -> None:
        self._cluster = cluster
        self._interval_s = max(_SAMPLE_S, duration_s / _MOST_SAMPLES)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._began = time.monotonic()
        self.samples: list[Sample] = []
        self.events: list[tuple[float, str]] = []

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(_WAIT_S)

    @property
    def elapsed_s(self) -> float:
        """The time since the start."""
        return time.monotonic() - self._began

    def note(self, text: str) -> None:
        """Record an event, which the plot shows."""
        self.events.append((self.elapsed_s, text))
        print(f"{self.elapsed_s:7.0f} s  {text}", flush=True)

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_s):
            for process in (*self._cluster.controllers.values(), *self._cluster.nodes.values()):
                sample = self._sample(process)
                if sample is not None:
                    self.samples.append(sample)

    def _sample(self, process: ProcessHandle) -> Sample | None:
        if not process.is_running:
            return None
        pid = process.pid
        try:
            with urllib.request.urlopen(f"http://{process.metrics_address}/metrics", timeout=_SAMPLE_S) as response:
                text = response.read().decode()
        except OSError:
            return None
        values = {"disk_mb": _disk_mb(process.directory)}
        for family in text_string_to_metric_families(text):
            if family.name in _GAUGES and family.samples:
                values[_GAUGES[family.name]] = family.samples[0].value
        values["memory_mb"] /= 1e6
        rounded = {name: round(value, 2) for name, value in values.items()}
        return Sample(process.name, pid, round(self.elapsed_s, 1), rounded)


def _disk_mb(directory: Path) -> float:
    """Return the disk space of a process's data; files that disappear meanwhile do not count."""
    total = 0
    for folder, _, names in os.walk(directory / "data"):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(Path(folder) / name).st_blocks * _BLOCK_BYTES
    return total / 1e6


def restart_all(cluster: LocalCluster, sampler: Sampler) -> None:
    """Restart every process, one after another."""
    sampler.note("rolling restart begins")
    for process in (*cluster.controllers.values(), *cluster.nodes.values()):
        process.stop(60)
        process.start()
        cluster.wait_ready(_WAIT_S)
        _wait_for_isrs(cluster)
    sampler.note("rolling restart ends")


def drain(cluster: LocalCluster, sampler: Sampler) -> None:
    """Move all replicas of the load's topic off a node, and back again.

    The internal topics stay: their three replicas need all three nodes.
    """
    sampler.note("drain begins")
    nodes = sorted(cluster.nodes)
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        for replicas in ([nodes[0], nodes[1]], nodes):
            targets = {
                TopicPartition(_TOPIC, index): NewPartitionReassignment(_rotated(replicas, index))
                for index in range(_PARTITIONS)
            }
            for future in admin.alter_partition_reassignments(targets).values():
                future.result(60)
            deadline = time.monotonic() + _WAIT_S
            while admin.list_partition_reassignments().result(60) and time.monotonic() < deadline:
                time.sleep(1)
    _wait_for_isrs(cluster)
    sampler.note("drain ends")


def _rotated(replicas: Sequence[int], index: int) -> list[int]:
    start = index % len(replicas)
    return [*replicas[start:], *replicas[:start]]


def _wait_for_isrs(cluster: LocalCluster) -> None:
    deadline = time.monotonic() + _WAIT_S
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        while time.monotonic() < deadline:
            partitions = admin.list_topics(_TOPIC, timeout=30).topics[_TOPIC].partitions.values()
            if all(len(partition.isrs) == len(partition.replicas) for partition in partitions):
                return
            time.sleep(0.5)
    raise TimeoutError(f"the ISRs of {_TOPIC} are not whole after {_WAIT_S:.0f} s")


@contextlib.contextmanager
def _started() -> Iterator[LocalCluster]:
    cluster = LocalCluster(3, 3, config=_CONFIG, metrics=True)
    try:
        cluster.start()
        cluster.wait_ready(_WAIT_S)
        yield cluster
    finally:
        cluster.close()


def soak(minutes: float, records_per_s: float) -> dict[str, object]:
    """Run the soak test and return its result."""
    with _started() as cluster:
        with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            config = {
                "min.insync.replicas": "2",
                "retention.bytes": str(_RETENTION_BYTES),
                "segment.bytes": str(_SEGMENT_BYTES),
            }
            admin.create_topics([NewTopic(_TOPIC, _PARTITIONS, 3, config=config)])[_TOPIC].result(30)
        with Sampler(cluster, minutes * 60) as sampler, Load(cluster.bootstrap_servers, records_per_s) as load:
            sampler.note("load begins")
            for share, action in ((1 / 3, restart_all), (2 / 3, drain)):
                time.sleep(max(0, minutes * 60 * share - sampler.elapsed_s))
                action(cluster, sampler)
            time.sleep(max(0, minutes * 60 - sampler.elapsed_s))
            sampler.note("load ends")
        failures = cluster.failures
    trends = trends_of(sampler.samples, minutes * 60)
    return {
        "machine": facts(quick=False),
        "minutes": minutes,
        "records_per_s": records_per_s,
        "load": dataclasses.asdict(load.counts),
        "failures": failures,
        "bounds_per_hour": BOUNDS,
        "is_flat": all(trend.is_flat for trend in trends),
        "trends": [dataclasses.asdict(trend) for trend in trends],
        "events": sampler.events,
        "samples": [dataclasses.asdict(sample) for sample in sampler.samples],
    }


def write(result: Mapping[str, object], path: Path) -> None:
    """Write a result as JSON, with a line for each trend and sample."""
    lists = {name for name, value in result.items() if isinstance(value, list)}
    parts = [
        f"{json.dumps(name)}: {_lines(value) if name in lists else json.dumps(value)}" for name, value in result.items()
    ]
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def _lines(values: object) -> str:
    assert isinstance(values, list)
    return "[\n" + ",\n".join(json.dumps(value) for value in values) + "\n]" if values else "[]"


def main() -> int:
    """Run from the command line; the exit code is 1 if something grows, a record was lost or a process ended."""
    parser = argparse.ArgumentParser(description="Run a cluster under load, and check that nothing grows.")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=500.0, help="records of 1 kB per second")
    parser.add_argument("--output", type=Path, default=Path("build") / "soak", help="the folder of the result")
    options = parser.parse_args()
    result = soak(options.minutes, options.rate)
    options.output.mkdir(parents=True, exist_ok=True)
    write(result, options.output / "soak.json")
    from benchmarks.soak_plot import draw

    draw(options.output / "soak.json", options.output / "soak.svg")
    trends = [Trend(**document) for document in result["trends"]]  # type: ignore[attr-defined]
    for trend in trends:
        print(trend)
    print(f"load: {result['load']}")
    print(
        f"{'flat' if result['is_flat'] else 'NOT FLAT'}; {options.output / 'soak.json'}, {options.output / 'soak.svg'}"
    )
    counts = result["load"]
    assert isinstance(counts, dict)
    return 0 if result["is_flat"] and not result["failures"] and not counts["failed"] else 1


if __name__ == "__main__":
    sys.exit(main())

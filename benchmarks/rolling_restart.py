"""A rolling restart under load: the longest write, by listener, while each process is stopped and started in turn.

``python -m benchmarks.rolling_restart`` starts three controllers and three nodes. Producers with acks=all, members of
groups and transactional producers of the SDK (gRPC) and of confluent-kafka (Kafka's protocol) work at a steady rate.
Each process gets SIGTERM when it says that it is safe to stop, and the next one follows when it is ready again. The
table has what the clients have seen, and next to it what they have seen without restarts: a write lasts from its
``produce`` until its delivery report, a read from the delivery report until the record arrives at the member, a
transaction from its begin until its commit.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.admin import AdminClient, NewTopic
from tidelog.testing import LocalCluster
from tidelog.testing.process import ProcessHandle

TOPIC: Final = "rolled"
BAR_S: Final = 0.5
_DEADLINE_S: Final = 120.0
_WARM_UP_S: Final = 5.0
_AFTERMATH_S: Final = 2.0
_SHOWN_FAILURES: Final = 5


@dataclass(frozen=True, slots=True)
class Operation:
    """A write, a read or a transaction: its duration, and the time of its end."""

    seconds: float
    ended_s: float


@dataclass(slots=True)
class Outcomes:
    """The operations of one client, and its failures."""

    done: list[Operation] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def longest(self) -> Operation:
        """The longest operation."""
        return max(self.done, key=lambda each: each.seconds, default=Operation(0, 0))

    def percentile(self, share: float) -> float:
        """Return the duration that a share of the operations did not exceed."""
        ordered = sorted(each.seconds for each in self.done)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


class Clients:
    """The clients of one listener, each in a thread: a producer, a member of a group, a transactional producer."""

    def __init__(self, name: str, library: str, settings: Mapping[str, str], partitions: int, rate: float) -> None:
        self.name = name
        self.outcomes = {"write": Outcomes(), "read": Outcomes(), "transaction": Outcomes()}
        self._library: Any = importlib.import_module(library)
        self._settings = dict(settings)
        self._partitions = partitions
        self._pause_s = 1 / rate
        self._stopping = threading.Event()
        self._acknowledged: dict[bytes, float] = {}
        self._threads = [
            threading.Thread(target=self._watched, args=(kind, work), name=f"{name}-{kind}", daemon=True)
            for kind, work in (("write", self._write), ("read", self._read), ("transaction", self._transact))
        ]

    def start(self) -> None:
        """Begin to work."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the work, and wait for what is in progress."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(_DEADLINE_S)

    def _watched(self, kind: str, work: Any) -> None:
        try:
            work(self.outcomes[kind])
        except Exception as error:
            self.outcomes[kind].failures.append(repr(error))
            raise

    def _write(self, outcomes: Outcomes) -> None:
        producer = self._library.Producer({**self._settings, "acks": "all", "linger.ms": "0"})
        number, next_s = 0, time.monotonic()
        while not self._stopping.is_set():
            begun_s, key = time.monotonic(), b"%s-%d" % (self.name.encode(), number)

            def report(error: object, message: Any, begun_s: float = begun_s, key: bytes = key) -> None:
                now_s = time.monotonic()
                if error is not None:
                    outcomes.failures.append(str(error))
                    return
                self._acknowledged[key] = now_s
                outcomes.done.append(Operation(now_s - begun_s, now_s))

            partition = number % self._partitions
            producer.produce(TOPIC, key=key, value=b"x" * 200, partition=partition, on_delivery=report)
            number, next_s = number + 1, next_s + self._pause_s
            while (left_s := next_s - time.monotonic()) > 0:
                producer.poll(left_s)
            producer.poll(0)
        producer.flush(_DEADLINE_S)

    def _read(self, outcomes: Outcomes) -> None:
        consumer = self._library.Consumer(
            {**self._settings, "group.id": f"rolled-{self.name}", "auto.offset.reset": "latest"}
        )
        consumer.subscribe([TOPIC])
        prefix, waiting = self.name.encode() + b"-", dict[bytes, float]()
        with contextlib.closing(consumer):
            while not self._stopping.is_set():
                message = consumer.poll(0.1)
                now_s = time.monotonic()
                if message is not None and message.error() is None and (message.key() or b"").startswith(prefix):
                    waiting[message.key()] = now_s
                for key in [key for key in waiting if key in self._acknowledged]:
                    arrived_s = waiting.pop(key)
                    outcomes.done.append(Operation(max(0.0, arrived_s - self._acknowledged.pop(key)), arrived_s))

    def _transact(self, outcomes: Outcomes) -> None:
        settings = {**self._settings, "transactional.id": f"rolled-{self.name}", "linger.ms": "0"}
        producer = self._library.Producer(settings)
        producer.init_transactions(_DEADLINE_S)
        number = 0
        while not self._stopping.is_set():
            begun_s = time.monotonic()
            producer.begin_transaction()
            for _ in range(3):
                producer.produce(TOPIC, value=b"t" * 200, partition=number % self._partitions)
                number += 1
            producer.commit_transaction(_DEADLINE_S)
            ended_s = time.monotonic()
            outcomes.done.append(Operation(ended_s - begun_s, ended_s))
            self._stopping.wait(0.05)


@dataclass(frozen=True, slots=True)
class Step:
    """The restart of one process: the time of the signal, of its end, and when it was ready again."""

    name: str
    begun_s: float
    stopped_s: float
    ready_s: float


@dataclass(frozen=True, slots=True)
class Measured:
    """The operations of the clients during the restarts, and in a calm time before them, by listener and operation."""

    calm: Mapping[tuple[str, str], Outcomes]
    rolled: Mapping[tuple[str, str], Outcomes]
    steps: Sequence[Step]

    @property
    def longest_write_s(self) -> float:
        """The duration of the longest write of all clients during the restarts."""
        return max(each.longest.seconds for (_, kind), each in self.rolled.items() if kind == "write")


def run(*, rounds: int = 1, rate: float = 200, partitions: int = 12, calm_s: float = 20) -> Measured:
    """Restart every process of a cluster in turn, and return what the clients have seen."""
    config = {"min.insync.replicas": 2, "transaction.state.log.min.isr": 2, "transaction.state.log.num.partitions": 6}
    cluster = LocalCluster(3, 3, config=config, metrics=True)
    with contextlib.closing(cluster):
        cluster.start()
        # On a busy machine the start takes longer than the default.
        cluster.wait_ready(_DEADLINE_S)
        with AdminClient(cluster.client_settings()) as admin:
            admin.create_topics([NewTopic(TOPIC, partitions, 3)])[TOPIC].result(30)
        grpc = Clients("gRPC", "tidelog", cluster.client_settings(), partitions, rate)
        kafka = Clients("Kafka", "confluent_kafka", cluster.kafka_client_settings(), partitions, rate)
        doors = [grpc, kafka]
        for door in doors:
            door.start()
        # The start of the clients belongs to neither time.
        time.sleep(_WARM_UP_S)
        _take(doors)
        time.sleep(calm_s)
        calm = _take(doors)
        steps = [step for _ in range(rounds) for step in _roll(cluster)]
        time.sleep(_AFTERMATH_S)
        for door in doors:
            door.stop()
        return Measured(calm, _take(doors), steps)


def _take(doors: Sequence[Clients]) -> dict[tuple[str, str], Outcomes]:
    """Return the outcomes so far, and begin anew."""
    taken = {}
    for door in doors:
        for kind, outcomes in door.outcomes.items():
            taken[door.name, kind] = Outcomes(outcomes.done, outcomes.failures)
            outcomes.done, outcomes.failures = [], []
    return taken


def _roll(cluster: LocalCluster) -> Iterator[Step]:
    for process in (*cluster.nodes.values(), *cluster.controllers.values()):
        yield _restart(process)


def _restart(process: ProcessHandle) -> Step:
    if not _is_ok(process, "safe-to-stop?wait=60"):
        raise RuntimeError(f"{process.name} is not safe to stop")
    begun_s = time.monotonic()
    process.stop(60)
    stopped_s = time.monotonic()
    process.start()
    deadline = time.monotonic() + _DEADLINE_S
    while not _is_ok(process, "readyz"):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{process.name} is not ready")
        time.sleep(0.05)
    return Step(process.name, begun_s, stopped_s, time.monotonic())


def _is_ok(process: ProcessHandle, path: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{process.metrics_address}/{path}", timeout=90):
            return True
    except (urllib.error.HTTPError, OSError):
        return False


def _during(operation: Operation, steps: Sequence[Step]) -> str:
    """Return the step in which the longest operation was in progress."""
    begun_s = operation.ended_s - operation.seconds
    for step in steps:
        if begun_s <= step.ready_s and operation.ended_s >= step.begun_s:
            return f"{step.name}, {operation.ended_s - step.begun_s:+.2f} s after its signal"
    return "between two restarts"


def main() -> None:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="how often each process is restarted")
    parser.add_argument("--rate", type=float, default=200, help="records per second of each producer")
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    measured = run(rounds=options.rounds, rate=options.rate, partitions=options.partitions)
    rows = [_row(name, kind, measured) for name, kind in measured.rolled]
    longest_s = measured.longest_write_s
    if options.json:
        print(json.dumps({"load_average": load, "longest_write_s": longest_s, "operations": rows}, indent=2))
        return
    for step in measured.steps:
        stopped_s, ready_s = step.stopped_s - step.begun_s, step.ready_s - step.stopped_s
        print(f"{step.name}: stopped in {stopped_s:.2f} s, ready {ready_s:.2f} s later")
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    for (name, kind), outcomes in measured.rolled.items():
        for failure in outcomes.failures[:_SHOWN_FAILURES]:
            print(f"{name} {kind} failed: {failure}")
    verdict = "passed" if longest_s <= BAR_S else "failed"
    print(f"longest write: {longest_s:.3f} s, bar {BAR_S} s: {verdict}; load average at the start {load:.1f}")


def _row(name: str, kind: str, measured: Measured) -> dict[str, object]:
    calm, rolled = measured.calm[name, kind], measured.rolled[name, kind]
    return {
        "listener": name,
        "operation": kind,
        "number": len(rolled.done),
        "p50_ms": round(rolled.percentile(0.5) * 1_000, 1),
        "p99_ms": round(rolled.percentile(0.99) * 1_000, 1),
        "longest_s": round(rolled.longest.seconds, 3),
        "during": _during(rolled.longest, measured.steps),
        "failures": len(rolled.failures),
        "calm_p99_ms": round(calm.percentile(0.99) * 1_000, 1),
        "calm_longest_s": round(calm.longest.seconds, 3),
    }


if __name__ == "__main__":
    main()

"""A writer in a pod that knows of each record whether it was acknowledged, and how long that took."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from types import TracebackType

from kubernetes_cluster import DEADLINE_S, KubernetesCluster

TOPIC = "written"
LONGEST_WRITE_S = float(os.environ.get("TIDELOG_LONGEST_WRITE_S", "0.5"))
"""The bound of a write during a planned change, on machines that have cores to spare."""
PARTITIONS = 6
_STOP = "/tmp/stop"
_CREATE = f"""
with AdminClient(servers) as admin:
    admin.create_topics([NewTopic("{TOPIC}", {PARTITIONS}, 3)])["{TOPIC}"].result(120)
"""
_WRITE = f"""
import os, time
produced, acknowledged, failures, longest = {{}}, [], [], (0, 0)

def delivered(error, message):
    global longest
    number = int(message.value())
    if error is None:
        acknowledged.append(number)
        longest = max(longest, (time.monotonic() - produced[number], number))
    else:
        failures.append(str(error))

with Producer({{**servers, "acks": "all", "enable.idempotence": True, "linger.ms": 0}}) as producer:
    print("started", flush=True)
    while not os.path.exists("{_STOP}"):
        number = len(produced)
        produced[number] = time.monotonic()
        producer.produce("{TOPIC}", str(number), partition=number % {PARTITIONS}, on_delivery=delivered)
        producer.poll(0.01)
    assert producer.flush(120) == 0
print(json.dumps([acknowledged, failures, longest[0]]), flush=True)
"""
_READ = f"""
with Consumer({{**servers, "enable.partition.eof": True}}) as consumer:
    left = set(range({PARTITIONS}))
    consumer.assign([TopicPartition("{TOPIC}", p, 0) for p in left])
    found = []
    while left:
        message = consumer.poll(120)
        if message.error():
            left.discard(message.partition())
        else:
            found.append(int(message.value()))
print(json.dumps(found))
"""
_PLACEMENT = f"""
with AdminClient(servers) as admin:
    partitions = admin.list_topics("{TOPIC}", timeout=120).topics["{TOPIC}"].partitions
print(json.dumps([[partitions[p].replicas, partitions[p].isrs] for p in range({PARTITIONS})]))
"""


@dataclass(frozen=True, slots=True)
class Written:
    """The numbers that were acknowledged, the failures of others, and the longest time of a write in seconds."""

    acknowledged: list[int]
    failures: list[str]
    longest_s: float


class Writer:
    """A producer of 100 records a second with acks=all, which writes from ``with`` on until `stop`."""

    def __init__(self, cluster: KubernetesCluster) -> None:
        self._cluster = cluster
        self._process: subprocess.Popen[str] | None = None

    def create_topic(self) -> None:
        """Create the topic."""
        self._cluster.run(_CREATE)

    def __enter__(self) -> Writer:
        self._cluster.kubectl("exec", self._cluster.client, "--", "rm", "-f", _STOP)
        self._process = self._cluster.start(_WRITE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "started\n", self._process.communicate()[1]
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def stop(self) -> Written:
        """End the writer, and return what it has written."""
        process, self._process = self._process, None
        assert process is not None, "the writer does not write"
        self._cluster.kubectl("exec", self._cluster.client, "--", "touch", _STOP)
        output, errors = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, errors[-2000:]
        return Written(*json.loads(output))

    def read(self) -> list[int]:
        """Return all numbers of the topic, by partition in the order of their offsets."""
        numbers: list[int] = json.loads(self._cluster.run(_READ))
        return numbers

    def check(self, written: Written, before: list[int]) -> None:
        """Require what was there before, then each acknowledged record once, in the order of writes."""
        assert written.failures == []
        found = self.read()
        stored: set[int] = set()
        for partition in range(PARTITIONS):
            old, new = ([n for n in numbers if n % PARTITIONS == partition] for numbers in (before, found))
            assert new[: len(old)] == old, f"partition {partition} has other records than before"
            added = new[len(old) :]
            assert added == sorted(set(added)), f"partition {partition} has records twice or out of order"
            stored.update(added)
        lost = set(written.acknowledged) - stored
        assert not lost, f"{len(lost)} acknowledged records are lost"

    def check_planned(self, change: str, written: Written, before: list[int]) -> None:
        """Check the topic after a planned change, which keeps no write waiting, and print the longest write."""
        load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
        print(f"\n{change}: {len(written.acknowledged)} writes, the longest {written.longest_s:.3f} s (load {load})")
        self.check(written, before)
        assert written.longest_s <= LONGEST_WRITE_S, f"{change}: a write waited for {written.longest_s:.3f} s"

    def in_sync(self) -> list[int]:
        """Return the number of replicas in sync of each partition."""
        return [len(isr) for _, isr in self._placement()]

    def members(self) -> set[int]:
        """Return the nodes that are in sync for any partition."""
        return {node for _, isr in self._placement() for node in isr}

    def _placement(self) -> list[tuple[list[int], list[int]]]:
        placement: list[tuple[list[int], list[int]]] = json.loads(self._cluster.run(_PLACEMENT))
        return placement

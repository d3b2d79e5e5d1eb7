"""What a storage node costs while nothing happens: a real process that leads 1,000 empty partitions.

One controller and one node, with Kafka's defaults but for the intervals that a local cluster shortens. Linux alone:
the figures are the kernel's.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks import process
from benchmarks.options import Options
from benchmarks.result import Bar, Result
from benchmarks.suite import run_alone
from tidelog.admin import AdminClient, NewTopic
from tidelog.testing import LocalCluster

_PARTITIONS = 1000
_PARTITIONS_PER_TOPIC = 50
_TIMEOUT_S = 60.0


def run(options: Options) -> list[Result]:
    """Measure memory, CPU and file descriptors of the node."""
    options.say("starting one controller and one node")
    with LocalCluster(controllers=1, nodes=1) as cluster:
        pid = cluster.nodes[1].pid
        before = process.resident_mb(pid)
        options.say(f"creating {_PARTITIONS} partitions")
        started = time.monotonic()
        _create_partitions(cluster)
        created_s = time.monotonic() - started
        options.say("letting them be idle")
        idle_share = _idle_cpu_share(pid, options.pick(20, 5))
        resident = process.resident_mb(pid)
        name = f"node with {_PARTITIONS:,} empty partitions"
        return [
            Result(f"{name}: resident memory", resident, "MB", bar=Bar.on_value(at_most=150)),
            Result(f"{name}: proportional share of it", process.proportional_mb(pid), "MB"),
            Result("node without partitions: resident memory", before, "MB"),
            Result("memory per empty partition", (resident - before) / _PARTITIONS * 1e3, "kB"),
            Result(f"{name}: idle CPU", idle_share * 100, "% of a core"),
            Result(f"{name}: file descriptors", process.file_descriptors(pid), "files"),
            Result(f"{name}: threads", process.threads(pid), "threads"),
            Result(f"create {_PARTITIONS:,} partitions", created_s, "s"),
        ]


def _create_partitions(cluster: LocalCluster) -> None:
    """Create the topics and wait until the node has a log for every partition."""
    count = _PARTITIONS // _PARTITIONS_PER_TOPIC
    topics = [NewTopic(f"idle-{index}", _PARTITIONS_PER_TOPIC, 1) for index in range(count)]
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        for future in admin.create_topics(topics).values():
            future.result(_TIMEOUT_S)
    _wait_until(lambda: len(list(cluster.nodes[1].directory.glob("data/idle-*/*.log"))) == _PARTITIONS)


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the partitions were not there after {_TIMEOUT_S} s")
        time.sleep(0.05)


def _idle_cpu_share(pid: int, seconds: float) -> float:
    time.sleep(2)
    used, started = process.cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return (process.cpu_seconds(pid) - used) / (time.monotonic() - started)


if __name__ == "__main__":
    run_alone(run)

"""The idle cost of a storage node: a real process that leads 1,000 empty partitions.

One controller and one node run with Kafka's defaults, except the intervals that a local cluster shortens. The figures
come from the kernel, so the benchmark needs Linux.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks import process
from benchmarks.options import Options
from benchmarks.result import Bar, Result
from benchmarks.rounds import seconds_of
from benchmarks.suite import run_alone
from tidelog.admin import AdminClient, NewTopic
from tidelog.producer import Producer
from tidelog.testing import LocalCluster

_PARTITIONS = 1000
_PARTITIONS_PER_TOPIC = 50
_TIMEOUT_S = 60.0


def run(options: Options) -> list[Result]:
    """Measure the node's memory, CPU and file descriptors, and its restart times after a stop and after a kill."""
    options.say("starting one controller and one node")
    with LocalCluster(controllers=1, nodes=1) as cluster:
        before = process.resident_mb(cluster.nodes[1].pid)
        options.say(f"creating {_PARTITIONS} partitions")
        created_s = seconds_of(lambda: _create_partitions(cluster))
        options.say("letting them be idle")
        idle = _idle_results(cluster.nodes[1].pid, before, options)
        options.say("stopping the node, killing it, starting it again")
        stopped_s = seconds_of(lambda: cluster.nodes[1].stop())
        started_s = seconds_of(lambda: _start(cluster))
        cluster.nodes[1].kill()
        recovered_s = seconds_of(lambda: _start(cluster))
    return [
        *idle,
        Result(f"create {_PARTITIONS:,} partitions", created_s, "s"),
        Result(f"stop the node with {_PARTITIONS:,} partitions", stopped_s, "s"),
        Result("start it again, until it serves", started_s, "s"),
        Result("start it after a kill, until it serves", recovered_s, "s"),
    ]


def _idle_results(pid: int, before_mb: float, options: Options) -> list[Result]:
    name = f"node with {_PARTITIONS:,} empty partitions"
    idle_share = _idle_cpu_share(pid, options.pick(20, 5))
    resident_mb = process.resident_mb(pid)
    each_kb = (resident_mb - before_mb) / _PARTITIONS * 1e3
    return [
        Result(f"{name}: resident memory", resident_mb, "MB", bar=Bar.on_value(at_most=150)),
        Result(f"{name}: proportional share of it", process.proportional_mb(pid), "MB"),
        Result("node without partitions: resident memory", before_mb, "MB"),
        Result("memory per empty partition", each_kb, "kB"),
        Result(f"{name}: idle CPU", idle_share * 100, "% of a core"),
        Result(f"{name}: file descriptors", process.file_descriptors(pid), "files"),
        Result(f"{name}: threads", process.threads(pid), "threads"),
    ]


def _start(cluster: LocalCluster) -> None:
    """Start the node and wait until it has accepted a record into the last created partition."""
    cluster.nodes[1].start()
    cluster.wait_ready(_TIMEOUT_S)
    topic = f"idle-{_PARTITIONS // _PARTITIONS_PER_TOPIC - 1}"
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.produce(topic, b"it serves", partition=_PARTITIONS_PER_TOPIC - 1)
        unsent = producer.flush(_TIMEOUT_S)
    assert unsent == 0, unsent


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

"""The CPU of a leader and its followers for one record, and its latency, by a producer that sends one at a time.

    python -m benchmarks.replication_cpu [--quick]

Each record of 1 KiB is sent with acks=all to a partition with three replicas, through the nodes' Kafka listeners, when
the previous one is acknowledged. Two versions of the code are best compared by running this in turns: the CPU depends
less on other work of the machine than the latency does.
"""

from __future__ import annotations

import os
import statistics
from pathlib import Path

from benchmarks.options import Options
from benchmarks.peers.client import Sender, Topics
from benchmarks.peers.peer import Size
from benchmarks.peers.tidelog_cluster import TidelogCluster
from benchmarks.result import Result
from benchmarks.rounds import quantile
from benchmarks.suite import run_alone

_TOPIC = "records"
_REPLICAS = 3
_WARM_UP = 500
_MICRO, _MILLI = 1e6, 1e3
_NANO = 1e-9


def run(options: Options) -> list[Result]:
    """Send 20,000 records (quick: 2,000), after a warm-up."""
    count, value = options.pick(20_000, 2_000), os.urandom(1024)
    cluster = TidelogCluster(Size(1, _REPLICAS))
    cluster.start()
    try:
        topics = Topics(cluster.bootstrap_servers)
        topics.create(_TOPIC, 1, _REPLICAS)
        topics.wait_whole(_TOPIC)
        leader = topics.leader(_TOPIC, 0)
        sender = Sender(cluster.bootstrap_servers, _TOPIC, linger_ms=0)
        sender.latencies_s(value, _WARM_UP)
        options.say(f"sending {count} records, one at a time")
        pids = {broker: cluster.broker_pid(broker) for broker in range(1, _REPLICAS + 1)}
        before = {broker: _cpu_s(pid) for broker, pid in pids.items()}
        latencies = sender.latencies_s(value, count)
        used = {broker: (_cpu_s(pid) - before[broker]) / count for broker, pid in pids.items()}
    finally:
        cluster.close()
    followers = statistics.mean(cpu for broker, cpu in used.items() if broker != leader)
    name = f"synchronous produce, 1 KiB, acks=all, {_REPLICAS} replicas"
    return [
        Result(f"{name}: CPU of the leader", used[leader] * _MICRO, "µs/record"),
        Result(f"{name}: CPU of a follower", followers * _MICRO, "µs/record"),
        Result(f"{name}: p50", quantile(latencies, 0.5) * _MILLI, "ms"),
        Result(f"{name}: p99", quantile(latencies, 0.99) * _MILLI, "ms"),
    ]


def _cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process's threads, to the nanosecond (Linux only)."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) * _NANO


if __name__ == "__main__":
    run_alone(run)

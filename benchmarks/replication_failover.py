"""The write outage after a node or a controller goes away, by a kill or a regular stop.

    python -m benchmarks.replication_failover [--quick] [--kills 50] [--stops 20] [--controller-kills 10]

The cluster has three controllers and three nodes with ``broker.session.timeout.ms=1000``, a topic with six partitions,
three replicas and ``min.insync.replicas=2``, and an idempotent producer with acks=all and fifty records a second for
each partition. The figure of a failure is the longest time between two acknowledged records in the worst partition that
the node led. It includes everything that a user sees: the detection, the election, and the client's discovery of the
new leader.

The producer's ``retry.backoff.max.ms`` fits the session: a client that waits for a second between two attempts finds
the new leader that much later. The default of a second is measured as well.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.options import Options
from benchmarks.replication_load import Leadership, SteadyLoad, wait_for
from benchmarks.result import Bar, Result
from benchmarks.rounds import quantile
from benchmarks.table import make_console, print_results
from tidelog.testing import LocalCluster
from tidelog.testing.process import ProcessHandle

CONFIG = {"broker.session.timeout.ms": 1_000, "broker.heartbeat.interval.ms": 200}
_PATIENT: Mapping[str, object] = {}
_SWIFT: Mapping[str, object] = {"retry.backoff.max.ms": 100}
_TOPIC, _PARTITIONS, _PER_PARTITION_S = "failover", 6, 50
_VALUE_BYTES = 100
_WATCHED_S = 2.5
_MILLI = 1e3


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of repetitions of each failure. ``default_kills`` are with a producer's default back-off."""

    kills: int
    default_kills: int
    stops: int
    controller_kills: int


def run(options: Options) -> list[Result]:
    """Kill and stop leaders, and kill leading controllers."""
    return measure(options, options.pick(Counts(50, 10, 20, 10), Counts(3, 2, 3, 2)))


def measure(options: Options, counts: Counts) -> list[Result]:
    """Measure each failure repeatedly."""
    load_average = os.getloadavg()[0]
    with LocalCluster(config=CONFIG) as cluster, Leadership(cluster, _TOPIC, _PARTITIONS) as leadership:
        with _load(cluster, _SWIFT) as load:
            trial = _Trial(cluster, leadership, load)
            options.say("sending while nothing happens")
            calm = [trial.watch_calm() for _ in range(max(1, counts.controller_kills))]
            kills = trial.repeat(options, "killing a leader", counts.kills, trial.kill_leader)
            stops = trial.repeat(options, "stopping a leader", counts.stops, trial.stop_leader)
            controllers = trial.repeat(
                options, "killing the leading controller", counts.controller_kills, trial.kill_controller
            )
        with _load(cluster, _PATIENT) as load:
            trial = _Trial(cluster, leadership, load)
            defaults = trial.repeat(
                options, "killing a leader, default back-off", counts.default_kills, trial.kill_leader
            )
    return [
        Result("load of the machine before the failures, 1 min", load_average, "processes"),
        *_results("kill of a leader", kills, Bar.on_value(at_most=1_500)),
        *_results("kill of a leader, default retry.backoff.max.ms", defaults, None),
        *_results("clean stop of a leader", stops, Bar.on_value(at_most=300)),
        *_controller_results(controllers, calm),
    ]


def _results(name: str, gaps_s: list[float], bar: Bar | None) -> list[Result]:
    if not gaps_s:
        return []
    return [
        Result(f"{name}: not writable, p50", statistics.median(gaps_s) * _MILLI, "ms"),
        Result(f"{name}: not writable, p99 of {len(gaps_s)}", quantile(gaps_s, 0.99) * _MILLI, "ms", bar=bar),
    ]


def _controller_results(latencies_s: list[float], calm_s: list[float]) -> list[Result]:
    if not latencies_s:
        return []
    worst, calm_worst = max(latencies_s), max(calm_s)
    name = f"kill of the leading controller: longest latency of a send, {len(latencies_s)} times"
    compared_with = f"{calm_worst * _MILLI:.0f} ms undisturbed"
    return [
        Result("undisturbed: longest latency of a send", calm_worst * _MILLI, "ms"),
        Result(name, worst * _MILLI, "ms", compared_with, calm_worst / worst, Bar.on_value(at_most=100)),
    ]


class _Trial:
    """Causes failures under load, returns the length of the outage, and repairs the cluster."""

    def __init__(self, cluster: LocalCluster, leadership: Leadership, load: SteadyLoad) -> None:
        self._cluster = cluster
        self._leadership = leadership
        self._load = load
        load.wait_until_acknowledged(range(_PARTITIONS), time.monotonic())

    def repeat(self, options: Options, what: str, count: int, once: Callable[[], float]) -> list[float]:
        found = []
        for index in range(count):
            options.say(f"{what}, {index + 1} of {count}")
            # Vary the time since the last heartbeat.
            time.sleep(random.uniform(0, 0.2))
            found.append(once())
        return found

    def watch_calm(self) -> float:
        """Return the longest latency without a failure."""
        start_s = time.monotonic()
        return self._latency_since(start_s)

    def kill_leader(self) -> float:
        return self._lose_leader(ProcessHandle.kill)

    def stop_leader(self) -> float:
        return self._lose_leader(ProcessHandle.terminate)

    def kill_controller(self) -> float:
        wait_for(lambda: self._cluster.controller_leader() is not None, "a leading controller")
        leader = self._cluster.controller_leader()
        assert leader is not None
        controller = self._cluster.controllers[leader]
        start_s = time.monotonic()
        controller.kill()
        longest_s = self._latency_since(start_s)
        controller.start()
        self._cluster.wait_ready()
        return longest_s

    def _lose_leader(self, end: Callable[[ProcessHandle], None]) -> float:
        node_id, led = self._leadership.busiest()
        node = self._cluster.nodes[node_id]
        start_s = time.monotonic()
        end(node)
        # Signals are sent in microseconds. A record in flight may be acknowledged after a kill.
        self._load.wait_until_acknowledged(led, start_s)
        wait_for(lambda: not set(led) & set(self._leadership.by_node().get(node_id, ())), "other leaders")
        self._load.wait_until_acknowledged(led, time.monotonic())
        gap_s = max(self._load.longest_gap_s(partition, start_s) for partition in led)
        node.wait_or_kill(30)
        node.start()
        self._leadership.wait_whole()
        return gap_s

    def _latency_since(self, start_s: float) -> float:
        end_s = start_s + _WATCHED_S
        self._load.wait_until_acknowledged(range(_PARTITIONS), end_s)
        return self._load.longest_latency_s(start_s, end_s)


def _load(cluster: LocalCluster, producer: Mapping[str, object]) -> SteadyLoad:
    rate = _PARTITIONS * _PER_PARTITION_S
    return SteadyLoad(cluster.bootstrap_servers, _TOPIC, _PARTITIONS, rate, _VALUE_BYTES, producer)


def main() -> None:
    """Measure alone, with counts from the command line."""
    parser = argparse.ArgumentParser(description=run.__doc__)
    parser.add_argument("--quick", action="store_true", help="few of each")
    for name, default in (("kills", 50), ("default-kills", 10), ("stops", 20), ("controller-kills", 10)):
        parser.add_argument(f"--{name}", type=int, metavar="N", help=f"how many (default: {default}, quick: few)")
    parsed = parser.parse_args()
    counts = Counts(3, 2, 3, 2) if parsed.quick else Counts(50, 10, 20, 10)
    given = {name: value for name, value in vars(parsed).items() if name != "quick" and value is not None}
    chosen = Counts(**{**{f: getattr(counts, f) for f in Counts.__slots__}, **given})
    console = make_console()
    with console.status("starting") as status:
        results = measure(Options(quick=parsed.quick, say=status.update), chosen)
    print_results(console, [results])


if __name__ == "__main__":
    main()

"""The latency of a producer beside a client that offers twenty times its quota, and the cost of measuring clients.

One controller and one node run as processes. :mod:`benchmarks.abuse` has the clients.
"""

from __future__ import annotations

import statistics
import time

from benchmarks import process
from benchmarks.abuse import GREED, GREEDY, MODEST, QUOTA, greedy, latencies, p99_ms, send
from benchmarks.options import Options
from benchmarks.result import Bar, Result
from benchmarks.suite import run_alone
from tidelog.admin import AdminClient, ClientQuotaAlteration, ClientQuotaAlterationOp, ClientQuotaEntity, NewTopic
from tidelog.testing import LocalCluster

_TIMEOUT_S = 30.0
_GREEDY = ClientQuotaEntity({"client-id": GREEDY})
_OTHERS = ClientQuotaEntity({"client-id": "nobody"})
_MODEST = ClientQuotaEntity({"client-id": MODEST})


def run(options: Options) -> list[Result]:
    """Measure the modest producer alone, beside the greedy one without a quota, and beside it with one."""
    options.say("starting one controller and one node")
    with LocalCluster(controllers=1, nodes=1) as cluster, AdminClient(cluster.client_settings()) as admin:
        admin.create_topics([NewTopic(MODEST, 1, 1), NewTopic(GREEDY, 1, 1)])[GREEDY].result(_TIMEOUT_S)
        address = cluster.nodes[1].kafka_address
        seconds = options.pick(30.0, 10.0)
        options.say("a modest producer alone")
        alone = latencies(address, seconds)
        options.say("beside a greedy one without a quota")
        with greedy(address):
            beside = latencies(address, seconds)
        options.say("beside a greedy one with a quota")
        _limit(admin, _GREEDY, QUOTA)
        with greedy(address):
            # Ten windows of the quota are free at first.
            time.sleep(2)
            limited = latencies(address, seconds)
        _limit(admin, _GREEDY, None)
        costs = _costs(cluster, admin, options)
    name = "a producer's p99"
    return [
        Result(f"{name}: alone", p99_ms(alone), "ms"),
        Result(f"{name}: beside {GREED} x 1 MB/s without a quota", p99_ms(beside), "ms"),
        Result(
            f"{name}: beside {GREED} x its quota of 1 MB/s",
            p99_ms(limited),
            "ms",
            "alone",
            p99_ms(alone) / p99_ms(limited),
            Bar.on_ratio(at_least=0.5),
        ),
        *costs,
    ]


def _costs(cluster: LocalCluster, admin: AdminClient, options: Options) -> list[Result]:
    """Measure the node's CPU time per produce request: without quotas, with those of others, with its own."""
    used: dict[str, list[float]] = {"no quota": [], "a quota of others": [], "a quota of its own": []}
    count, address, pid = options.pick(10_000, 3_000), cluster.nodes[1].kafka_address, cluster.nodes[1].pid
    for turn in range(options.pick(10, 4) + 1):
        options.say(f"the cost of a request, round {turn}")
        for kind, entity in (("no quota", None), ("a quota of others", _OTHERS), ("a quota of its own", _MODEST)):
            if entity is not None:
                _limit(admin, entity, 10**12)
            taken = _cpu_per_request_us(address, pid, count)
            if entity is not None:
                _limit(admin, entity, None)
            if turn:
                used[kind].append(taken)
    without = statistics.median(used["no quota"])
    return [Result("CPU per produce request: no quota", without, "us")] + [
        Result(f"CPU per produce request: {kind}", statistics.median(used[kind]), "us", "no quota", ratio)
        for kind in ("a quota of others", "a quota of its own")
        for ratio in [statistics.median(a / b for a, b in zip(used["no quota"], used[kind], strict=True))]
    ]


def _cpu_per_request_us(address: str, pid: int, count: int) -> float:
    before = process.cpu_seconds(pid)
    send(address, count)
    return (process.cpu_seconds(pid) - before) / count * 1e6


def _limit(admin: AdminClient, entity: ClientQuotaEntity, rate: float | None) -> None:
    alteration = ClientQuotaAlteration(entity, [ClientQuotaAlterationOp("producer_byte_rate", rate)])
    admin.alter_client_quotas([alteration])[entity].result(_TIMEOUT_S)


if __name__ == "__main__":
    run_alone(run)

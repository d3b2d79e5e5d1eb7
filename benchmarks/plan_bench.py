"""The CPU time of a plan of ``tidelog cluster rebalance``: python -m benchmarks.plan_bench [--nodes N --partitions N].

The cluster has a fifth of its nodes empty, replicas without regard to five racks, and sizes of a Pareto distribution:
nothing is in balance. With ``--rates``, partitions also have rates, as after ``--sample``.
"""

from __future__ import annotations

import argparse
import random
import time

from tidelog.message import TopicPartition
from tidelog_cli.balance.planner import make_plan
from tidelog_cli.balance.snapshot import ClusterSnapshot, Node, Partition

_RACKS = 5
_FACTOR = 3
_PER_TOPIC = 20
_CAPACITY = 10**13
_SHAPE = 1.2
"""The exponent of the Pareto distribution: a few partitions have most of the bytes."""


def unbalanced(nodes: int, partitions: int, *, has_rates: bool, seed: int = 1) -> ClusterSnapshot:
    """Return a cluster that is far from balance, always the same for a seed."""
    chosen = random.Random(seed)
    used = range(max(_FACTOR, nodes * 4 // 5))

    def drawn(unit: int) -> int:
        return int(chosen.paretovariate(_SHAPE) * unit)

    found = {}
    for number in range(partitions):
        replicas = tuple(chosen.sample(used, _FACTOR))
        rates = (drawn(10_000), drawn(10_000)) if has_rates else (0, 0)
        key = TopicPartition(f"t{number // _PER_TOPIC}", number % _PER_TOPIC)
        found[key] = Partition(replicas, replicas[0], drawn(10**8), *rates)
    return ClusterSnapshot({i: Node(i, f"r{i % _RACKS}", capacity_bytes=_CAPACITY) for i in range(nodes)}, found)


def main() -> None:
    """Plan, and print the CPU time, the moves and the scores."""
    parser = argparse.ArgumentParser(description="Measure the planner of a rebalance.")
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--rates", action="store_true", help="give the partitions rates")
    options = parser.parse_args()
    snapshot = unbalanced(options.nodes, options.partitions, has_rates=options.rates)
    begun_s = time.process_time()
    plan = make_plan(snapshot)
    print(f"{options.nodes} nodes, {options.partitions} partitions: {time.process_time() - begun_s:.1f} s of CPU time")
    print(f"{len(plan.moves)} moves; score {plan.score_before} -> {plan.score_after}")


if __name__ == "__main__":
    main()

"""One run of the simulation of a cluster: a schedule in, what happened out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from sim.cluster.cluster import Cluster
from sim.cluster.nemesis import Nemesis
from sim.cluster.recovery import Recovery
from sim.cluster.schedule import Schedule
from sim.outcome import Outcome, noting_violations


class Run(Protocol):
    """A run of a schedule to its end and through recovery, or to the first broken property."""

    def __call__(
        self, schedule: Schedule, *, check_every: int = 1, on_cluster: Callable[[Cluster], None] = ...
    ) -> Outcome: ...


def run(schedule: Schedule, *, check_every: int = 1, on_cluster: Callable[[Cluster], None] = lambda _: None) -> Outcome:
    """Run a schedule to its end and through recovery, or to the first broken property."""
    outcome = Outcome(schedule.seed)
    cluster = nemesis = None
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with noting_violations(outcome):
            cluster = Cluster(schedule, check_every=check_every)
            on_cluster(cluster)
            nemesis = Nemesis(cluster)
            cluster.world.run_until(cluster.world.now_us + schedule.end_ms * 1000)
            Recovery(cluster, nemesis).run()
    finally:
        logging.disable(disabled)
    if cluster is not None and nemesis is not None:
        _count(outcome, cluster, nemesis)
    return outcome


def _count(outcome: Outcome, cluster: Cluster, nemesis: Nemesis) -> None:
    outcome.fingerprint = cluster.world.fingerprint & 0xFFFFFFFFFFFFFFFF
    outcome.counts |= {
        "events": cluster.world.events,
        "simulated ms": cluster.world.now_ms,
        "metadata entries": cluster.checker.metadata.latest.offset,
        "void promises": sum(truth.was_void for truth in cluster.checker.truths.values()),
        "recovered": int(outcome.violated is None),
        **cluster.checker.counts,
        **{f"action {name}": count for name, count in nemesis.counts.items()},
    }

"""One run of a cluster with transactions: a schedule in, the verdict on its history out."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable

from raft_properties import PropertyViolatedError
from sim.cluster.cluster import Cluster
from sim.cluster.nemesis import Nemesis
from sim.cluster.recovery import Recovery
from sim.cluster.schedule import Schedule
from sim.outcome import Outcome, noting_violations
from sim.transactions.world import TransactionWorld

from tidelog_chaos.checker import check


def run(schedule: Schedule, *, check_every: int = 1, on_cluster: Callable[[Cluster], None] = lambda _: None) -> Outcome:
    """Run a schedule. A violation is a property of the cluster, or an anomaly that the checker of chaos finds."""
    outcome = Outcome(schedule.seed)
    cluster = transactions = None
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with noting_violations(outcome):
            cluster = Cluster(schedule, check_every=check_every)
            on_cluster(cluster)
            transactions = TransactionWorld(cluster, schedule)
            nemesis = Nemesis(cluster)
            transactions.begin(nemesis)
            cluster.world.run_until(cluster.world.now_us + schedule.end_ms * 1000)
            nemesis.stop()
            transactions.settle()
            _judge(transactions)
            Recovery(cluster, nemesis).run()
            outcome.counts |= {f"action {name}": count for name, count in nemesis.counts.items()}
    finally:
        logging.disable(disabled)
    if cluster is not None and any(truth.was_void for truth in cluster.checker.truths.values()):
        # Records were lost as the promise allows, maybe those of a coordinator: nothing is said of transactions then.
        outcome.violated, outcome.detail = None, ""
        outcome.counts["void promises"] = 1
    if cluster is not None and transactions is not None:
        history = repr([op.as_json() for op in transactions.history])
        outcome.fingerprint = zlib.crc32(history.encode()) ^ cluster.world.fingerprint & 0xFFFFFFFFFFFFFFFF
        outcome.counts |= {"events": cluster.world.events, "recovered": int(outcome.violated is None)}
        outcome.counts |= {**cluster.checker.counts, **transactions.counts}
    return outcome


def _judge(transactions: TransactionWorld) -> None:
    verdict = check(transactions.history)
    if not verdict.valid:
        details = "; ".join(str(cases[0]["text"]) for cases in verdict.anomalies.values())
        raise PropertyViolatedError(", ".join(verdict.anomalies), details)

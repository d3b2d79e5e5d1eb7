"""One run of the simulation of transactions: a seed in, the verdict on its history out."""

from __future__ import annotations

import logging
import zlib

from raft_properties import PropertyViolatedError
from sim.outcome import Outcome, noting_violations
from sim.transactions.world import TransactionWorld

from tidelog_chaos.checker import check


def run(seed: int, *, checks_invariants: bool = True) -> Outcome:
    """Run a seed. A violation is an anomaly that the checker of chaos finds, by its name."""
    outcome = Outcome(seed)
    world = None
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with noting_violations(outcome):
            world = TransactionWorld(seed, checks_invariants=checks_invariants)
            verdict = check(world.run())
            if not verdict.valid:
                details = "; ".join(str(cases[0]["text"]) for cases in verdict.anomalies.values())
                raise PropertyViolatedError(", ".join(verdict.anomalies), details)
    finally:
        logging.disable(disabled)
    if world is not None:
        outcome.counts |= {"events": world.events, "recovered": int(outcome.violated is None), **world.counts}
        outcome.fingerprint = zlib.crc32(repr([op.as_json() for op in world.history]).encode())
    return outcome

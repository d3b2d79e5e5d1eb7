"""Many seeds of the simulation of transactions, and one of them again."""

from __future__ import annotations

from sim.outcome import Outcome
from sim.simulation import Simulation
from sim.transactions.runs import run

TWICE = 20
"""One of so many seeds is run twice."""


def run_block(seeds: range) -> list[Outcome]:
    """Run some seeds, one after the other, and some of them twice: the history must be the same."""
    return [_run_again(seed) if seed % TWICE == 0 else run(seed) for seed in seeds]


def _run_again(seed: int) -> Outcome:
    first, second = run(seed), run(seed)
    if first != second and first.violated is None:
        first.violated, first.detail = "SameHistory", f"{first} and {second}"
    return first


def _describe(outcome: Outcome) -> str:
    again = f"make sim SIM=transactions SEED={outcome.seed}"
    return f"transactions: seed {outcome.seed} breaks {outcome.violated}: {outcome.detail}\n  again: {again}"


def _show(seed: int, numbers: frozenset[int] | None) -> Outcome:
    assert numbers is None, "the faults of a seed are not numbered"
    return run(seed)


TRANSACTIONS = Simulation(
    name="transactions",
    holds="all transactions are whole, once, and in order",
    run_block=run_block,
    block=10,
    show=_show,
    describe=_describe,
    exercised=(
        "committed",
        "aborted",
        "unknown",
        "read",
        "stray requests",
        "fault: ambushed commit",
        "fault: bounced broker",
        "fault: killed producer",
        "fault: moved partition",
        "fault: moved shard",
        "fault: paused broker",
        "fault: paused producer",
        "fault: replaced producer",
        "recovered",
    ),
)

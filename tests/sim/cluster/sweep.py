"""Many seeds of the clusters' simulation, one of them with its trace, and a violation minimised."""

from __future__ import annotations

import time

from sim.cluster.minimiser import MAX_RUNS, minimise
from sim.cluster.runs import run
from sim.cluster.schedule import Schedule, draw_schedule
from sim.cluster.trace import Trace
from sim.outcome import Outcome
from sim.simulation import Simulation, describe_minimised

TWICE = 20
"""One of so many seeds is run twice."""


def run_block(seeds: range) -> list[Outcome]:
    """Run some seeds, one after the other, and some of them twice: the history must be the same."""
    return [run_again(draw_schedule(seed)) if seed % TWICE == 0 else run(draw_schedule(seed)) for seed in seeds]


def run_again(schedule: Schedule) -> Outcome:
    """Run a schedule twice; another outcome or fingerprint the second time is a violation."""
    first, second = run(schedule), run(schedule)
    if first != second and first.violated is None:
        first.violated, first.detail = "SameHistory", f"{first} and {second}"
    return first


def describe_violation(outcome: Outcome, *, max_runs: int = MAX_RUNS) -> str:
    """Minimise a violation, in so many runs at most, and return what a person needs to see of it."""
    started = time.monotonic()
    assert outcome.violated is not None
    least, again = minimise(draw_schedule(outcome.seed), outcome.violated, max_runs=max_runs)
    return describe_minimised("cluster", least.topology, least.actions, again, time.monotonic() - started)


def _show(seed: int, numbers: frozenset[int] | None) -> Outcome:
    schedule = draw_schedule(seed)
    if numbers is None:
        return run(schedule)
    schedule, trace = schedule.only(numbers), Trace()
    outcome = run(schedule, on_cluster=trace.follow)
    print(schedule.topology, *schedule.actions, *trace.lines, sep="\n")
    return outcome


CLUSTERS = Simulation(
    name="cluster",
    holds="all properties of a cluster hold",
    run_block=run_block,
    block=10,
    show=_show,
    describe=describe_violation,
    exercised=(
        "acknowledged",
        "consumed",
        "elections",
        "leaders",
        "truncated",
        "fetches of a session",
        "full fetches",
        "sent to another replica",
        "positions validated",
        "offsets looked up",
        "latest offset: OFFSET_NOT_AVAILABLE",
        "logs restarted",
        "permitted losses",
        "unclean elections",
        "void promises",
        "recovered",
    ),
)

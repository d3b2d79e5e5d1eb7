"""Many seeds of Raft's simulation, one of them with its trace, and a violation minimised."""

from __future__ import annotations

import time

from sim.minimiser import minimise
from sim.outcome import Outcome
from sim.runs import run
from sim.schedule import draw_schedule
from sim.simulation import Simulation, describe_minimised
from sim.trace import Trace


def run_block(seeds: range) -> list[Outcome]:
    """Run some seeds, one after the other."""
    return [run(draw_schedule(seed)) for seed in seeds]


def describe_violation(outcome: Outcome) -> str:
    """Minimise a violation and return what a person needs to see of it."""
    started = time.monotonic()
    schedule = draw_schedule(outcome.seed)
    # With the core's invariants asserted after every step it may be seen earlier, under another name.
    outcome = run(schedule, check_every=1)
    assert outcome.violated is not None
    least, again = minimise(schedule, outcome.violated)
    setting = f"{least.voters} voters, {least.observers} observers, {least.config}"
    return describe_minimised("raft", setting, least.actions, again, time.monotonic() - started)


def _show(seed: int, numbers: frozenset[int] | None) -> Outcome:
    schedule = draw_schedule(seed)
    if numbers is None:
        return run(schedule, check_every=1)
    schedule, trace = schedule.only(numbers), Trace()
    outcome = run(schedule, check_every=1, on_world=trace.follow)
    print(*trace.lines, *schedule.actions, sep="\n")
    return outcome


RAFT = Simulation(
    name="raft",
    holds="all properties hold",
    run_block=run_block,
    block=25,
    show=_show,
    describe=describe_violation,
    exercised=(
        "elections",
        "acknowledged",
        "reads",
        "voter changes",
        "compactions",
        "installs",
        "damaged",
        "transfers",
        "refusals",
        "moves",
        "listeners",
        "recovered",
    ),
)

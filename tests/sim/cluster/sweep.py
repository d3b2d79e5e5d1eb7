"""Many seeds of simulated clusters, one of them with its trace, and a violation minimised."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from sim.cluster.minimiser import MAX_RUNS, minimise
from sim.cluster.runs import Run, run
from sim.cluster.schedule import Schedule, draw_schedule
from sim.cluster.trace import Trace
from sim.outcome import Outcome
from sim.simulation import Simulation, describe_minimised

TWICE = 20
"""One of so many seeds is run twice."""


@dataclass(frozen=True, slots=True)
class Seeds:
    """The seeds of one kind of clusters: how they are drawn and run. ``name`` is that of the simulation."""

    name: str
    draw: Callable[[int], Schedule]
    run: Run

    def run_block(self, seeds: range) -> list[Outcome]:
        """Run some seeds, one after the other, and some of them twice: the history must be the same."""
        return [self.run_again(seed) if seed % TWICE == 0 else self.run(self.draw(seed)) for seed in seeds]

    def run_again(self, seed: int) -> Outcome:
        """Run a seed twice; another outcome or fingerprint the second time is a violation."""
        first, second = (self.run(self.draw(seed)) for _ in range(2))
        if first != second and first.violated is None:
            first.violated, first.detail = "SameHistory", f"{first} and {second}"
        return first

    def describe(self, outcome: Outcome, *, max_runs: int = MAX_RUNS) -> str:
        """Minimise a violation, in so many runs at most, and return what a person needs to see of it."""
        started = time.monotonic()
        assert outcome.violated is not None
        least, again = minimise(self.draw(outcome.seed), outcome.violated, self.run, max_runs=max_runs)
        return describe_minimised(self.name, least.topology, least.actions, again, time.monotonic() - started)

    def show(self, seed: int, numbers: frozenset[int] | None) -> Outcome:
        """Run a seed again; with some of its actions alone, print a trace."""
        schedule = self.draw(seed)
        if numbers is None:
            return self.run(schedule)
        schedule, trace = schedule.only(numbers), Trace()
        outcome = self.run(schedule, on_cluster=trace.follow)
        print(schedule.topology, *schedule.actions, *trace.lines, sep="\n")
        return outcome

    def simulation(self, holds: str, exercised: tuple[str, ...]) -> Simulation:
        """Return the simulation of these seeds."""
        return Simulation(self.name, holds, self.run_block, 10, self.show, self.describe, exercised)


SEEDS = Seeds("cluster", draw_schedule, run)
CLUSTERS = SEEDS.simulation(
    "all properties of a cluster hold",
    (
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

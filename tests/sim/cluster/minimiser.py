"""The minimiser of Raft's schedules, for those of clusters: each of its runs takes many times as long."""

from __future__ import annotations

from collections.abc import Sequence

from sim.cluster.runs import Run
from sim.cluster.schedule import Schedule
from sim.minimiser import ddmin
from sim.outcome import Outcome

MAX_RUNS = 400


def minimise(
    schedule: Schedule, violated: str, run: Run, *, max_runs: int = MAX_RUNS, check_every: int = 1
) -> tuple[Schedule, Outcome]:
    """Return a part of the schedule that breaks the same property, from which no single action can be left out.

    It stops earlier after ``max_runs`` runs.
    """

    def fails(numbers: Sequence[int]) -> bool:
        return run(schedule.only(frozenset(numbers)), check_every=check_every).violated == violated

    least = schedule.only(frozenset(ddmin([action.number for action in schedule.actions], fails, max_runs)))
    return least, run(least, check_every=check_every)

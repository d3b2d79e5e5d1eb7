"""Delta debugging (Zeller's ddmin) over the actions of a schedule that breaks a property."""

from __future__ import annotations

from collections.abc import Sequence

from sim.cluster.runs import Outcome, run
from sim.cluster.schedule import Schedule
from sim.minimiser import ddmin

MAX_RUNS = 400


def minimise(
    schedule: Schedule, violated: str, *, max_runs: int = MAX_RUNS, check_every: int = 1
) -> tuple[Schedule, Outcome]:
    """Return a part of the schedule that breaks the same property, from which no single action can be left out.

    It stops earlier after ``max_runs`` runs.
    """
    budget = max_runs

    def still_fails(numbers: Sequence[int]) -> bool:
        nonlocal budget
        budget -= 1
        return budget >= 0 and run(schedule.only(frozenset(numbers)), check_every=check_every).violated == violated

    least = schedule.only(frozenset(ddmin([action.number for action in schedule.actions], still_fails)))
    return least, run(least, check_every=check_every)

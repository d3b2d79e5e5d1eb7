"""Delta debugging (Zeller's ddmin) over the actions of a schedule that breaks a property."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sim.runs import Outcome, run
from sim.schedule import Schedule

MAX_RUNS = 1_500


def minimise(schedule: Schedule, violated: str, *, check_every: int = 1) -> tuple[Schedule, Outcome]:
    """Return a part of the schedule that breaks the same property, from which no single action can be left out.

    It stops earlier after ``MAX_RUNS`` runs.
    """
    budget = MAX_RUNS

    def still_fails(numbers: Sequence[int]) -> bool:
        nonlocal budget
        budget -= 1
        return budget >= 0 and run(schedule.only(frozenset(numbers)), check_every=check_every).violated == violated

    numbers = ddmin([action.number for action in schedule.actions], still_fails)
    least = schedule.only(frozenset(numbers))
    return least, run(least, check_every=check_every)


def ddmin(items: list[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """Return a part of ``items`` that still fails, from which no single one can be left out."""
    parts = 2
    while len(items) >= 1:
        size = -(-len(items) // parts)
        for start in range(0, len(items), size):
            rest = items[:start] + items[start + size :]
            if fails(rest):
                items, parts = rest, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(items), parts * 2)
    return items

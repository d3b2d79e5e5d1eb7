"""Delta debugging (Zeller's ddmin) over the actions of a schedule that breaks a property."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sim.outcome import Outcome
from sim.runs import run
from sim.schedule import Schedule

MAX_RUNS = 1_500


def minimise(schedule: Schedule, violated: str, *, check_every: int = 1) -> tuple[Schedule, Outcome]:
    """Return a part of the schedule that breaks the same property, from which no single action can be left out.

    It stops earlier after ``MAX_RUNS`` runs.
    """

    def fails(numbers: Sequence[int]) -> bool:
        return run(schedule.only(frozenset(numbers)), check_every=check_every).violated == violated

    least = schedule.only(frozenset(ddmin([action.number for action in schedule.actions], fails, MAX_RUNS)))
    return least, run(least, check_every=check_every)


def ddmin(items: list[int], fails: Callable[[Sequence[int]], bool], max_tries: int) -> list[int]:
    """Return a part of ``items`` that still fails, from which no single one can be left out; or what was reached."""
    parts = 2
    while len(items) >= 1:
        size = -(-len(items) // parts)
        for start in range(0, len(items), size):
            if max_tries == 0:
                return items
            max_tries -= 1
            rest = items[:start] + items[start + size :]
            if fails(rest):
                items, parts = rest, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(items), parts * 2)
    return items

"""Alternating measurement: compared variants run in turns, so that the noise of a shared machine affects all alike.

A ratio is the median of the ratios within the rounds, never a ratio of two figures measured at different times. The
order within a round alternates, which cancels a drift.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rounds:
    """The seconds of every variant in every round, in the same order for all."""

    seconds: Mapping[str, Sequence[float]]

    def median(self, name: str) -> float:
        """Return the median seconds of a variant."""
        return statistics.median(self.seconds[name])

    def speed_ratio(self, name: str, reference: str) -> float:
        """Return how many times as fast a variant is as the reference: the median of the rounds' ratios."""
        pairs = zip(self.seconds[name], self.seconds[reference], strict=True)
        return statistics.median(theirs / ours for ours, theirs in pairs)


def alternate(variants: Mapping[str, Callable[[], float]], rounds: int, warm_up: int = 1) -> Rounds:
    """Run all variants once per round, after ``warm_up`` rounds that do not count.

    A variant does one round's work and returns the seconds of the part that counts; :func:`timed` makes one of work
    that counts as a whole. Many short rounds are better than a few long ones: other processes do not interrupt most
    rounds of a millisecond or two, and the median is of those.
    """
    return Rounds(in_turns(variants, rounds, warm_up))


def in_turns(variants: Mapping[str, Callable[[], T]], rounds: int, warm_up: int = 1) -> dict[str, list[T]]:
    """Run all variants once per round like :func:`alternate`, and return the results of each in every round."""
    names = list(variants)
    found: dict[str, list[T]] = {name: [] for name in names}
    for index in range(-warm_up, rounds):
        for name in names if index % 2 else reversed(names):
            returned = variants[name]()
            if index >= 0:
                found[name].append(returned)
    return found


def timed(work: Callable[[], object]) -> Callable[[], float]:
    """Return a variant for :func:`alternate` that does the work and counts all of it."""
    return lambda: seconds_of(work)


def seconds_of(work: Callable[[], object]) -> float:
    """Do the work and return its seconds."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least ``share`` of the values do not exceed, e.g. 0.99."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]

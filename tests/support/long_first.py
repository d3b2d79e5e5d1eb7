"""The distribution of tests among xdist's workers: long tests first, and one worker for all Spark tests.

A long test that begins last keeps one worker busy while the others are idle. Each worker that runs a Spark test starts
a JVM, whose first query takes longer than the next ten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Needs:
    """The properties that determine a test's place: its file, its length, and whether it needs a Spark session."""

    file: str
    is_long: bool = False
    spark: bool = False


def long_first(tests: Sequence[T], needs: Callable[[T], Needs], workers: int) -> list[T]:
    """Return the tests in the best order for ``--dist worksteal``.

    The scheduler gives each worker a run of tests of equal length; a worker that has finished steals from the end of
    another's. The first run begins with the Spark tests, the others begin with the files that have a long test, whole
    and in turn.
    """
    heads: list[list[T]] = [[] for _ in range(workers)]
    of = [(test, needs(test)) for test in tests]
    spark_files = {need.file for _, need in of if need.spark}
    long_files = [*dict.fromkeys(need.file for _, need in of if need.is_long and need.file not in spark_files)]
    rest: list[T] = []
    for test, need in of:
        if need.file in spark_files:
            heads[0].append(test)
        elif need.file in long_files:
            heads[-1 - long_files.index(need.file) % max(1, workers - 1)].append(test)
        else:
            rest.append(test)
    return _runs(heads, rest)


def turned(found: Sequence[T], worker: int, workers: int) -> list[T]:
    """Return the items rotated so that they begin at this worker's share."""
    start = len(found) * worker // workers
    return [*found[start:], *found[:start]]


def _runs(heads: Sequence[Sequence[T]], rest: Sequence[T]) -> list[T]:
    """Return the runs, filled up to the scheduler's lengths. Pure computations come last, in the first worker's run."""
    left = sum(map(len, heads)) + len(rest)
    runs = [[*head] for head in heads]
    lengths = []
    for following in range(len(heads), 0, -1):
        lengths.append(left // following)
        left -= lengths[-1]
    for index in (*range(1, len(heads)), 0):
        missing = max(0, lengths[index] - len(runs[index]))
        runs[index] += rest[:missing]
        rest = rest[missing:]
    return [test for run in runs for test in run] + [*rest]

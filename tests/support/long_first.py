"""The order in which xdist's workers get the tests: what takes long comes first, and Spark has one worker to itself.

A long test that begins last keeps one worker busy while the others have nothing left to take from it. Each worker that
runs a test of Spark starts a JVM, whose first query takes longer than the next ten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Needs:
    """What decides about the place of a test: its file, whether it takes long, and whether it wants a Spark session."""

    file: str
    is_long: bool = False
    spark: bool = False


def long_first(tests: Sequence[T], needs: Callable[[T], Needs], workers: int) -> list[T]:
    """Return the tests in the order in which ``--dist worksteal`` should have them.

    It gives each worker a run of them, all of one length; who has done theirs takes from the end of another's. The
    first run begins with Spark's tests, the others begin with the files that have a long test, whole and in turn.
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
    """Return what was found in one folder from this worker's share of it on, and then what stands before that."""
    start = len(found) * worker // workers
    return [*found[start:], *found[:start]]


def _runs(heads: Sequence[Sequence[T]], rest: Sequence[T]) -> list[T]:
    """Fill up to the lengths that the scheduler will cut; what only computes stands last, the first worker gets it."""
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

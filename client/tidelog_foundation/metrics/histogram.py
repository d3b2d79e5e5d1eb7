"""Histograms with fixed buckets. Their memory does not grow with the number of observations."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, TypeAlias

from tidelog_foundation.dataclass import dataclass

Buckets: TypeAlias = tuple[float, ...]
"""The upper bounds of a histogram's buckets, in ascending order, without infinity."""
_NANOSECONDS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a histogram: the number of observations in each bucket, the last without a bound, and their sum."""

    bounds: Buckets
    counts: tuple[int, ...]
    total: float


class Histogram:
    """Counts observations by bucket. It is used on one thread.

    Observations are integers in a unit of their own, such as nanoseconds: ``per_unit`` of them make one of the unit of
    ``bounds``. Integers are faster than floats, and their sum is exact.
    """

    __slots__ = ("_bounds", "_limits", "_per_unit", "_total", "counts")

    def __init__(self, bounds: Buckets, per_unit: int = _NANOSECONDS) -> None:
        self._bounds = bounds
        self._limits = [round(bound * per_unit) for bound in bounds]
        self._per_unit = per_unit
        self._total = 0
        self.counts = [0] * (len(bounds) + 1)
        """The number of observations in each bucket."""

    def observe(self, value: int, number: int = 1) -> None:
        """Count a value, ``number`` times."""
        self.counts[bisect_left(self._limits, value)] += number
        self._total += value * number

    def snapshot(self) -> Snapshot:
        """Return the current state."""
        return Snapshot(self._bounds, tuple(self.counts), self._total / self._per_unit)

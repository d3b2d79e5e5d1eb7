"""The values of a client's metrics, and their temporality: differences since the last push, or sums since the start.

A push whose outcome is unknown counts as taken: a value may get lost, and none is counted twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

Attributes = tuple[tuple[str, str], ...]


class Point(NamedTuple):
    """The present value of a metric. A counter only grows, and its value is the sum since the client's start."""

    name: str
    value: float
    attributes: Attributes = ()
    is_counter: bool = False


class TimedPoint(NamedTuple):
    """A value to push, which holds for the time since ``start_ns`` if its point is a counter."""

    point: Point
    start_ns: int


class Ledger:
    """The values of the counters at the last push. Times are in nanoseconds since the epoch."""

    def __init__(self, start_ns: int) -> None:
        self._start_ns = start_ns
        self._pushed: dict[tuple[str, Attributes], tuple[float, int]] = {}
        self._pending: dict[tuple[str, Attributes], tuple[float, int]] = {}
        self._is_delta: bool | None = None

    def draw(self, points: Iterable[Point], now_ns: int, *, is_delta: bool) -> list[TimedPoint]:
        """Return the values of the next push. :meth:`settle` or :meth:`take_back` follows."""
        if is_delta is not self._is_delta:
            # As in Kafka, values begin again when the temporality changes.
            self._is_delta = is_delta
            self._pushed.clear()
        self._pending.clear()
        return [self._drawn(point, now_ns) for point in points]

    def settle(self) -> None:
        """Record that the node has taken the push, or may have."""
        self._pushed.update(self._pending)
        self._pending.clear()

    def take_back(self) -> None:
        """Record that the node has refused the push: the next one contains its differences."""
        self._pending.clear()

    def _drawn(self, point: Point, now_ns: int) -> TimedPoint:
        if not point.is_counter or not self._is_delta:
            return TimedPoint(point, self._start_ns)
        key = point.name, point.attributes
        before, since_ns = self._pushed.get(key, (0, self._start_ns))
        self._pending[key] = (point.value, now_ns)
        return TimedPoint(point._replace(value=point.value - before), since_ns)

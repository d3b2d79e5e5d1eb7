"""The values that clients have pushed, as series of bounded number. It has no I/O.

A client that restarts is another instance, so series must end: those of an instance end with it. A series beyond the
limits is dropped and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tidelog_foundation.dataclass import dataclass

MAX_TEXT: Final = 256
"""The longest name of a metric, or list of attributes. Points with a longer one are dropped."""
_MAX_CLIENT_ID: Final = 128


class Point(NamedTuple):
    """A value of a metric at one point in time.

    ``attributes`` is their text, as ``topic=t,partition=0``. A counter only grows. ``is_delta`` is true for the
    difference since the last push.
    """

    metric: str
    attributes: str
    value: float
    is_counter: bool
    is_delta: bool


class Series(NamedTuple):
    """A series of a client: the values of the labels, and the current value."""

    client_id: str
    client_instance_id: str
    metric: str
    attributes: str
    value: float
    is_counter: bool


@dataclass(slots=True)
class _Client:
    client_id: str
    values: dict[tuple[str, str], tuple[float, bool]]


class PushedSeries:
    """The series of the clients by instance id. ``max_clients`` have any, ``max_series`` in total."""

    def __init__(self, max_clients: int, max_series: int) -> None:
        self._max_clients = max_clients
        self._max_series = max_series
        self._clients: dict[str, _Client] = {}
        self.number = 0
        """The number of series."""
        self.dropped = 0
        """The number of values that had no series, because of a limit."""

    def add(self, client_id: str, instance_id: str, points: Iterable[Point]) -> None:
        """Take the values of a push."""
        client = self._clients.get(instance_id)
        if client is None and len(self._clients) < self._max_clients:
            client = self._clients[instance_id] = _Client(client_id[:_MAX_CLIENT_ID], {})
        for point in points:
            if client is None or not self._take(client, point):
                self.dropped += 1

    def forget(self, instance_id: str) -> None:
        """End the series of an instance."""
        client = self._clients.pop(instance_id, None)
        if client is not None:
            self.number -= len(client.values)

    def __iter__(self) -> Iterator[Series]:
        for instance_id, client in self._clients.items():
            for (metric, attributes), (value, is_counter) in client.values.items():
                yield Series(client.client_id, instance_id, metric, attributes, value, is_counter)

    def _take(self, client: _Client, point: Point) -> bool:
        key = point.metric, point.attributes
        known = client.values.get(key)
        if max(map(len, key)) > MAX_TEXT or (known is None and self.number >= self._max_series):
            return False
        if point.is_delta and point.is_counter and point.value < 0:
            return False
        before = 0.0 if known is None or not point.is_delta else known[0]
        client.values[key] = (before + point.value, point.is_counter)
        self.number += known is None
        return True

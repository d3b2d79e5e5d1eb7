"""The progress of the replicas of a node that are not in sync.

A replica catches up while its distance from its leader shrinks: it is nearer now than at any time before, at most
``window_ms`` ago. A replica that has not come nearer for that long does not catch up: its leader may be gone, or the
records arrive faster than it can copy them. Waiting for such a replica would not help.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from tidelog_foundation.dataclass import dataclass

ReplicaKey: TypeAlias = tuple[str, int]
"""The topic and the index of a partition."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The least distance of a replica from its leader so far, in records, and the time when it was reached."""

    lag: float
    since_ms: int


class CatchUp:
    """The replicas that are not in sync, with their progress. ``observe`` is the only method that changes it."""

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._progress: dict[ReplicaKey, Progress] = {}
        self.has_observed = False

    def observe(self, lags: Mapping[ReplicaKey, int | None], now_ms: int) -> None:
        """Record the distances of all replicas that are not in sync; None is an unknown one."""
        self.has_observed = True
        self._progress = {key: self._moved(key, lag, now_ms) for key, lag in lags.items()}

    def catching_up(self, now_ms: int) -> list[ReplicaKey]:
        """Return the replicas that come nearer to their leaders, in order."""
        return sorted(key for key, each in self._progress.items() if self._is_moving(each, now_ms))

    def stuck(self, now_ms: int) -> list[ReplicaKey]:
        """Return the replicas that do not come nearer, in order."""
        return sorted(key for key, each in self._progress.items() if not self._is_moving(each, now_ms))

    def lag(self, keys: Iterable[ReplicaKey]) -> int:
        """Return the sum of the known distances of some replicas, in records."""
        return sum(int(self._progress[key].lag) for key in keys if math.isfinite(self._progress[key].lag))

    def _moved(self, key: ReplicaKey, lag: int | None, now_ms: int) -> Progress:
        before = self._progress.get(key)
        if before is None:
            return Progress(math.inf if lag is None else lag, now_ms)
        return Progress(lag, now_ms) if lag is not None and lag < before.lag else before

    def _is_moving(self, progress: Progress, now_ms: int) -> bool:
        return now_ms - progress.since_ms < self._window_ms

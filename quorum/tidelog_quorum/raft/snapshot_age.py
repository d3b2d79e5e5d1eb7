"""The age and the size of a voter's latest snapshot, as Kafka's SnapshotEmitterMetrics count them (KIP-938)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tidelog_foundation.dataclass import dataclass

_MILLISECONDS: Final = 1_000


@dataclass(frozen=True, slots=True)
class LatestSnapshot:
    """The latest snapshot of the metadata at a point in time."""

    age_ms: int
    """The time since this voter generated its latest snapshot; without one, the time since it started."""
    size_bytes: int
    """The size of the latest generated snapshot; without one, that of the latest loaded one, or 0."""


class SnapshotAge:
    """Remembers the latest snapshot. Any thread may use it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since_s = clock()
        self._has_generated = False
        self._size_bytes = 0

    def generated(self, size_bytes: int) -> None:
        """Record that this voter has generated a snapshot."""
        self._since_s, self._size_bytes, self._has_generated = self._clock(), size_bytes, True

    def loaded(self, size_bytes: int) -> None:
        """Record that this voter has loaded a snapshot, at its start or from the leader."""
        if not self._has_generated:
            self._size_bytes = size_bytes

    def current(self) -> LatestSnapshot:
        """Return the latest snapshot."""
        return LatestSnapshot(round((self._clock() - self._since_s) * _MILLISECONDS), self._size_bytes)

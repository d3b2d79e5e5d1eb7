"""Deadlines of consumer groups, ordered by time."""

from __future__ import annotations

import heapq


class Agenda:
    """At most one deadline per group, in ms. Finding the expired groups does not scan the others."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}
        # Contains every group's deadline. Entries that are no longer a group's deadline are skipped.
        self._heap: list[tuple[int, str]] = []

    @property
    def next_ms(self) -> int | None:
        """The earliest deadline, or None if there is none."""
        while self._heap and self._times.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def set(self, group_id: str, time_ms: int | None) -> None:
        """Set the group's deadline, or clear it when ``time_ms`` is None."""
        if time_ms is None:
            self._times.pop(group_id, None)
        elif self._times.get(group_id) != time_ms:
            self._times[group_id] = time_ms
            heapq.heappush(self._heap, (time_ms, group_id))

    def pop_due(self, now_ms: int) -> list[str]:
        """Remove and return the groups whose deadline has passed, earliest first."""
        due = []
        while (next_ms := self.next_ms) is not None and next_ms <= now_ms:
            _, group_id = heapq.heappop(self._heap)
            del self._times[group_id]
            due.append(group_id)
        return due

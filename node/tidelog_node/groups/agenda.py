"""When each of many groups is to be looked at next."""

from __future__ import annotations

import heapq


class Agenda:
    """One time per group, in ms; what is due is found without a look at the others."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}
        # Every group's time is in it; entries that are no group's time any more are passed over.
        self._heap: list[tuple[int, str]] = []

    @property
    def next_ms(self) -> int | None:
        """The earliest time; None without any."""
        while self._heap and self._times.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def set(self, group_id: str, time_ms: int | None) -> None:
        """Look at a group then; None: not any more."""
        if time_ms is None:
            self._times.pop(group_id, None)
        elif self._times.get(group_id) != time_ms:
            self._times[group_id] = time_ms
            heapq.heappush(self._heap, (time_ms, group_id))

    def pop_due(self, now_ms: int) -> list[str]:
        """Return the groups whose time has come, the earliest first; they have no time then."""
        due = []
        while (next_ms := self.next_ms) is not None and next_ms <= now_ms:
            _, group_id = heapq.heappop(self._heap)
            del self._times[group_id]
            due.append(group_id)
        return due

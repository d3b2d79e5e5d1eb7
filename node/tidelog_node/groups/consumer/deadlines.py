"""Deadlines by key, with the next one available without a scan."""

from __future__ import annotations

import heapq


class Deadlines:
    """One deadline per key, in ms. Deadlines are not persistent; they restart when a group is loaded."""

    def __init__(self) -> None:
        self._by_key: dict[str, int] = {}
        # Contains, for each key, at least one entry not after its deadline, and possibly obsolete entries.
        self._heap: list[tuple[int, str]] = []

    def __contains__(self, key: str) -> bool:
        return key in self._by_key

    def set(self, key: str, deadline_ms: int) -> None:
        """Set or move a deadline."""
        before = self._by_key.get(key)
        self._by_key[key] = deadline_ms
        if before is None or deadline_ms < before:
            heapq.heappush(self._heap, (deadline_ms, key))

    def cancel(self, key: str) -> None:
        """Remove a deadline if it exists."""
        self._by_key.pop(key, None)

    def next_ms(self) -> int | None:
        """Return the earliest deadline, or None if there is none."""
        while self._heap:
            entry_ms, key = self._heap[0]
            deadline_ms = self._by_key.get(key)
            if deadline_ms == entry_ms:
                return entry_ms
            heapq.heappop(self._heap)
            if deadline_ms is not None and deadline_ms > entry_ms:
                heapq.heappush(self._heap, (deadline_ms, key))
        return None

    def due(self, now_ms: int) -> list[str]:
        """Return the keys whose deadline is not after ``now_ms``, earliest first, without removing them."""
        next_ms = self.next_ms()
        if next_ms is None or next_ms > now_ms:
            return []
        due = [(deadline_ms, key) for key, deadline_ms in self._by_key.items() if deadline_ms <= now_ms]
        return [key for _, key in sorted(due)]

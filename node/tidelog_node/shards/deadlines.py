"""Deadlines by key, with the next one available without a scan."""

from __future__ import annotations

import heapq


class Deadlines:
    """At most one deadline per key, in ms. Deadlines are not persistent; they restart when a group is loaded."""

    def __init__(self) -> None:
        self._by_key: dict[str, int] = {}
        # Contains, for each key, at least one entry not after its deadline, and possibly obsolete entries.
        self._heap: list[tuple[int, str]] = []

    def __contains__(self, key: str) -> bool:
        return key in self._by_key

    def set(self, key: str, deadline_ms: int | None) -> None:
        """Set or move a key's deadline, or clear it when ``deadline_ms`` is None."""
        if deadline_ms is None:
            self.cancel(key)
            return
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

    def pop_expired(self, now_ms: int) -> list[str]:
        """Remove and return the keys whose deadline has passed, earliest first."""
        expired = []
        while (next_ms := self.next_ms()) is not None and next_ms <= now_ms:
            _, key = heapq.heappop(self._heap)
            del self._by_key[key]
            expired.append(key)
        return expired

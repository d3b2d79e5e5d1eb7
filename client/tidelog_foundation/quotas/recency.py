"""A bounded table of the state of recent clients, which clients with invented names cannot enlarge."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

IDLE_MS: Final = 3_600_000
"""The time after which the state of an idle client is forgotten, as in Kafka."""
MAX_CLIENTS: Final = 10_000


class RecentClients(Generic[K, V]):
    """The states of at most ``limit`` clients, in the order of their last use.

    A state that was not used for ``memory_ms`` has no effect any more and may be dropped to make room. If all are in
    use, further clients share one state, so that a client gains nothing by inventing names.
    """

    __slots__ = ("_last_ms", "_limit", "_memory_ms", "_overflow", "_states")

    def __init__(self, memory_ms: int, limit: int = MAX_CLIENTS) -> None:
        self._memory_ms = memory_ms
        self._limit = limit
        self._states: dict[K, V] = {}
        self._last_ms: dict[K, int] = {}
        self._overflow: V | None = None

    def __len__(self) -> int:
        return len(self._states)

    def find(self, key: K) -> V | None:
        """Return the state of a client, or None, without counting it as used."""
        return self._states.get(key)

    def use(self, key: K, now_ms: int, make: Callable[[], V]) -> V:
        """Return the state of a client, made if it has none."""
        # The order of the dictionary is that of the last use.
        known = self._last_ms.pop(key, None)
        if known is None:
            self._make_room(now_ms)
            if len(self._states) >= self._limit:
                if self._overflow is None:
                    self._overflow = make()
                return self._overflow
            self._states[key] = make()
        self._last_ms[key] = now_ms
        return self._states[key]

    def clear(self) -> None:
        """Forget all clients."""
        self._states.clear()
        self._last_ms.clear()
        self._overflow = None

    def _make_room(self, now_ms: int) -> None:
        """Drop the clients that are idle, and one more if the table is full and its oldest has no effect."""
        while self._last_ms:
            oldest = next(iter(self._last_ms))
            idle_ms = now_ms - self._last_ms[oldest]
            is_full = len(self._states) >= self._limit
            if idle_ms < IDLE_MS and not (is_full and idle_ms >= self._memory_ms):
                return
            del self._last_ms[oldest], self._states[oldest]

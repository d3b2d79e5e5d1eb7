"""The rates at which connections are created, per node and per address (KIP-612; Kafka's ConnectionQuotas)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog_foundation.quotas.rate import SampledRate, Windows
from tidelog_foundation.quotas.recency import RecentClients

UNLIMITED: Final = 2**31 - 1


class ConnectionRates:
    """The recent connections of a node. A delay is never longer than a window."""

    def __init__(self, now_ms: Callable[[], int], windows: Windows, limit: float = UNLIMITED) -> None:
        self._now_ms = now_ms
        self._windows = windows
        self.limit = limit
        """``max.connection.creation.rate``."""
        self._all = SampledRate(windows)
        self._addresses: RecentClients[str, SampledRate] = RecentClients(windows.span_ms)

    def accept(self) -> int:
        """Count a connection, and return the milliseconds for which its listener accepts no other."""
        if self.limit >= UNLIMITED:
            return 0
        now_ms = self._now_ms()
        self._all.record(1, now_ms)
        return min(self._all.excess_ms(self.limit, now_ms), self._windows.window_ms)

    def admit(self, address: str, limit: float) -> int:
        """Count a connection from an address, or return the milliseconds for which it is delayed and then closed.

        A connection that is not admitted does not count.
        """
        now_ms = self._now_ms()
        rate = self._addresses.use(address, now_ms, lambda: SampledRate(self._windows))
        rate.record(1, now_ms)
        delay_ms = min(rate.excess_ms(limit, now_ms), self._windows.window_ms)
        if delay_ms:
            rate.record(-1, now_ms)
        return delay_ms

"""The rates at which connections are created, per node, listener and address (KIP-612; Kafka's ConnectionQuotas)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tidelog_foundation.quotas.rate import SampledRate, Windows
from tidelog_foundation.quotas.recency import RecentClients

UNLIMITED: Final = 2**31 - 1


class ConnectionRates:
    """The recent connections of a node. A delay is never longer than a window."""

    def __init__(self, now_ms: Callable[[], int], windows: Windows, limit: float = UNLIMITED) -> None:
        self._now_ms = now_ms
        self._windows = windows
        self._limit = limit
        self._all = SampledRate(windows)
        self._listeners: dict[str, tuple[float, SampledRate]] = {}
        self._addresses: RecentClients[str, SampledRate] = RecentClients(windows.span_ms)

    def change_limits(self, limit: float, of_listeners: Mapping[str, float]) -> None:
        """Set ``max.connection.creation.rate``, that of the node and those of single listeners."""
        self._limit = limit
        known = self._listeners
        self._listeners = {
            name: (own, known[name][1] if name in known else SampledRate(self._windows))
            for name, own in of_listeners.items()
        }

    def accept(self, listener: str = "", *, is_protected: bool = False) -> int:
        """Count a connection, and return the milliseconds for which its listener accepts no other.

        The limit of the node does not apply to the listener that ``is_protected``.
        """
        rates = [] if is_protected or self._limit >= UNLIMITED else [(self._limit, self._all)]
        if listener in self._listeners:
            rates.append(self._listeners[listener])
        if not rates:
            return 0
        now_ms = self._now_ms()
        for _, rate in rates:
            rate.record(1, now_ms)
        return min(max(rate.excess_ms(limit, now_ms) for limit, rate in rates), self._windows.window_ms)

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

"""Pending calls of an admin client's ``error_cb``, which run when the application polls."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tidelog.monitor import Monitor
from tidelog_foundation.errors import OUTAGES, KafkaError, TidelogError

_MOST = 1_000
"""The most pending errors; the oldest are dropped if the application does not poll."""


class ErrorCalls:
    """A queue that the network thread fills and :meth:`serve` empties on the application's thread."""

    def __init__(self, callback: Callable[[KafkaError], object] | None) -> None:
        self._callback = callback
        self._monitor = Monitor()
        self._errors: deque[KafkaError] = deque(maxlen=_MOST)

    def add(self, error: TidelogError) -> None:
        """Queue an error that concerns the whole client: no node answered. Other errors reach the application by
        futures alone.
        """
        if self._callback is None or error.code not in OUTAGES:
            return
        with self._monitor.lock:
            self._errors.append(error.error)
            self._monitor.changed.notify_all()

    def serve(self, timeout_s: float | None) -> int:
        """Call the callback for each error and return the count; wait up to ``timeout_s`` for one (None: no limit)."""
        with self._monitor.lock:
            self._monitor.changed.wait_for(lambda: bool(self._errors), timeout_s)
            errors = list(self._errors)
            self._errors.clear()
        for error in errors:
            assert self._callback is not None
            self._callback(error)
        return len(errors)

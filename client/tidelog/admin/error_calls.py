"""Calls of an admin client's ``error_cb``, which wait for the application to poll."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tidelog.monitor import Monitor
from tidelog_foundation.errors import OUTAGES, KafkaError, TidelogError

_MOST = 1_000
"""An application that does not poll keeps the latest errors."""


class ErrorCalls:
    """Filled on the network thread, served by :meth:`serve` on the application's."""

    def __init__(self, callback: Callable[[KafkaError], object] | None) -> None:
        self._callback = callback
        self._monitor = Monitor()
        self._errors: deque[KafkaError] = deque(maxlen=_MOST)

    def add(self, error: TidelogError) -> None:
        """Take an error that concerns the client as a whole: no node answered. Others are their futures' alone."""
        if self._callback is None or error.code not in OUTAGES:
            return
        with self._monitor.lock:
            self._errors.append(error.error)
            self._monitor.changed.notify_all()

    def serve(self, timeout_s: float | None) -> int:
        """Call the callback for each error, and return how many; waits up to ``timeout_s`` for one (None: for ever)."""
        with self._monitor.lock:
            self._monitor.changed.wait_for(lambda: bool(self._errors), timeout_s)
            errors = list(self._errors)
            self._errors.clear()
        for error in errors:
            assert self._callback is not None
            self._callback(error)
        return len(errors)

"""Delivery reports on their way from the network thread to the application's callbacks."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque

from tidelog.errors import ErrorCode
from tidelog.message import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message
from tidelog.monitor import Monitor
from tidelog.producer.core import Accumulator, Delivery, Settle

logger = logging.getLogger(__name__)


class DeliveryReports:
    """Settled records whose callbacks wait for ``poll()`` or ``flush()``, in the order they were settled."""

    def __init__(self, accumulator: Accumulator, monitor: Monitor) -> None:
        self._accumulator = accumulator
        self._lock = monitor.lock
        self._changed = monitor.changed
        self._waiting: deque[tuple[Settle, float, Delivery]] = deque()
        self._closed = False
        self._serving = threading.local()

    @property
    def left(self) -> int:
        """How many records are not settled or not served; without those that this thread is serving just now."""
        return max(self.total - self._mine, 0)

    @property
    def total(self) -> int:
        """How many records are not settled or not served. Ctrl-C inside of ``serve`` may have miscounted some."""
        return max(self._accumulator.count + self._accumulator.unserved, 0)

    def add(self, settle: Settle) -> None:
        """Take what was settled, and let those waiting know. On the network thread."""
        unreported = settle.count - len(settle.deliveries)
        if settle.error is not None and unreported and settle.error.code is not ErrorCode._PURGE_QUEUE:
            logger.error(
                "%d records for %s-%d without a delivery callback were not delivered: %s",
                unreported,
                settle.topic,
                settle.partition,
                settle.error,
            )
        now_ms = time.monotonic() * 1000
        with self._lock:
            self._waiting.extend((settle, now_ms, delivery) for delivery in settle.deliveries)
            self._changed.notify_all()

    def serve(self) -> int:
        """Call the callbacks that wait, on the calling thread; returns how many.

        What a callback raises comes out of here; the other reports stay for the next call.
        """
        served = 0
        outer = self._mine
        try:
            while self._waiting:
                try:
                    settle, settled_ms, delivery = self._waiting.popleft()
                except IndexError:
                    break
                served += 1
                self._serving.count = outer + served
                error = settle.error.error if settle.error else None
                delivery.on_delivery(error, _message(settle, settled_ms, delivery))
        finally:
            self._serving.count = outer
            with self._lock:
                self._accumulator.unserved -= served
                self._changed.notify_all()
        return served

    def close(self) -> None:
        """Nothing more will come: wake those who wait."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until there is a report to serve; returns whether there is."""
        with self._lock:
            self._changed.wait_for(lambda: bool(self._waiting) or self._closed, timeout_s)
            return bool(self._waiting)

    def wait_for_progress(self, timeout_s: float | None) -> bool:
        """Wait until there is a report to serve or nothing is left; returns False when the time is over."""
        with self._lock:
            return self._changed.wait_for(lambda: bool(self._waiting) or not self.left, timeout_s)

    @property
    def _mine(self) -> int:
        count: int = getattr(self._serving, "count", 0)
        return count


def _message(settle: Settle, settled_ms: float, delivery: Delivery) -> Message:
    known = settle.error is None and settle.base_offset >= 0
    timestamp = (TIMESTAMP_CREATE_TIME, delivery.timestamp_ms)
    if settle.log_append_time_ms >= 0:
        timestamp = (TIMESTAMP_LOG_APPEND_TIME, settle.log_append_time_ms)
    return Message(
        settle.topic,
        settle.partition,
        settle.base_offset + delivery.relative_offset if known else None,
        delivery.key,
        delivery.value,
        list(delivery.headers),
        timestamp,
        settle.error.error if settle.error else None,
        (settled_ms - delivery.produced_ms) / 1000,
    )

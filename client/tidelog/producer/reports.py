"""Delivery reports, errors and statistics between the network thread and the application's callbacks."""

from __future__ import annotations

import itertools
import operator
import sys
import threading
import time
from collections import deque
from collections.abc import Callable

from tidelog.message import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message
from tidelog.monitor import Monitor
from tidelog.producer.core.accumulator import Accumulator
from tidelog.producer.core.batch import DeliveryCallback
from tidelog.producer.core.engine import Delivery
from tidelog.producer.core.events import Settle
from tidelog.producer.hooks import Hooks, after_acknowledgement
from tidelog_foundation.errors import ErrorCode, KafkaError


class Intercepted:
    """The callback of a record with interceptors, which get its outcome even if the application has no callback."""

    __slots__ = ("on_delivery",)

    def __init__(self, on_delivery: DeliveryCallback | None) -> None:
        self.on_delivery = on_delivery

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """Call the application's callback."""
        if self.on_delivery is not None:
            self.on_delivery(error, message)


class _Served(threading.local):
    """The reports that the current thread took, of which ``counted`` are no longer unserved."""

    def __init__(self) -> None:
        self.numbers = iter(range(sys.maxsize))
        self.counted = 0

    @property
    def taken(self) -> int:
        """The number of reports taken."""
        return sys.maxsize - operator.length_hint(self.numbers)


class DeliveryReports:
    """Settled records whose callbacks wait for ``poll()`` or ``flush()``, in the order of settlement.

    Calls of ``error_cb`` and ``stats_cb`` wait here too for the application's thread.
    """

    def __init__(
        self, accumulator: Accumulator, monitor: Monitor, hooks: Hooks | None = None, *, only_errors: bool = False
    ) -> None:
        self._accumulator = accumulator
        self._lock = monitor.lock
        self._changed = monitor.changed
        self._hooks = hooks or Hooks()
        self._only_errors = only_errors
        self._waiting: deque[tuple[Settle, float, Delivery]] = deque()
        self._calls: deque[Callable[[], object]] = deque()
        self._closed = False
        self._served = _Served()

    @property
    def left(self) -> int:
        """The number of unsettled or unserved records, without those that this thread is serving."""
        return max(self.total - self._mine, 0)

    @property
    def total(self) -> int:
        """The number of unsettled or unserved records."""
        return self._accumulator.count + self._accumulator.unserved

    def add(self, settle: Settle) -> None:
        """Add settled records and notify waiting threads. Runs on the network thread."""
        now_ms = time.monotonic() * 1000
        if settle.rows is not None:
            settle.rows.sink(settle, settle.rows.first)
        elif settle.error is not None:
            self._log_unreported(settle)
        deliveries = settle.deliveries
        if self._hooks.interceptors:
            deliveries = [d for d in deliveries if self._is_wanted(settle, now_ms, d)]
        if self._only_errors and settle.error is None:
            deliveries = []
        with self._lock:
            self._accumulator.unserved -= len(settle.deliveries) - len(deliveries)
            self._waiting.extend((settle, now_ms, delivery) for delivery in deliveries)
            self._changed.notify_all()

    def call(self, callback: Callable[[], object]) -> None:
        """Queue a call for ``poll()``."""
        with self._lock:
            self._calls.append(callback)
            self._changed.notify_all()

    def wake(self) -> None:
        """Make waiting threads check the accumulator again."""
        with self._lock:
            self._changed.notify_all()

    def serve(self, most: int | None = None) -> int:
        """Run about ``most`` pending callbacks on the calling thread, and return their number.

        A callback's exception propagates; the other reports remain for the next call.
        """
        return self._serve_calls() + self._serve_reports(most)

    def serve_all(self) -> None:
        """Run all pending callbacks even if some raise, then raise the first error."""
        first: Exception | None = None
        while self._has_calls:
            try:
                self.serve()
            except Exception as error:  # noqa: BLE001 whatever the application's callbacks raise
                first = first or error
        if first is not None:
            raise first

    def close(self) -> None:
        """Record that no more calls will come, and wake waiting threads."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for something to serve; return False on timeout."""
        with self._lock:
            self._changed.wait_for(lambda: self._has_calls or self._closed, timeout_s)
            return self._has_calls

    def wait_for_progress(self, timeout_s: float | None) -> bool:
        """Wait until there is something to serve or nothing is left; return False on timeout."""
        with self._lock:
            return self._changed.wait_for(lambda: self._has_calls or not self.left, timeout_s)

    def wait_for(self, condition: Callable[[], bool], timeout_s: float | None) -> bool:
        """Serve callbacks until a condition of the accumulator holds; evaluate it under the lock.

        Return False on timeout.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self.serve()
            left_s = None if deadline is None else max(deadline - time.monotonic(), 0)
            with self._lock:
                self._changed.wait_for(lambda: self._has_calls or self._closed or condition(), left_s)
                if condition():
                    return True
                if self._closed or left_s == 0:
                    return False

    def wait_unserved(self, condition: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait as :meth:`wait_for` does, while another thread serves the callbacks."""
        with self._lock:
            self._changed.wait_for(lambda: self._closed or condition(), timeout_s)
            return condition()

    @property
    def waiting(self) -> int:
        """The number of pending calls."""
        return len(self._waiting) + len(self._calls)

    @property
    def _has_calls(self) -> bool:
        return bool(self._waiting or self._calls)

    @property
    def _mine(self) -> int:
        return self._served.taken - self._served.counted

    def _serve_calls(self) -> int:
        served = 0
        while self._calls:
            try:
                call = self._calls.popleft()
            except IndexError:
                break
            served += 1
            call()
        return served

    def _serve_reports(self, most: int | None) -> int:
        # One step that Ctrl-C cannot interrupt takes and counts a report; flush() would wait for an uncounted one
        # forever.
        pop = itertools.starmap(self._waiting.popleft, itertools.repeat(()))
        taken = zip(pop, self._served.numbers, strict=False)
        served = 0
        try:
            while self._waiting and served != most:
                try:
                    (settle, settled_ms, delivery), _ = next(taken)
                except IndexError:
                    break
                served += 1
                error = settle.error.error if settle.error else None
                delivery.on_delivery(error, _message(settle, settled_ms, delivery))
        finally:
            self._count_served()
        return served

    def _count_served(self) -> None:
        mine, intake = self._served, self._accumulator.intake
        with self._lock:
            taken = mine.taken
            more = taken - mine.counted
            # No call in between, because Ctrl-C arrives at calls; if it comes earlier, the next call counts these
            # reports.
            intake.unserved -= more
            mine.counted = taken
            if more:
                self._changed.notify_all()

    def _is_wanted(self, settle: Settle, settled_ms: float, delivery: Delivery) -> bool:
        intercepted = delivery.on_delivery
        if not isinstance(intercepted, Intercepted):
            return True
        error = settle.error.error if settle.error else None
        metadata = _message(settle, settled_ms, delivery)
        after_acknowledgement(self._hooks.interceptors, metadata, error, self._hooks.log)
        return intercepted.on_delivery is not None

    def _log_unreported(self, settle: Settle) -> None:
        unreported = sum(1 for d in settle.deliveries if _is_silent(d))
        unreported += settle.count - len(settle.deliveries)
        if settle.error is not None and unreported and settle.error.code is not ErrorCode._PURGE_QUEUE:
            self._hooks.log.error(
                "%d records for %s-%d without a delivery callback were not delivered: %s",
                unreported,
                settle.topic,
                settle.partition,
                settle.error,
            )


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
        settle.error.error if settle.error else None,
        timestamp,
        (settled_ms - delivery.produced_ms) / 1000,
    )


def _is_silent(delivery: Delivery) -> bool:
    return isinstance(delivery.on_delivery, Intercepted) and delivery.on_delivery.on_delivery is None

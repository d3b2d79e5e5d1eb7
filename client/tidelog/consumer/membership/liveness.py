"""Timers for the liveness of a member, without a clock: polls, heartbeats and the session."""

from __future__ import annotations

import math

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for


class PollTimer:
    """The timer of ``max.poll.interval.ms``, the longest time between calls of poll()."""

    def __init__(self, interval_ms: float) -> None:
        self._interval_ms = interval_ms
        self.deadline_ms = math.inf
        """The time at which the application is late; infinite if no poll is expected."""

    def restart(self, now_ms: float) -> None:
        """Restart the timer after a poll or a new subscription."""
        self.deadline_ms = now_ms + self._interval_ms

    def stop(self) -> None:
        """Stop the timer."""
        self.deadline_ms = math.inf

    def exceed(self, now_ms: float) -> bool:
        """Return True once when the application is late."""
        if now_ms < self.deadline_ms:
            return False
        self.deadline_ms = math.inf
        return True


def poll_exceeded(interval_ms: int) -> TidelogError:
    """Return the error for an application that polls too late (librdkafka's text)."""
    return error_for(
        ErrorCode._MAX_POLL_EXCEEDED,
        f"application maximum poll interval ({interval_ms} ms) exceeded (adjust max.poll.interval.ms for "
        "long-running message processing): leaving group",
    )


class Heartbeats:
    """Heartbeats every ``heartbeat.interval.ms``. The session ends after ``session.timeout.ms`` without a success.

    At most one is in flight. A failed one is retried after a back-off, or when the next one is due.
    """

    def __init__(self, interval_ms: float, session_timeout_ms: float) -> None:
        self._interval_ms = interval_ms
        self._session_timeout_ms = session_timeout_ms
        self._due_ms = math.inf
        self.session_deadline_ms = math.inf
        self.call_id: int | None = None
        self.failures = 0

    @property
    def due_ms(self) -> float:
        """The time of the next heartbeat; infinite while one is in flight."""
        return math.inf if self.call_id is not None else self._due_ms

    def start(self, now_ms: float) -> None:
        """Start when the coordinator has confirmed the member."""
        self.call_id = None
        self._due_ms = now_ms + self._interval_ms
        self.extend(now_ms)

    def extend(self, now_ms: float) -> None:
        """Restart the session timeout."""
        self.session_deadline_ms = now_ms + self._session_timeout_ms

    def pause(self) -> None:
        """Stop heartbeats while another call keeps the member alive."""
        self.call_id = None
        self._due_ms = math.inf

    def stop(self) -> None:
        """Stop heartbeats and end the session."""
        self.pause()
        self.session_deadline_ms = math.inf
        self.failures = 0

    def sent(self, call_id: int, now_ms: float) -> None:
        """Record a heartbeat in flight."""
        self.call_id = call_id
        self._due_ms = now_ms + self._interval_ms

    def succeeded(self, now_ms: float) -> None:
        """Record that the coordinator has confirmed the member."""
        self.call_id = None
        self.failures = 0
        self.extend(now_ms)

    def failed(self, now_ms: float, wait_ms: float) -> None:
        """Record a heartbeat without an answer."""
        self.call_id = None
        self._due_ms = min(self._due_ms, now_ms + wait_ms)

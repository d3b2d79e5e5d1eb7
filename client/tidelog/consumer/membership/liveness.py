"""When a member must give a sign of life, and when it counts as gone: pure timers."""

from __future__ import annotations

import math

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for


class PollTimer:
    """``max.poll.interval.ms``: how long the application may stay away from poll()."""

    def __init__(self, interval_ms: float) -> None:
        self._interval_ms = interval_ms
        self._deadline_ms = math.inf

    @property
    def deadline_ms(self) -> float:
        """When the application is late; infinite when nothing is awaited of it."""
        return self._deadline_ms

    def restart(self, now_ms: float) -> None:
        """Begin anew: the application polled, or its subscription began."""
        self._deadline_ms = now_ms + self._interval_ms

    def stop(self) -> None:
        """Await nothing any more."""
        self._deadline_ms = math.inf

    def exceed(self, now_ms: float) -> bool:
        """Say, once, that the application is late."""
        if now_ms < self._deadline_ms:
            return False
        self._deadline_ms = math.inf
        return True


def poll_exceeded(interval_ms: int) -> TidelogError:
    """Return what the application is told when it was late (librdkafka's text)."""
    return error_for(
        ErrorCode._MAX_POLL_EXCEEDED,
        f"application maximum poll interval ({interval_ms} ms) exceeded (adjust max.poll.interval.ms for "
        "long-running message processing): leaving group",
    )


class Heartbeats:
    """Sent every ``heartbeat.interval.ms``; without a success in ``session.timeout.ms`` the session is over.

    At most one is under way. A failed one is repeated after a back-off, when that comes before the next is due.
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
        """When the next one is to be sent; infinite while one is under way."""
        return math.inf if self.call_id is not None else self._due_ms

    def start(self, now_ms: float) -> None:
        """Begin: the coordinator has just answered that it knows the member."""
        self.call_id = None
        self._due_ms = now_ms + self._interval_ms
        self.extend(now_ms)

    def extend(self, now_ms: float) -> None:
        """Begin the session timeout anew."""
        self.session_deadline_ms = now_ms + self._session_timeout_ms

    def pause(self) -> None:
        """Send none; another call keeps the member alive."""
        self.call_id = None
        self._due_ms = math.inf

    def stop(self) -> None:
        """Send none, and have no session."""
        self.pause()
        self.session_deadline_ms = math.inf
        self.failures = 0

    def sent(self, call_id: int, now_ms: float) -> None:
        """One is under way."""
        self.call_id = call_id
        self._due_ms = now_ms + self._interval_ms

    def succeeded(self, now_ms: float) -> None:
        """The coordinator has answered that it knows the member."""
        self.call_id = None
        self.failures = 0
        self.extend(now_ms)

    def failed(self, now_ms: float, wait_ms: float) -> None:
        """No coordinator has answered."""
        self.call_id = None
        self._due_ms = min(self._due_ms, now_ms + wait_ms)

"""The states of a client's telemetry (KIP-714), without I/O: what it sends next, and when.

    SUBSCRIPTION_NEEDED --Ask--> SUBSCRIPTION_IN_PROGRESS --Subscribed--> PUSH_NEEDED --Push--> PUSH_IN_PROGRESS
         ^   ^                        |                                     |    ^                 |    |
         |   +--- nothing to push ----+                                     |    +--- Accepted ----+    |
         +------------------------- Refused --------------------------------|---------------------------+
                                                                    Closing v
                                                         TERMINATING_PUSH_IN_PROGRESS --> TERMINATED

Rules, those of Kafka's ``ClientTelemetryReporter`` except where the text says otherwise:

- the first request is due at once. Without a metric to push, the next one follows after the push interval;
- the first push with a subscription follows after 0.5 to 1.5 intervals, further ones after one interval each;
- UNKNOWN_SUBSCRIPTION_ID and UNSUPPORTED_COMPRESSION_TYPE for a push: the client asks for its subscription at once;
- TELEMETRY_TOO_LARGE and THROTTLING_QUOTA_EXCEEDED: it asks after an interval, without a known one after 5 minutes;
- any other error of a node ends the telemetry of the client;
- a request without an answer is repeated after an interval or 30 s, whichever is less, perhaps at another node. The
  instance id and the subscription stay: they are the same on all nodes. (Kafka's reporter sends nothing more.);
- a client that closes pushes once more, at once, if it has something to push, and nothing is sent after that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, assert_never

from tidelog_foundation.errors import ErrorCode, TidelogError

DEFAULT_INTERVAL_MS: Final = 300_000
_RETRY_MS: Final = 30_000
_JITTER: Final = (0.5, 1.5)
_EVERYTHING: Final = frozenset(("", "*"))
_ASKS_AT_ONCE: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
_WAITS: Final = (ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED)


class State(Enum):
    """The states, by the names of KIP-714. A terminating push leaves at once, so it is never merely needed."""

    SUBSCRIPTION_NEEDED = auto()
    SUBSCRIPTION_IN_PROGRESS = auto()
    PUSH_NEEDED = auto()
    PUSH_IN_PROGRESS = auto()
    TERMINATING_PUSH_IN_PROGRESS = auto()
    TERMINATED = auto()


_IN_PROGRESS: Final = (State.SUBSCRIPTION_IN_PROGRESS, State.PUSH_IN_PROGRESS, State.TERMINATING_PUSH_IN_PROGRESS)


@dataclass(frozen=True, slots=True)
class Subscription:
    """A node's answer: the metrics to push, by prefixes of their names, and how."""

    client_instance_id: bytes
    subscription_id: int
    interval_ms: int
    metrics: tuple[str, ...]
    compressions: tuple[int, ...] = ()
    """Kafka's numbers of compression types, the preferred one first."""
    is_delta: bool = False
    max_bytes: int = 1_048_576

    def selects(self, name: str) -> bool:
        """Return whether a metric is to be pushed."""
        return any(prefix in _EVERYTHING or name.startswith(prefix) for prefix in self.metrics)


@dataclass(frozen=True, slots=True)
class TimePassed:
    """A deadline may have passed, and a node is connected."""


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A node has answered an :class:`Ask`."""

    subscription: Subscription


@dataclass(frozen=True, slots=True)
class Accepted:
    """A node has taken a :class:`Push`."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A node has refused an :class:`Ask` or a :class:`Push`."""

    error: TidelogError


@dataclass(frozen=True, slots=True)
class Unanswered:
    """An :class:`Ask` or a :class:`Push` has no answer."""


@dataclass(frozen=True, slots=True)
class Closing:
    """The client closes. The call in progress, if any, is cancelled."""


Event = TimePassed | Subscribed | Accepted | Refused | Unanswered | Closing


@dataclass(frozen=True, slots=True)
class Ask:
    """Request the subscription; the id is empty until a node has given one. An event answers it."""

    client_instance_id: bytes


@dataclass(frozen=True, slots=True)
class Push:
    """Push the present values. An event answers it."""

    subscription: Subscription
    is_terminating: bool = False


class TelemetrySession:
    """One client's telemetry. ``random`` returns numbers from 0 to 1."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self.state = State.SUBSCRIPTION_NEEDED
        self.subscription: Subscription | None = None
        """The latest answer of a node; None before the first."""
        self.disabled_by: TidelogError | None = None
        """The error that has ended the telemetry."""
        self._due_ms = 0.0

    @property
    def next_deadline_ms(self) -> float | None:
        """The time of the next request, or None if an event comes first, or nothing any more."""
        if self.disabled_by is not None:
            return None
        return self._due_ms if self.state in (State.SUBSCRIPTION_NEEDED, State.PUSH_NEEDED) else None

    def step(self, event: Event, now_ms: float) -> Ask | Push | None:
        """Apply an event and return the request to send, if any."""
        match event:
            case TimePassed():
                return self._send(now_ms)
            case Closing():
                return self._close()
            case Subscribed():
                if self.state is State.SUBSCRIPTION_IN_PROGRESS:
                    self._subscribe(event.subscription, now_ms)
            case Accepted():
                if not self._ends() and self.state is State.PUSH_IN_PROGRESS:
                    self._wait(State.PUSH_NEEDED, now_ms + self._interval_ms)
            case Refused():
                if not self._ends() and self.state in _IN_PROGRESS:
                    self._refused(event.error, now_ms)
            case Unanswered():
                if not self._ends() and self.state in _IN_PROGRESS:
                    asked = self.state is State.SUBSCRIPTION_IN_PROGRESS
                    again = State.SUBSCRIPTION_NEEDED if asked else State.PUSH_NEEDED
                    self._wait(again, now_ms + min(self._interval_ms, _RETRY_MS))
            case _:
                assert_never(event)
        return None

    def check_invariants(self) -> None:
        """Assert the invariants: a push has a subscription with metrics, and telemetry that ended sends nothing."""
        if self.state in (State.PUSH_NEEDED, State.PUSH_IN_PROGRESS, State.TERMINATING_PUSH_IN_PROGRESS):
            assert self.subscription is not None, self.state
            assert self.subscription.metrics, self.state
        if self.disabled_by is not None:
            assert self.state in (State.SUBSCRIPTION_NEEDED, State.TERMINATED), self.state
            assert self.next_deadline_ms is None

    @property
    def _interval_ms(self) -> int:
        return DEFAULT_INTERVAL_MS if self.subscription is None else self.subscription.interval_ms

    def _send(self, now_ms: float) -> Ask | Push | None:
        deadline_ms = self.next_deadline_ms
        if deadline_ms is None or now_ms < deadline_ms:
            return None
        if self.state is State.PUSH_NEEDED:
            assert self.subscription is not None
            self.state = State.PUSH_IN_PROGRESS
            return Push(self.subscription)
        self.state = State.SUBSCRIPTION_IN_PROGRESS
        return Ask(b"" if self.subscription is None else self.subscription.client_instance_id)

    def _close(self) -> Push | None:
        if self.state not in (State.PUSH_NEEDED, State.PUSH_IN_PROGRESS):
            if self.state is not State.TERMINATING_PUSH_IN_PROGRESS:
                self.state = State.TERMINATED
            return None
        assert self.subscription is not None
        self.state = State.TERMINATING_PUSH_IN_PROGRESS
        return Push(self.subscription, is_terminating=True)

    def _subscribe(self, subscription: Subscription, now_ms: float) -> None:
        self.subscription = subscription
        interval_ms = subscription.interval_ms
        if not subscription.metrics:
            self._wait(State.SUBSCRIPTION_NEEDED, now_ms + interval_ms)
            return
        low, high = _JITTER
        self._wait(State.PUSH_NEEDED, now_ms + interval_ms * (low + (high - low) * self._random()))

    def _refused(self, error: TidelogError, now_ms: float) -> None:
        was_push = self.state is State.PUSH_IN_PROGRESS
        if error.code in _ASKS_AT_ONCE and was_push:
            self._wait(State.SUBSCRIPTION_NEEDED, now_ms)
        elif error.code in (*_ASKS_AT_ONCE, *_WAITS):
            self._wait(State.SUBSCRIPTION_NEEDED, now_ms + self._interval_ms)
        else:
            self.state = State.SUBSCRIPTION_NEEDED
            self.disabled_by = error

    def _ends(self) -> bool:
        """End with the answer to the terminating push, whatever it is."""
        if self.state is State.TERMINATING_PUSH_IN_PROGRESS:
            self.state = State.TERMINATED
        return self.state is State.TERMINATED

    def _wait(self, state: State, due_ms: float) -> None:
        self.state, self._due_ms = state, due_ms

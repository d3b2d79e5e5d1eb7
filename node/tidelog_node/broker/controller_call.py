"""A node's call to the leading controller: which controller it asks, for how long, and when it gives up.

A call follows the hint of a controller that does not lead, and asks the next one after a timeout. Every attempt has its
own deadline, so a paused controller costs at most one of them. The call pauses after all known controllers have failed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Generic, TypeAlias, TypeVar

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.broker.lifecycle import UNREACHABLE

A = TypeVar("A", bound=Hashable)


class ControllerChoice(Generic[A]):
    """The controllers that a node knows by their addresses, and the one that it asks first, for all its calls."""

    def __init__(self, configured: Sequence[A], first: int = 0) -> None:
        self._configured = list(configured)
        self.addresses = self._configured
        self.next = self._configured[first]
        """The controller that answered last, or the one that it named."""

    def use_voters(self, addresses: Sequence[A]) -> None:
        """Ask these controllers from now on, and the configured ones as the last resort."""
        self.addresses = [*addresses, *(address for address in self._configured if address not in addresses)]

    def turn(self, asked: A, hint: A | None) -> None:
        """Ask the hinted leader next, even one that joined after this node last learned the voters."""
        if hint is not None and hint != asked:
            self.next = hint
            return
        position = self.addresses.index(asked) + 1 if asked in self.addresses else 0
        self.next = self.addresses[position % len(self.addresses)]


@dataclass(frozen=True, slots=True)
class Attempt(Generic[A]):
    """Ask one controller, and report a failure."""

    address: A
    timeout_ms: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait, then request the next attempt."""

    delay_ms: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """End the call with this error."""

    error: TidelogError


Command: TypeAlias = Attempt[A] | Pause | GiveUp


@dataclass(frozen=True, slots=True)
class CallTimings:
    """The deadlines of a call. The pause grows with each failure up to the longest."""

    timeout_ms: float
    attempt_timeout_ms: float
    pause_ms: float = 50
    max_pause_ms: float = 500


class ControllerCall(Generic[A]):
    """One call. A call that does not ``repeat`` asks one controller and ends with its error, whatever that is."""

    def __init__(self, choice: ControllerChoice[A], timings: CallTimings, now_ms: float, *, repeats: bool) -> None:
        self._choice = choice
        self._timings = timings
        self._deadline_ms = now_ms + timings.timeout_ms
        self._repeats = repeats
        self._asked = choice.next
        self._failures = 0
        self.reason = "no time was left"
        """The latest failure."""

    def attempt(self, now_ms: float) -> Command[A]:
        """Return the next attempt, or the error if the call's time is over."""
        remaining_ms = self._deadline_ms - now_ms
        if remaining_ms <= 0:
            text = f"no controller answered within {self._timings.timeout_ms / 1000:.1f} s ({self.reason})"
            return GiveUp(error_for(ErrorCode.REQUEST_TIMED_OUT, text))
        self._asked = self._choice.next
        return Attempt(self._asked, min(self._timings.attempt_timeout_ms, remaining_ms))

    def fail(self, error: TidelogError, hint: A | None, now_ms: float) -> Command[A]:
        """Return what follows a failed attempt. ``hint`` is the leader that the asked controller named, if any."""
        if error.code not in UNREACHABLE:
            return GiveUp(error)
        self.reason = f"{self._asked}: {error.message}"
        self._choice.turn(self._asked, hint)
        if not self._repeats:
            return GiveUp(error)
        self._failures += 1
        if self._failures % len(self._choice.addresses) == 0:
            return Pause(min(self._timings.pause_ms * self._failures, self._timings.max_pause_ms))
        return self.attempt(now_ms)

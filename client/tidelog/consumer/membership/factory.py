"""Choice of a consumer's membership by ``group.protocol``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tidelog.consumer.membership.classic import ClassicMembership
from tidelog.consumer.membership.consumer import ConsumerMembership
from tidelog.consumer.membership.events import Command, Event, Key, MembershipSettings
from tidelog_foundation.errors import ErrorCode, error_for


class Membership(Protocol):
    """The interface of a membership; a shell drives it from one thread at a time."""

    @property
    def owned(self) -> frozenset[Key]:
        """The application's partitions, from their assignment until it has released them."""

    @property
    def next_deadline_ms(self) -> float | None:
        """The latest time for :class:`TimePassed`; None if no timer is set."""

    def step(self, event: Event, now_ms: float) -> list[Command]:
        """Apply an event, and return the shell's commands in order."""

    def check_invariants(self) -> None:
        """Raise AssertionError if the state is inconsistent."""


def membership(
    settings: MembershipSettings, new_id: Callable[[], str], choose_backoff: Callable[[int], float]
) -> Membership:
    """Return the membership for ``settings.group_protocol``: ``classic`` or ``consumer`` (KIP-848).

    ``new_id`` creates a member id (a random UUID in base64, KIP-1082). ``choose_backoff`` maps a number of consecutive
    failures to a wait in milliseconds.

    Raises:
        TidelogError: _INVALID_ARG: the protocol or an assignor does not exist.
    """
    if settings.group_protocol == "classic":
        return ClassicMembership(settings, choose_backoff)
    if settings.group_protocol == "consumer":
        return ConsumerMembership(settings, new_id, choose_backoff)
    raise error_for(ErrorCode._INVALID_ARG, f"group.protocol is {settings.group_protocol!r}, not classic or consumer")

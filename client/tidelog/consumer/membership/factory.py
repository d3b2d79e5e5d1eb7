"""Which membership a consumer has: by ``group.protocol``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tidelog.consumer.membership.classic import ClassicMembership
from tidelog.consumer.membership.consumer import ConsumerMembership
from tidelog.consumer.membership.events import Command, Event, Key
from tidelog.consumer.membership.settings import MembershipSettings
from tidelog_foundation.errors import ErrorCode, error_for


class Membership(Protocol):
    """What a shell drives, in any one thread at a time."""

    @property
    def owned(self) -> frozenset[Key]:
        """The partitions that the application has: from when it is given them until it has given them up."""
        ...

    @property
    def next_deadline_ms(self) -> float | None:
        """When :class:`TimePassed` is due at the latest; None while nothing waits for time to pass."""
        ...

    def step(self, event: Event, now_ms: float) -> list[Command]:
        """Take an event; return what the shell is to do, in this order."""
        ...

    def check_invariants(self) -> None:
        """Raise AssertionError when the state contradicts itself."""
        ...


def membership(
    settings: MembershipSettings, new_id: Callable[[], str], choose_backoff: Callable[[int], float]
) -> Membership:
    """Return the membership that ``settings.group_protocol`` names: ``classic`` or ``consumer`` (KIP-848).

    ``new_id`` makes a member's id (a random UUID in base64, KIP-1082), ``choose_backoff`` says how long to wait, in
    ms, after so many failures in a row.

    Raises:
        TidelogError: _INVALID_ARG: no such protocol or assignor.
    """
    if settings.group_protocol == "classic":
        return ClassicMembership(settings, choose_backoff)
    if settings.group_protocol == "consumer":
        return ConsumerMembership(settings, new_id, choose_backoff)
    raise error_for(ErrorCode._INVALID_ARG, f"group.protocol is {settings.group_protocol!r}, not classic or consumer")

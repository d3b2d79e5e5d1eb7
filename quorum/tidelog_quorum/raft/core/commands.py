"""What a voter wants done: the outputs of :meth:`tidelog_quorum.raft.core.raft.Raft.step`, to be done in order.

A :class:`Send` may leave at once. What depends on the disk is not handed out before the
:class:`~tidelog_quorum.raft.core.events.Persisted` event that covers it, so that no shell can send it too early.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_quorum.raft.core.messages import Entry, HardState, Message


@dataclass(frozen=True, slots=True)
class Persist:
    """Write atomically, in this order: drop entries from ``truncate_from``, add ``entries``, set ``hard_state``.

    Sequences grow by one; writes reach the disk in their order, several may share one sync. None means "as it is".
    """

    sequence: int
    hard_state: HardState | None
    truncate_from: int | None
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Send:
    """Send ``message`` to the voter ``to``; it may be lost."""

    to: int
    message: Message


@dataclass(frozen=True, slots=True)
class Commit:
    """These entries are final; they follow those of the Commit before without a gap."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """The leader (None: unknown) or the term is another than before."""

    leader_id: int | None
    term: int


@dataclass(frozen=True, slots=True)
class ProposalAccepted:
    """The proposal has this place in the leader's log; whether it commits there is open."""

    index: int
    term: int


@dataclass(frozen=True, slots=True)
class ProposalRejected:
    """This voter does not lead in the proposal's epoch; nothing has happened."""

    leader_id: int | None
    term: int


@dataclass(frozen=True, slots=True)
class ReadReady:
    """``index`` covers all that was committed before the request, and all up to it went out in a Commit."""

    request_id: int
    index: int


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """This voter does not lead, or ceased to before a majority confirmed it."""

    request_id: int


Command = Persist | Send | Commit | LeaderChanged | ProposalAccepted | ProposalRejected | ReadReady | ReadFailed

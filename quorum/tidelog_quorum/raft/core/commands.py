"""What a voter wants done: the outputs of :meth:`tidelog_quorum.raft.core.raft.Raft.step`, to be done in order.

A :class:`Send` may leave at once. What depends on the disk is not handed out before the
:class:`~tidelog_quorum.raft.core.events.Persisted` event that covers it, so that no shell can send it too early.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_foundation.errors import ErrorCode
from tidelog_quorum.raft.core.messages import Entry, HardState, Message, Snapshot
from tidelog_quorum.raft.core.voters import VoterSet


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


@dataclass(frozen=True, slots=True)
class CompactLog:
    """Write atomically: ``snapshot`` is the latest one, the entries before ``first_index`` are gone.

    A write in the order of the ``sequence`` like :class:`Persist`. ``first_index`` is at most one after the
    snapshot's last index: some entries stay for followers that are a little behind.
    """

    sequence: int
    snapshot: Snapshot
    first_index: int


@dataclass(frozen=True, slots=True)
class SendSnapshot:
    """Read the chunk of ``snapshot`` from ``position`` on and send it as a ``SnapshotRequest`` of ``term``.

    It may be lost, as when the disk cannot give it any more.
    """

    to: int
    term: int
    snapshot: Snapshot
    position: int


@dataclass(frozen=True, slots=True)
class StoreChunk:
    """Put ``chunk`` at ``position`` of the file in which ``snapshot`` is being received; position 0 begins it anew.

    Nothing is synced before :class:`InstallSnapshot`.
    """

    snapshot: Snapshot
    position: int
    chunk: bytes


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """Check and sync the received file, then write atomically that it is the latest snapshot.

    The log loses all its entries. A write in the order of the ``sequence``; a wrong checksum is answered with
    :class:`~tidelog_quorum.raft.core.events.SnapshotDamaged` instead and writes nothing.
    """

    sequence: int
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class RestoreSnapshot:
    """The state is that of ``snapshot``, which is on this replica's disk; the next Commit follows it without a gap."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class VotersChanged:
    """These are the voters now, by the entry at ``index`` (0: by the configuration), committed or not."""

    voters: VoterSet
    index: int


@dataclass(frozen=True, slots=True)
class VoterChangeAccepted:
    """The change has this place in the log; it is done when that commits with this term."""

    request_id: int
    index: int
    term: int


@dataclass(frozen=True, slots=True)
class TransferDone:
    """Another leads now, in a later term."""

    request_id: int


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """An operator's request came to nothing; ``reason`` is a sentence that names the values."""

    request_id: int
    code: ErrorCode
    reason: str


Command = (
    Persist
    | Send
    | Commit
    | LeaderChanged
    | ProposalAccepted
    | ProposalRejected
    | ReadReady
    | ReadFailed
    | CompactLog
    | SendSnapshot
    | StoreChunk
    | InstallSnapshot
    | RestoreSnapshot
    | VotersChanged
    | VoterChangeAccepted
    | TransferDone
    | RequestRefused
)

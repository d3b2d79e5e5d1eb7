"""Commands: the outputs of :meth:`tidelog_quorum.raft.core.raft.Raft.step`, which the caller executes in order.

A :class:`Send` may leave at once. The core holds back every command that depends on the disk until the
:class:`~tidelog_quorum.raft.core.events.Persisted` event that covers it, so no caller can execute it too early.
"""

from __future__ import annotations

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode
from tidelog_quorum.raft.core.messages import Entry, HardState, Message, Snapshot
from tidelog_quorum.raft.core.voters import VoterSet


@dataclass(frozen=True, slots=True)
class Persist:
    """Write atomically, in this order: drop entries from ``truncate_from``, add ``entries``, set ``hard_state``.

    Sequences increase by one; writes reach the disk in order, and several may share one sync. None means "unchanged".
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
    """Entries that are final; they follow those of the previous Commit without a gap."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """The leader (None: unknown) or the term has changed."""

    leader_id: int | None
    term: int


@dataclass(frozen=True, slots=True)
class ProposalAccepted:
    """The proposal's place in the leader's log; it may or may not commit there."""

    index: int
    term: int


@dataclass(frozen=True, slots=True)
class ProposalRejected:
    """This voter does not lead in the proposal's epoch; the log is unchanged."""

    leader_id: int | None
    term: int


@dataclass(frozen=True, slots=True)
class ReadReady:
    """``index`` covers everything committed before the request; everything up to it was delivered in a Commit."""

    request_id: int
    index: int


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """This voter does not lead, or stopped leading before a majority confirmed it."""

    request_id: int


@dataclass(frozen=True, slots=True)
class CompactLog:
    """Write atomically: ``snapshot`` is the latest one, the entries before ``first_index`` are gone.

    A write in the order of the ``sequence``, like :class:`Persist`. ``first_index`` is at most one after the snapshot's
    last index: some entries stay for followers that are slightly behind.
    """

    sequence: int
    snapshot: Snapshot
    first_index: int


@dataclass(frozen=True, slots=True)
class SendSnapshot:
    """Read the chunk of ``snapshot`` at ``position`` and send it as a ``SnapshotRequest`` of ``term``.

    The message may be lost, for example if the file is gone.
    """

    to: int
    term: int
    snapshot: Snapshot
    position: int


@dataclass(frozen=True, slots=True)
class StoreChunk:
    """Write ``chunk`` at ``position`` of the file that receives ``snapshot``; position 0 starts a new file.

    Nothing is synced before :class:`InstallSnapshot`.
    """

    snapshot: Snapshot
    position: int
    chunk: bytes


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """Check and sync the received file, then write atomically that it is the latest snapshot.

    The log loses all its entries. A write in the order of the ``sequence``. If the checksum is wrong, the caller writes
    nothing and answers with :class:`~tidelog_quorum.raft.core.events.SnapshotDamaged`.
    """

    sequence: int
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class RestoreSnapshot:
    """Replace the state with that of ``snapshot``, which is on this replica's disk; the next Commit follows it."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class VotersChanged:
    """The voters now in force, by the entry at ``index`` (0: by the configuration), committed or not."""

    voters: VoterSet
    index: int


@dataclass(frozen=True, slots=True)
class VoterChangeAccepted:
    """The place of the change in the log; the change is done when that entry commits with this term."""

    request_id: int
    index: int
    term: int


@dataclass(frozen=True, slots=True)
class TransferDone:
    """Another voter leads, in a later term."""

    request_id: int


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """An operator's request failed; ``reason`` is a sentence that names the values."""

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

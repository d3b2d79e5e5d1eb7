"""What the controller needs of a Raft engine, and what an engine tells the controller."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol

from tidelog_quorum.raft.core.voters import Voter, VoterSet


@dataclass(frozen=True, slots=True)
class LeaderAndEpoch:
    """The leader of the quorum (None: unknown) in an epoch; an epoch is a Raft term."""

    leader_id: int | None
    epoch: int
    is_self: bool


@dataclass(frozen=True, slots=True)
class CommittedEntry:
    """One entry of the log that is final. The engine's own entries have an empty payload."""

    index: int
    term: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class ReplicaDescription:
    """One replica as the leader sees it: ages are milliseconds since then, None for never, 0 for the leader itself.

    ``log_end_offset`` is the last index known to be on its disk.
    """

    replica_id: int
    directory_id: bytes
    host: str
    port: int
    log_end_offset: int
    last_fetch_age_ms: int | None
    last_caught_up_age_ms: int | None


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The quorum as its leader sees it; ``snapshot_offset`` is -1 while it has none."""

    leader: LeaderAndEpoch
    high_watermark: int
    voters: tuple[ReplicaDescription, ...]
    observers: tuple[ReplicaDescription, ...]
    snapshot_offset: int
    log_start_offset: int


class RaftListener(Protocol):
    """Called on the event loop, in order, where nothing else is said.

    It must neither block nor raise: what it raises stops the engine.
    """

    def capture(self) -> Iterable[bytes]:
        """Return the state after the last entry given to :meth:`on_commit`, in chunks.

        The call is on the event loop and must be quick; the iterable is consumed later in another thread, while
        entries go on to be committed, so it must hold on to an unchanging value.
        """

    def read_snapshot(self, last_index: int, last_term: int, chunks: Iterable[bytes]) -> Callable[[], None]:
        """Return what puts the state of a snapshot in place of the present one.

        Called in another thread, with the chunks of :meth:`capture` joined and cut elsewhere; what it returns is then
        called on the event loop. No entry is given to :meth:`on_commit` between the two.
        """

    def on_commit(self, entries: Sequence[CommittedEntry]) -> None:
        """Take entries that follow those of the call before without a gap.

        After a start the first index is 1, or one after the snapshot that was put in place.
        """

    def reader_of(self, entry: CommittedEntry) -> Callable[[], Callable[[], None]] | None:
        """Return what reads the next entry, a large one, in another thread; None when :meth:`on_commit` is quick.

        What it returns there is then called on the event loop in the place of :meth:`on_commit`. Nothing else
        is given to the listener between the two but leaders and voters.
        """

    def on_voters_change(self, voters: VoterSet) -> None:
        """Take who has a vote now; called at the start too."""

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Take a new leader or epoch.

        A new leader may propose at once, but has been given all that was committed before its epoch only when
        the first entry of the epoch comes to :meth:`on_commit`.
        """


class RaftEngine(Protocol):
    """One voter. All calls are made on its event loop."""

    async def start(self, listener: RaftListener) -> None:
        """Load the log and take part; the listener's calls begin before this returns or later."""

    async def stop(self) -> None:
        """Take no more part. What was proposed and not committed may still commit on the other voters.

        A leader hands its leadership over first, for a short time at most.
        """

    async def wait_failed(self) -> NoReturn:
        """Wait until the engine fails, and raise why; a process should then end and say so.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR, the disk failed or is full; UNKNOWN_SERVER_ERROR, a contract was broken.
        """

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader that this voter knows of."""

    def propose(self, payload: bytes, epoch: int) -> int:
        """Put ``payload`` in the leader's log and return its index; it is not committed yet.

        The index then commits with this epoch as its term, or with another one (the proposal is lost), or never.
        Indexes ascend; the engine's own entries may lie between two of them.

        Raises:
            TidelogError: NOT_CONTROLLER, this voter does not lead in ``epoch``; KAFKA_STORAGE_ERROR, it has failed.
        """

    async def read_barrier(self) -> int:
        """Return an index that covers all that was committed before the call; up to it all went to the listener.

        Raises:
            TidelogError: NOT_CONTROLLER, this voter does not lead or ceases to; KAFKA_STORAGE_ERROR, it has failed.
        """

    def describe(self) -> QuorumDescription:
        """Describe the quorum.

        Raises:
            TidelogError: NOT_CONTROLLER, this voter does not lead.
        """

    async def take_snapshot(self) -> tuple[int, int]:
        """Take a snapshot of what was given to the listener and drop the log before it.

        Returns the snapshot's last index and the first index that is still in the log.

        Raises:
            TidelogError: SNAPSHOT_NOT_FOUND, nothing was committed yet; KAFKA_STORAGE_ERROR; UNSUPPORTED_VERSION, the
                engine cannot do that on demand.
        """

    async def add_voter(self, voter: Voter, timeout_ms: int) -> None:
        """Give a replica that follows the log a vote, once it has caught up; returns when that is committed.

        Raises:
            TidelogError: NOT_CONTROLLER; DUPLICATE_VOTER; VOTER_NOT_FOUND, no such replica follows the log;
                INVALID_VOTER_KEY, it has another directory id; REQUEST_TIMED_OUT, it did not catch up, or the change
                may still commit; INVALID_REQUEST, another change is under way or the leader has not committed an
                entry of its term; UNSUPPORTED_VERSION.
        """

    async def remove_voter(self, voter_id: int, directory_id: bytes, timeout_ms: int) -> None:
        """Take a voter out, maybe the leader itself; an empty ``directory_id`` matches any.

        Raises:
            TidelogError: as in :meth:`add_voter`; VOTER_NOT_FOUND, it has no vote; INVALID_REQUEST, it is the last one.
        """

    async def update_voter(self, voter: Voter, leader_epoch: int | None, timeout_ms: int) -> None:
        """Change a voter's address; returns when that is committed. An empty directory id, and no epoch, match any.

        Raises:
            TidelogError: NOT_CONTROLLER; FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, the leader has another epoch;
                VOTER_NOT_FOUND, it has no vote or another directory id; INVALID_REQUEST, it runs and announces another
                address; REQUEST_TIMED_OUT, another change is under way, or this one may still commit;
                UNSUPPORTED_VERSION.
        """

    async def transfer_leadership(self, to: int | None, timeout_ms: int) -> int:
        """Let another voter lead (None: the one with most of the log) and return which; proposals fail meanwhile.

        Raises:
            TidelogError: NOT_CONTROLLER; VOTER_NOT_FOUND; REQUEST_TIMED_OUT, this voter leads on; INVALID_REQUEST,
                another transfer is under way or there is no other voter; UNSUPPORTED_VERSION.
        """

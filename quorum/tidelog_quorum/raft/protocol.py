"""The interface of a Raft engine to the controller, and of the controller to the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn, Protocol

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.requests.quorum import DescribeQuorumResponse
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.raft.snapshot_age import LatestSnapshot


@dataclass(frozen=True, slots=True)
class LeaderAndEpoch:
    """The leader of the quorum (None: unknown) in an epoch; an epoch is a Raft term."""

    leader_id: int | None
    epoch: int
    is_self: bool

    def not_controller(self, node_id: int, where: str = "") -> TidelogError:
        """Return the error of a controller that does not lead, with the leader that it knows."""
        known = "no leader is known" if self.leader_id is None else f"controller {self.leader_id} does"
        text = f"controller {node_id} does not lead the quorum{where}; {known} (epoch {self.epoch})"
        return error_for(ErrorCode.NOT_CONTROLLER, text)


@dataclass(frozen=True, slots=True)
class CommittedEntry:
    """One final entry of the log. The engine's own entries have an empty payload."""

    index: int
    term: int
    payload: bytes


class RaftListener(Protocol):
    """The receiver of committed entries; called on the event loop, in order, unless a method says otherwise.

    It must neither block nor raise: an exception stops the engine.
    """

    def capture(self) -> Iterable[bytes]:
        """Return the state after the last entry given to :meth:`on_commit`, in chunks.

        The call is on the event loop and must be quick. Another thread consumes the iterable later, while more entries
        commit, so it must refer to an immutable value.
        """

    def read_snapshot(self, last_index: int, last_term: int, chunks: Iterable[bytes]) -> Callable[[], None]:
        """Return a function that replaces the current state with a snapshot's.

        Called in another thread, with the chunks of :meth:`capture`, possibly cut differently; the returned function is
        then called on the event loop. No entry is given to :meth:`on_commit` between the two.
        """

    def on_commit(self, entries: Sequence[CommittedEntry]) -> None:
        """Process entries that follow those of the previous call without a gap.

        After a start the first index is 1, or one after the restored snapshot.
        """

    def reader_of(self, entry: CommittedEntry) -> Callable[[], Callable[[], None]] | None:
        """Return a function that reads the next, large entry in another thread; None if :meth:`on_commit` is quick.

        That function returns another one, which is called on the event loop in place of :meth:`on_commit`. Between the
        two the listener receives only leaders and voters.
        """

    def on_voters_change(self, voters: VoterSet) -> None:
        """Process a change of the voters; called at the start too."""

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Process a new leader or epoch.

        A new leader may propose at once, but has received everything committed before its epoch only when the first
        entry of the epoch comes to :meth:`on_commit`.
        """


class RaftEngine(Protocol):
    """One voter. All calls are made on its event loop."""

    async def start(self, listener: RaftListener) -> None:
        """Load the log and join the quorum; calls to the listener may begin before this returns."""

    async def stop(self) -> None:
        """Leave the quorum. Proposals that are not committed may still commit on the other voters.

        A leader hands its leadership over first, for a short time at most.
        """

    async def wait_failed(self) -> NoReturn:
        """Wait until the engine fails, and raise its error; the process should then log it and exit.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR, the disk failed or is full; UNKNOWN_SERVER_ERROR, a contract was broken.
        """

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader that this voter knows."""

    @property
    def committed_offset(self) -> int:
        """The last index that this voter knows to be committed, which the listener may not have received yet."""

    def propose(self, payload: bytes, epoch: int) -> int:
        """Add ``payload`` to the leader's log and return its index; it is not committed yet.

        The index then commits with this epoch as its term, or with another one (the proposal is lost), or never.
        Indexes ascend; the engine's own entries may lie between two of them.

        Raises:
            TidelogError: NOT_CONTROLLER, this voter does not lead in ``epoch``; KAFKA_STORAGE_ERROR, it has failed.
        """

    async def read_barrier(self) -> int:
        """Return an index that covers everything committed before the call, all of which the listener has received.

        Raises:
            TidelogError: NOT_CONTROLLER, this voter does not lead or stops leading; KAFKA_STORAGE_ERROR, it has failed.
        """

    def describe(self) -> DescribeQuorumResponse:
        """Describe the quorum, without the cluster's id and the nodes.

        Raises:
            TidelogError: NOT_CONTROLLER, this voter does not lead.
        """

    def latest_snapshot(self) -> LatestSnapshot:
        """Return the age and the size of this voter's latest snapshot."""

    async def take_snapshot(self) -> tuple[int, int]:
        """Take a snapshot of the delivered state and drop the log before it.

        Returns the snapshot's last index and the first index that is still in the log.

        Raises:
            TidelogError: SNAPSHOT_NOT_FOUND, nothing was committed yet; KAFKA_STORAGE_ERROR; UNSUPPORTED_VERSION, the
                engine does not support this.
        """

    async def add_voter(self, voter: Voter, timeout_ms: int) -> None:
        """Give a vote to a replica that follows the log, once it has caught up; return when the change is committed.

        Raises:
            TidelogError: NOT_CONTROLLER; DUPLICATE_VOTER; VOTER_NOT_FOUND, no such replica follows the log;
                INVALID_VOTER_KEY, it has another directory id; REQUEST_TIMED_OUT, it did not catch up, or the change
                may still commit; INVALID_REQUEST, another change is in progress or the leader has not committed an
                entry of its term; UNSUPPORTED_VERSION.
        """

    async def remove_voter(self, voter_id: int, directory_id: bytes, timeout_ms: int) -> None:
        """Remove a voter, possibly the leader itself; an empty ``directory_id`` matches any.

        Raises:
            TidelogError: as in :meth:`add_voter`; VOTER_NOT_FOUND, it has no vote; INVALID_REQUEST, it is the last one.
        """

    async def update_voter(self, voter: Voter, leader_epoch: int | None, timeout_ms: int) -> None:
        """Replace a voter's addresses; return when that is committed. An empty directory id and a None epoch match any.

        Raises:
            TidelogError: NOT_CONTROLLER; FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, the leader has another epoch;
                VOTER_NOT_FOUND, it has no vote or another directory id; INVALID_REQUEST, it runs and announces other
                addresses, or they lack the leader's own first listener; REQUEST_TIMED_OUT, another change is in
                progress, or this one may still commit; UNSUPPORTED_VERSION.
        """

    async def transfer_leadership(self, to: int | None, timeout_ms: int) -> int:
        """Hand over to another voter (None: the most up-to-date one) and return its id; proposals fail meanwhile.

        Raises:
            TidelogError: NOT_CONTROLLER; VOTER_NOT_FOUND; REQUEST_TIMED_OUT, this voter still leads; INVALID_REQUEST,
                another transfer is in progress or there is no other voter; UNSUPPORTED_VERSION.
        """

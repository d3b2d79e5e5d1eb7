"""Drives one Raft core: provides time, disk and network, and executes its commands in order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, assert_never

import grpc.aio

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_quorum.raft.core import (
    Command,
    Commit,
    CompactLog,
    EntryKind,
    Event,
    FollowRequest,
    InstallSnapshot,
    LeaderChanged,
    Message,
    MessageReceived,
    Persist,
    Persisted,
    ProposalAccepted,
    ProposalRejected,
    Proposed,
    Raft,
    RaftConfig,
    RandomMs,
    ReadFailed,
    ReadReady,
    RequestRefused,
    RestoreSnapshot,
    Send,
    SendSnapshot,
    Snapshot,
    SnapshotDamaged,
    SnapshotRequest,
    SnapshotTaken,
    StoreChunk,
    Tick,
    TransferDone,
    VoterChangeAccepted,
    VotersChanged,
    VoterSet,
)
from tidelog_quorum.raft.delivery import Delivery
from tidelog_quorum.raft.description import describe_quorum
from tidelog_quorum.raft.links import Resolve
from tidelog_quorum.raft.peers import Introduction, NamedControllers, Peers
from tidelog_quorum.raft.protocol import LeaderAndEpoch, QuorumDescription, RaftListener
from tidelog_quorum.raft.receiver import RaftReceiver, add_raft_service
from tidelog_quorum.raft.requests import PendingRequests
from tidelog_quorum.raft.snapshot_config import SnapshotConfig
from tidelog_quorum.raft.snapshots import remove_snapshot
from tidelog_quorum.raft.snapshotting import SnapshotSender, SnapshotTaker
from tidelog_quorum.raft.storage import Written, open_storage
from tidelog_quorum.raft.stored_log import StoredState
from tidelog_quorum.raft.timer import DeadlineTimer
from tidelog_quorum.raft.writer import StorageWriter

logger = logging.getLogger(__name__)


class RaftDriver:
    """The driver of one core, from :meth:`start` to :meth:`stop` on one event loop; it processes one event at a time.

    After a failure it is silent: no event reaches the core and no command is executed.
    """

    def __init__(
        self,
        me: Introduction,
        voters: VoterSet,
        directory: Path,
        config: RaftConfig,
        server: grpc.aio.Server,
        *,
        bootstrap: Sequence[tuple[str, int]],
        snapshots: SnapshotConfig,
        random_ms: RandomMs,
        resolve: Resolve,
    ) -> None:
        self.leader = LeaderAndEpoch(None, 0, False)
        self._me = me
        self._first_voters = voters
        self._directory = directory
        self._config = config
        self._bootstrap = bootstrap
        self._snapshots = snapshots
        self._random_ms = random_ms
        self._resolve = resolve
        self._core: Raft | None = None
        self._events: deque[Event] = deque()
        self._stepping = False
        self._requests = PendingRequests()
        self._compaction: CompactLog | None = None
        self._written_sequence = 0
        self._written_waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._failure: TidelogError | None = None
        self._failed = asyncio.Event()
        self._writer = StorageWriter(self._on_written, self.fail)
        self._receiver = RaftReceiver(self._on_message)
        add_raft_service(self._receiver, server)

    @property
    def directory_id(self) -> bytes:
        """The log's id; empty before :meth:`start`."""
        return self._me.directory_id

    async def start(self, listener: RaftListener) -> None:
        """Load the log and join the quorum.

        Raises:
            TidelogError: see :func:`tidelog_quorum.raft.storage.open_storage`.
        """
        assert self._core is None, "an engine starts once"
        me, directory = self._me, self._directory
        stored = await self._writer.open(lambda: open_storage(directory, me.cluster_id, me.node_id))
        logger.info(
            "controller %s has the log from offset %d to %d, term %d",
            me.node_id,
            stored.log_start[0] + 1,
            stored.last_index,
            stored.hard_state.term,
        )
        self._me = replace(me, directory_id=stored.directory_id)
        self._build(listener, stored)
        self._receiver.start(self._me, self._peers)
        self._taker.start(stored.snapshot)
        self.step(Tick())

    async def stop(self) -> None:
        """Leave the quorum and release the disk."""
        if self._core is not None:
            self._core = None
            self._timer.cancel()
            self._forget_leader()
            self._refuse_all(self._not_controller())
            await self._taker.stop()
            await self._sender.stop()
            await self._delivery.stop()
            # Before the links: a caller that connects or disconnects would open or close links.
            await self._receiver.stop()
            await self._peers.stop()
        await self._writer.close()

    async def wait_failed(self) -> NoReturn:
        """Wait until :meth:`fail`, and raise its error."""
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    def running(self) -> Raft:
        """Return the core, for reading only.

        Raises:
            TidelogError: the error of :meth:`fail`; NOT_CONTROLLER before the start or after the stop.
        """
        if self._failure is not None:
            raise error_for(self._failure.code, self._failure.message)
        if self._core is None:
            raise self._not_controller()
        return self._core

    def propose(self, payload: bytes, epoch: int) -> int:
        """Add a payload to the leader's log; see :class:`~tidelog_quorum.raft.protocol.RaftEngine`."""
        core = self.running()
        [answer] = core.step(Proposed(payload, epoch), self._timer.now_ms())
        if isinstance(answer, ProposalRejected):
            raise self._not_controller(f" in epoch {epoch}")
        assert isinstance(answer, ProposalAccepted)
        if not self._stepping:
            self._timer.set(core.next_deadline_ms)
        return answer.index

    async def request(self, event: Callable[[int], Event]) -> int:
        """Pass a request to the core under a new id and return the value of its answer.

        Raises:
            TidelogError: the reason of the refusal.
        """
        self.running()
        with self._requests.opened() as (request_id, done):
            self.step(event(request_id))
            if self._failure is not None:
                self.running()
            return await done

    def describe(self) -> QuorumDescription:
        """Describe the quorum.

        Raises:
            TidelogError: NOT_CONTROLLER, this voter does not lead.
        """
        core = self.running()
        if not self.leader.is_self:
            raise self._not_controller()
        return describe_quorum(core, self.leader, self._peers, self._timer.now_ms())

    async def take_snapshot(self) -> tuple[int, int]:
        """Take a snapshot of the delivered state; see :class:`~tidelog_quorum.raft.protocol.RaftEngine`."""
        self.running()
        await self._delivery.wait_restored()
        await self._taker.take()
        if self._compaction is not None:
            await self._wait_written(self._compaction.sequence)
        core = self.running()
        if core.snapshot is None:
            raise error_for(ErrorCode.SNAPSHOT_NOT_FOUND, "nothing is committed yet that a snapshot could hold")
        return core.snapshot.last_index, core.log.first_index

    def step(self, event: Event) -> None:
        """Process an event completely; an event that the listener causes meanwhile waits for its turn."""
        core = self._core
        if core is None or self._failure is not None:
            return
        self._events.append(event)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._events and self._failure is None:
                for command in core.step(self._events.popleft(), self._timer.now_ms()):
                    self._do(command)
        except Exception as error:  # noqa: BLE001  # logged by fail
            self.fail(error)
        finally:
            self._stepping = False
        if self._failure is None and self._core is not None:
            self._timer.set(core.next_deadline_ms)

    def fail(self, error: Exception) -> None:
        """Stop processing events for good."""
        if self._failure is not None or self._core is None:
            return
        if isinstance(error, TidelogError):
            self._failure = error
        else:
            logger.error("the Raft engine of controller %s failed unexpectedly", self._me.node_id, exc_info=error)
            text = f"the Raft engine failed unexpectedly: {error!r}"
            self._failure = error_for(ErrorCode.UNKNOWN_SERVER_ERROR, text)
        logger.critical("controller %s has left the quorum: %s", self._me.node_id, self._failure)
        self._failed.set()
        self._timer.cancel()
        self._taker.give_up()
        self._refuse_all(self._failure)
        self._forget_leader()

    def _build(self, listener: RaftListener, stored: StoredState) -> None:
        self._listener = listener
        self._timer = DeadlineTimer(asyncio.get_running_loop(), lambda: self.step(Tick()))
        self._core = Raft(
            self._me.node_id,
            self._first_voters,
            self._config,
            self._random_ms,
            directory_id=stored.directory_id,
            address=self._me.address,
            hard_state=stored.hard_state,
            snapshot=stored.snapshot,
            entries=stored.entries,
            log_start=stored.log_start,
            now_ms=self._timer.now_ms(),
        )
        self.leader = LeaderAndEpoch(None, stored.hard_state.term, False)
        self._peers = Peers(
            self._me,
            NamedControllers(self._first_voters, self._bootstrap),
            self._config.max_observers,
            lambda: self.leader.leader_id,
            self._resolve,
        )
        voters = self._first_voters if stored.snapshot is None else stored.snapshot.voters
        self._delivery = Delivery(
            self._directory, listener, voters, lambda: self._taker.note_delivered(), self._requests.answer, self.fail
        )
        self._taker = SnapshotTaker(
            self._directory, self._snapshots, listener, self._delivery, self._on_snapshot_taken, self.fail
        )
        self._sender = SnapshotSender(
            self._me.node_id, self._directory, self._snapshots.chunk_bytes, self._peers.send, self.fail
        )

    def _on_message(self, message: Message, directory_id: bytes, address: tuple[str, int] | None) -> None:
        if isinstance(message, SnapshotRequest) and not self._writer.takes_chunks:
            # Treat the chunk as lost: the leader sends it again, when the disk may have caught up.
            return
        self.step(MessageReceived(message, directory_id, address))

    def _on_written(self, written: Written) -> None:
        for snapshot in written.damaged:
            self.step(SnapshotDamaged(snapshot.last_index, snapshot.last_term))
        if written.sequence is None:
            return
        self.step(Persisted(written.sequence))
        self._written_sequence = written.sequence
        for sequence, future in self._written_waiters:
            if sequence <= written.sequence and not future.done():
                future.set_result(None)

    def _on_snapshot_taken(self, snapshot: Snapshot) -> None:
        self.step(SnapshotTaken(snapshot))
        if self._compaction is None or self._compaction.snapshot != snapshot:
            # The leader has sent a newer one meanwhile.
            remove_snapshot(self._directory, snapshot.last_index, snapshot.last_term)

    def _do(self, command: Command) -> None:
        match command:
            case Send(to, message):
                self._peers.send(to, message)
                if isinstance(message, FollowRequest):
                    # The known voters may all be gone.
                    self._peers.send_to_named(message)
            case Persist() | StoreChunk() | InstallSnapshot():
                self._writer.submit(command)
            case CompactLog():
                self._compaction = command
                self._writer.submit(command)
            case Commit():
                self._delivery.deliver(command)
                self._note_committed(command)
            case ReadReady():
                self._delivery.deliver(command)
            case RestoreSnapshot(snapshot):
                self._taker.installed(snapshot)
                self._delivery.deliver(command)
            case SendSnapshot():
                self._sender.send_chunk(command)
            case LeaderChanged(leader_id, term):
                self._set_leader(LeaderAndEpoch(leader_id, term, leader_id == self._me.node_id))
            case VotersChanged(voters):
                self._peers.set_voters(voters)
                self._listener.on_voters_change(voters)
            case _:
                self._answer(command)

    def _answer(
        self,
        command: ReadFailed | VoterChangeAccepted | TransferDone | RequestRefused | ProposalAccepted | ProposalRejected,
    ) -> None:
        match command:
            case ReadFailed(request_id):
                self._requests.refuse(request_id, self._not_controller())
            case VoterChangeAccepted(request_id, index, term):
                self._requests.await_commit(request_id, index, term)
            case TransferDone(request_id):
                assert self._core is not None
                leader_id = self._core.leader_id
                self._requests.answer(request_id, self._me.node_id if leader_id is None else leader_id)
            case RequestRefused(request_id, code, reason):
                self._requests.refuse(request_id, error_for(code, reason))
            case ProposalAccepted() | ProposalRejected():
                raise AssertionError(f"{command} answers no event of the driver's queue")
            case _:
                assert_never(command)

    def _note_committed(self, commit: Commit) -> None:
        for entry in commit.entries:
            if entry.kind is EntryKind.VOTERS:
                self._requests.committed(entry.index, entry.term, self._not_controller())

    def _set_leader(self, leader: LeaderAndEpoch) -> None:
        self.leader = leader
        if self._core is not None:
            self._requests.refuse_after(self._core.commit_index, self._not_controller)
        self._listener.on_leader_change(leader)

    def _forget_leader(self) -> None:
        """Tell the listener, whose callers may wait for entries that this replica will not commit."""
        try:
            self._set_leader(LeaderAndEpoch(None, self.leader.epoch, False))
        except Exception:
            logger.exception("the listener of controller %s refused the news", self._me.node_id)

    def _refuse_all(self, error: TidelogError) -> None:
        self._requests.refuse_all(error)
        for _, future in self._written_waiters:
            if not future.done():
                future.set_exception(error_for(error.code, error.message))

    async def _wait_written(self, sequence: int) -> None:
        if self._written_sequence >= sequence:
            return
        waiter = sequence, asyncio.get_running_loop().create_future()
        self._written_waiters.append(waiter)
        try:
            await waiter[1]
        finally:
            self._written_waiters.remove(waiter)

    def _not_controller(self, where: str = "") -> TidelogError:
        leader_id = self.leader.leader_id
        known = "no leader is known" if leader_id is None else f"controller {leader_id} does"
        text = f"controller {self._me.node_id} does not lead the quorum{where}; {known} (epoch {self.leader.epoch})"
        return error_for(ErrorCode.NOT_CONTROLLER, text)

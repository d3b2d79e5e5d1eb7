"""Tidelog's Raft engine: it drives one Raft core, provides time, disk and network, and executes commands in order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NoReturn, TypeVarTuple, assert_never

import grpc.aio

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.requests.quorum import DescribeQuorumResponse
from tidelog_foundation.transport.channels import OPEN, ChannelSecurity
from tidelog_foundation.transport.services import Guard, Identify, anyone
from tidelog_foundation.unexpected import report_unexpected
from tidelog_quorum.raft.core import commands, events, messages
from tidelog_quorum.raft.core.config import RaftConfig, SnapshotConfig
from tidelog_quorum.raft.core.endpoints import ANY_LISTENER, Endpoints
from tidelog_quorum.raft.core.raft import Raft
from tidelog_quorum.raft.core.replica import RandomSource
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.raft.delivery import Delivery
from tidelog_quorum.raft.event_loop import DeadlineTimer
from tidelog_quorum.raft.network.codec import MAX_ENTRY_BYTES
from tidelog_quorum.raft.network.links import Resolve, resolve_address
from tidelog_quorum.raft.network.peers import ConfiguredControllers, Introduction, Peers
from tidelog_quorum.raft.network.receiver import RaftReceiver, add_raft_service
from tidelog_quorum.raft.protocol import LeaderAndEpoch, RaftListener
from tidelog_quorum.raft.requests import PendingRequests
from tidelog_quorum.raft.snapshot_age import LatestSnapshot, SnapshotAge
from tidelog_quorum.raft.snapshot_tasks import SnapshotSender, SnapshotTaker
from tidelog_quorum.raft.storage.raft_storage import Written, open_storage
from tidelog_quorum.raft.storage.snapshot_files import remove_snapshot
from tidelog_quorum.raft.storage.stored_log import StoredState
from tidelog_quorum.raft.storage.writer import StorageWriter

Ts = TypeVarTuple("Ts")
logger = logging.getLogger(__name__)
_ANSWER_SLACK_S = 0.25
"""The extra time to wait for the core, which can tell why a request timed out."""


class TidelogRaft:
    """One replica of the quorum: a :class:`RaftEngine` on the event loop that starts it.

    ``voters`` is the first set of voters, with or without this replica (which then follows without a vote); the set in
    the log takes precedence. ``advertised`` has the addresses at which the others reach this replica, which calls them
    at the one of their addresses that ``listener`` names, with ``security``; ``bootstrap`` has addresses of controllers
    to ask when the voters are unknown. :meth:`serve_on` adds the service to each server, which the caller starts and
    stops; it should serve until :meth:`stop` has returned. When the disk fails or is full, or another voter or the
    listener breaks its contract, the engine falls silent for good: no event reaches the core and no command is
    executed, and the other voters elect a leader. :meth:`wait_failed` then raises the error.
    """

    def __init__(
        self,
        node_id: int,
        voters: VoterSet,
        data_dir: Path | str,
        cluster_id: str,
        config: RaftConfig,
        *,
        advertised: Endpoints,
        listener: str = ANY_LISTENER,
        bootstrap: Sequence[tuple[str, int]] = (),
        snapshots: SnapshotConfig | None = None,
        random: RandomSource | None = None,
        resolve: Resolve = resolve_address,
        security: ChannelSecurity = OPEN,
    ) -> None:
        self.leader = LeaderAndEpoch(None, 0, False)
        self._me = Introduction(cluster_id, node_id, b"", advertised, listener)
        self._first_voters = voters
        self._directory = Path(data_dir)
        self._config = config
        self._bootstrap = bootstrap
        self._snapshots = snapshots or SnapshotConfig()
        self._snapshot_age = SnapshotAge()
        self._random = random or Random()
        self._resolve = resolve
        self._security = security
        self._raft: Raft | None = None
        self._events: deque[events.Event] = deque()
        self._stepping = False
        self._requests = PendingRequests()
        self._compaction: commands.CompactLog | None = None
        self._written_sequence = 0
        self._written = asyncio.Event()
        self._failure: TidelogError | None = None
        self._failed = asyncio.Event()
        self._writer = StorageWriter(self._on_written, self._fail)
        self._receiver = RaftReceiver(self._on_message)

    def serve_on(self, server: grpc.aio.Server, identify: Identify = anyone, guard: Guard | None = None) -> None:
        """Add the service for other controllers to a server. ``identify`` and ``guard`` decide about its callers."""
        add_raft_service(self._receiver, server, identify, guard)

    @property
    def directory_id(self) -> bytes:
        """The 16 bytes that distinguish this log from any other one; empty before :meth:`start`."""
        return self._me.directory_id

    async def start(self, listener: RaftListener) -> None:
        """Load the log and join the quorum.

        Raises:
            TidelogError: see :func:`tidelog_quorum.raft.storage.raft_storage.open_storage`.
        """
        assert self._raft is None, "an engine starts once"
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
        if stored.snapshot is not None:
            self._snapshot_age.loaded(stored.snapshot.size)
        self._build(listener, stored)
        self._receiver.start(self._me, self._peers)
        self._taker.start(stored.snapshot)
        self._step(events.Tick())

    async def stop(self) -> None:
        """Leave the quorum and release the disk; a leader hands over first, within an election timeout."""
        if self.leader.is_self and len(self._running().voters.current) > 1:
            try:
                await self.transfer_leadership(None, self._config.election_timeout_ms)
            except TidelogError as error:
                logger.info("controller %s stops without handing over: %s", self._me.node_id, error)
        if self._raft is not None:
            self._raft = None
            self._timer.cancel()
            self._forget_leader()
            self._requests.refuse_all(self._not_controller())
            self._written.set()
            await self._taker.stop()
            await self._sender.stop()
            await self._delivery.stop()
            # Before the links: a caller that connects or disconnects would open or close links.
            await self._receiver.stop()
            await self._peers.stop()
        await self._writer.close()

    async def wait_failed(self) -> NoReturn:
        """Wait until the engine fails, and raise its error; the process should then log it and exit.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR, the disk failed; UNKNOWN_SERVER_ERROR, a contract was broken.
        """
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    @property
    def committed_offset(self) -> int:
        """The last index that is known to be committed; 0 before the start and after the stop."""
        return 0 if self._raft is None else self._raft.commit_index

    def propose(self, payload: bytes, epoch: int) -> int:
        """Add ``payload`` to the leader's log and return its index; see :class:`RaftEngine`.

        Raises:
            TidelogError: as documented there; MESSAGE_TOO_LARGE, the payload has more than 32 MiB.
        """
        if len(payload) > MAX_ENTRY_BYTES:
            text = f"a proposal of {len(payload)} bytes is above the {MAX_ENTRY_BYTES} allowed"
            raise error_for(ErrorCode.MESSAGE_TOO_LARGE, text)
        raft = self._running()
        [answer] = raft.step(events.Proposed(payload, epoch), self._timer.now_ms())
        if isinstance(answer, commands.ProposalRejected):
            raise self._not_controller(f" in epoch {epoch}")
        assert isinstance(answer, commands.ProposalAccepted)
        if not self._stepping:
            self._timer.set(raft.next_deadline_ms)
        return answer.index

    def describe(self) -> DescribeQuorumResponse:
        """Describe the quorum; see :class:`RaftEngine`."""
        raft = self._running()
        if not self.leader.is_self:
            raise self._not_controller()
        return raft.describe(self._timer.now_ms(), self._peers.endpoints_of)

    def latest_snapshot(self) -> LatestSnapshot:
        """Return the age and the size of this voter's latest snapshot."""
        return self._snapshot_age.current()

    async def take_snapshot(self) -> tuple[int, int]:
        """Take a snapshot of the delivered state; see :class:`RaftEngine`."""
        self._running()
        await self._delivery.restored.wait()
        await self._taker.take()
        sequence = 0 if self._compaction is None else self._compaction.sequence
        while self._written_sequence < sequence:
            self._written.clear()
            await self._written.wait()
            self._running()
        raft = self._running()
        if raft.snapshot is None:
            raise error_for(ErrorCode.SNAPSHOT_NOT_FOUND, "nothing is committed yet that a snapshot could hold")
        return raft.snapshot.last_index, raft.log.first_index

    async def read_barrier(self) -> int:
        """Return an index that covers everything committed before the call; see :class:`RaftEngine`."""
        return await self._request(events.ReadRequested)

    async def add_voter(self, voter: Voter, timeout_ms: int) -> None:
        """Give a vote to a replica that follows the log; see :class:`RaftEngine`."""
        await self._ask(timeout_ms, f"adding voter {voter.voter_id}", events.AddVoterRequested, voter, timeout_ms)

    async def remove_voter(self, voter_id: int, directory_id: bytes, timeout_ms: int) -> None:
        """Remove a voter; see :class:`RaftEngine`."""
        await self._ask(timeout_ms, f"removing voter {voter_id}", events.RemoveVoterRequested, voter_id, directory_id)

    async def update_voter(self, voter: Voter, leader_epoch: int | None, timeout_ms: int) -> None:
        """Replace a voter's addresses; see :class:`RaftEngine`."""
        await self._ask(timeout_ms, f"moving voter {voter.voter_id}", events.UpdateVoterRequested, voter, leader_epoch)

    async def transfer_leadership(self, to: int | None, timeout_ms: int) -> int:
        """Hand the leadership over to another voter and return its id; see :class:`RaftEngine`."""
        return await self._ask(timeout_ms, "handing the leadership over", events.TransferRequested, to, timeout_ms)

    def _running(self) -> Raft:
        """Return the core, for reading only.

        Raises:
            TidelogError: the error of :meth:`wait_failed`; NOT_CONTROLLER before the start or after the stop.
        """
        if self._failure is not None:
            raise error_for(self._failure.code, self._failure.message)
        if self._raft is None:
            raise self._not_controller()
        return self._raft

    async def _ask(self, timeout_ms: int, what: str, request: Callable[[int, *Ts], events.Event], *fields: *Ts) -> int:
        try:
            async with asyncio.timeout(timeout_ms / 1000 + _ANSWER_SLACK_S):
                return await self._request(lambda request_id: request(request_id, *fields))
        except TimeoutError as error:
            text = f"{what} was not done within {timeout_ms} ms; it may still be"
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, text) from error

    async def _request(self, event: Callable[[int], events.Event]) -> int:
        """Pass a request to the core under a new id and return the value of its answer.

        Raises:
            TidelogError: the reason of the refusal.
        """
        self._running()
        with self._requests.opened() as (request_id, done):
            self._step(event(request_id))
            self._running()
            return await done

    def _step(self, event: events.Event) -> None:
        """Process an event completely; an event that the listener causes meanwhile waits for its turn."""
        raft = self._raft
        if raft is None or self._failure is not None:
            return
        self._events.append(event)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._events and self._failure is None:
                for command in raft.step(self._events.popleft(), self._timer.now_ms()):
                    self._do(command)
        except Exception as error:  # noqa: BLE001  # logged by fail
            self._fail(error)
        finally:
            self._stepping = False
        if self._failure is None and self._raft is not None:
            self._timer.set(raft.next_deadline_ms)

    def _fail(self, error: Exception) -> None:
        """Stop processing events for good."""
        if self._failure is not None or self._raft is None:
            return
        if isinstance(error, TidelogError):
            self._failure = error
        else:
            text = "the Raft engine of controller %s failed unexpectedly"
            self._failure = report_unexpected(logger, error, text, self._me.node_id)
        logger.critical("controller %s has left the quorum: %s", self._me.node_id, self._failure)
        self._failed.set()
        self._timer.cancel()
        self._taker.give_up()
        self._requests.refuse_all(self._failure)
        self._written.set()
        self._forget_leader()

    def _build(self, listener: RaftListener, stored: StoredState) -> None:
        self._listener = listener
        self._timer = DeadlineTimer(asyncio.get_running_loop(), lambda: self._step(events.Tick()))
        self._raft = Raft(
            self._me.node_id,
            self._first_voters,
            self._config,
            self._random,
            directory_id=stored.directory_id,
            endpoints=self._me.endpoints,
            listener=self._me.listener,
            hard_state=stored.hard_state,
            snapshot=stored.snapshot,
            entries=stored.entries,
            log_start=stored.log_start,
            now_ms=self._timer.now_ms(),
        )
        self.leader = LeaderAndEpoch(None, stored.hard_state.term, False)
        self._peers = Peers(
            self._me,
            ConfiguredControllers(self._first_voters, self._bootstrap),
            self._config.max_observers,
            lambda: self.leader.leader_id,
            self._resolve,
            self._security,
        )
        voters = self._first_voters if stored.snapshot is None else stored.snapshot.voters
        self._delivery = Delivery(
            self._directory, listener, voters, lambda: self._taker.note_delivered(), self._requests.answer, self._fail
        )
        self._taker = SnapshotTaker(
            self._directory, self._snapshots, listener, self._delivery, self._on_snapshot_taken, self._fail
        )
        self._sender = SnapshotSender(
            self._me.node_id, self._directory, self._snapshots.chunk_bytes, self._peers.send, self._fail
        )

    def _on_message(self, message: messages.Message, directory_id: bytes, endpoints: Endpoints | None) -> None:
        if isinstance(message, messages.SnapshotRequest) and not self._writer.accepts_chunks:
            # Treat the chunk as lost: the leader sends it again, when the disk may have caught up.
            return
        self._step(events.MessageReceived(message, directory_id, endpoints))

    def _on_written(self, written: Written) -> None:
        for snapshot in written.damaged:
            self._step(events.SnapshotDamaged(snapshot.last_index, snapshot.last_term))
        if written.sequence is None:
            return
        self._step(events.Persisted(written.sequence))
        self._written_sequence = written.sequence
        self._written.set()

    def _on_snapshot_taken(self, snapshot: messages.Snapshot) -> None:
        self._snapshot_age.generated(snapshot.size)
        self._step(events.SnapshotTaken(snapshot))
        if self._compaction is None or self._compaction.snapshot != snapshot:
            # The leader has sent a newer one meanwhile.
            remove_snapshot(self._directory, snapshot.last_index, snapshot.last_term)

    def _do(self, command: commands.Command) -> None:
        match command:
            case commands.Send(to, message):
                self._peers.send(to, message)
                if isinstance(message, messages.FollowRequest):
                    # The known voters may all be gone.
                    self._peers.send_to_configured(message)
            case commands.Persist() | commands.StoreChunk() | commands.InstallSnapshot():
                self._writer.submit(command)
            case commands.CompactLog():
                self._compaction = command
                self._writer.submit(command)
            case commands.Commit():
                self._delivery.deliver(command)
                for entry in command.entries:
                    if entry.voters is not None:
                        self._requests.committed(entry.index, entry.term, self._not_controller())
            case commands.ReadReady():
                self._delivery.deliver(command)
            case commands.RestoreSnapshot(snapshot):
                self._taker.installed(snapshot)
                self._snapshot_age.loaded(snapshot.size)
                self._delivery.deliver(command)
            case commands.SendSnapshot():
                self._sender.send_chunk(command)
            case commands.LeaderChanged(leader_id, term):
                self._set_leader(LeaderAndEpoch(leader_id, term, leader_id == self._me.node_id))
            case commands.VotersChanged(voters):
                self._peers.set_voters(voters)
                self._listener.on_voters_change(voters)
            case commands.ReadFailed(request_id):
                self._requests.refuse(request_id, self._not_controller())
            case commands.VoterChangeAccepted(request_id, index, term):
                self._requests.await_commit(request_id, index, term)
            case commands.TransferDone(request_id):
                assert self._raft is not None
                leader_id = self._raft.leader_id
                self._requests.answer(request_id, self._me.node_id if leader_id is None else leader_id)
            case commands.RequestRefused(request_id, code, reason):
                self._requests.refuse(request_id, error_for(code, reason))
            case commands.ProposalAccepted() | commands.ProposalRejected():
                raise AssertionError(f"{command} answers no event of the engine's queue")
            case _:
                assert_never(command)

    def _set_leader(self, leader: LeaderAndEpoch) -> None:
        self.leader = leader
        if self._raft is not None:
            self._requests.refuse_after(self._raft.commit_index, self._not_controller)
        self._listener.on_leader_change(leader)

    def _forget_leader(self) -> None:
        """Tell the listener, whose callers may wait for entries that this replica will not commit."""
        try:
            self._set_leader(LeaderAndEpoch(None, self.leader.epoch, False))
        except Exception:
            logger.exception("the listener of controller %s failed on a change of leader", self._me.node_id)

    def _not_controller(self, where: str = "") -> TidelogError:
        return self.leader.not_controller(self._me.node_id, where)

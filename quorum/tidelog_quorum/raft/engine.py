"""The shell around the Raft core: gives it time, a disk and a network, and does what it commands."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn, assert_never

import grpc.aio

from tidelog.errors import ErrorCode, TidelogError, error_for
from tidelog.v1 import raft_service_pb2 as pb
from tidelog.v1.raft_service_pb2_grpc import add_RaftServiceServicer_to_server
from tidelog_quorum.raft.core import (
    Command,
    Commit,
    Event,
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
    ReadRequested,
    Send,
    Tick,
)
from tidelog_quorum.raft.peers import PeerLink, RaftReceiver
from tidelog_quorum.raft.protocol import CommittedEntry, LeaderAndEpoch, RaftEngine, RaftListener
from tidelog_quorum.raft.writer import StorageWriter

__all__ = ["CommittedEntry", "LeaderAndEpoch", "RaftEngine", "RaftListener", "TidelogRaft"]

logger = logging.getLogger(__name__)
_RANDOM = random.SystemRandom()


class TidelogRaft:
    """One voter of the quorum: a :class:`RaftEngine` for the event loop on which it is started.

    ``voters`` are all voters' (host, port) by id, this one's included. The service is added to ``server``, which
    stays the caller's to start and stop; messages that arrive before :meth:`start` are dropped. When the disk fails,
    or another voter or the listener breaks its contract, the engine falls silent for good: it acknowledges nothing
    any more, and the other voters elect a leader among themselves. :meth:`wait_failed` tells.
    """

    def __init__(
        self,
        node_id: int,
        voters: Mapping[int, tuple[str, int]],
        data_dir: Path | str,
        cluster_id: str,
        config: RaftConfig,
        server: grpc.aio.Server,
        *,
        random_ms: RandomMs = _RANDOM.randrange,
    ) -> None:
        if node_id not in voters:
            raise error_for(ErrorCode.INCONSISTENT_VOTER_SET, f"controller {node_id} is none of {sorted(voters)}")
        self._node_id = node_id
        self._voters = dict(voters)
        self._directory = Path(data_dir)
        self._cluster_id = cluster_id
        self._config = config
        self._random_ms = random_ms
        self._leader = LeaderAndEpoch(None, 0, False)
        self._core: Raft | None = None
        self._listener: RaftListener | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._timer_ms: int | None = None
        self._events: deque[Event] = deque()
        self._stepping = False
        self._reads: dict[int, asyncio.Future[int]] = {}
        self._read_ids = itertools.count(1)
        self._writer = StorageWriter(self._on_persisted, self._fail)
        self._links: dict[int, PeerLink] = {}
        self._link_tasks: list[asyncio.Task[None]] = []
        self._failure: TidelogError | None = None
        self._failed = asyncio.Event()
        self._receiver = RaftReceiver(cluster_id, node_id, self._voters, self._on_message)
        add_RaftServiceServicer_to_server(self._receiver, server)

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader that this voter knows of."""
        return self._leader

    async def start(self, listener: RaftListener) -> None:
        """Load the log and take part.

        Raises:
            TidelogError: see :func:`tidelog_quorum.raft.storage.open_storage`.
        """
        assert self._loop is None, "an engine starts once"
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        stored = await self._writer.open(self._directory, self._cluster_id, self._node_id)
        logger.info("controller %s has %d entries, term %d", self._node_id, len(stored.entries), stored.hard_state.term)
        self._core = Raft(
            self._node_id,
            self._voters,
            self._config,
            self._random_ms,
            hard_state=stored.hard_state,
            entries=stored.entries,
            now_ms=self._now_ms(),
        )
        self._leader = LeaderAndEpoch(None, stored.hard_state.term, False)
        self._open_links()
        self._step(Tick())

    async def stop(self) -> None:
        """Take no more part and release the disk."""
        self._core = None
        self._cancel_timer()
        self._leader = LeaderAndEpoch(None, self._leader.epoch, False)
        self._fail_reads(self._not_controller())
        for task in self._link_tasks:
            task.cancel()
        await asyncio.gather(*self._link_tasks, return_exceptions=True)
        await self._receiver.stop()
        await self._writer.close()

    async def wait_failed(self) -> NoReturn:
        """Wait until the engine fails, and raise why; a process should then end and say so.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR, the disk failed; UNKNOWN_SERVER_ERROR, a contract was broken.
        """
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    def propose(self, payload: bytes, epoch: int) -> int:
        """Put ``payload`` in the leader's log and return its index; see :class:`RaftEngine`."""
        core = self._running()
        [answer] = core.step(Proposed(payload, epoch), self._now_ms())
        if isinstance(answer, ProposalRejected):
            raise self._not_controller(f" in epoch {epoch}")
        assert isinstance(answer, ProposalAccepted)
        self._schedule(core)
        return answer.index

    async def read_barrier(self) -> int:
        """Return an index that covers all that was committed before the call; see :class:`RaftEngine`."""
        self._running()
        request_id = next(self._read_ids)
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._reads[request_id] = future
        try:
            self._step(ReadRequested(request_id))
            return await future
        finally:
            self._reads.pop(request_id, None)

    def _running(self) -> Raft:
        if self._failure is not None:
            raise error_for(self._failure.code, self._failure.message)
        if self._core is None:
            raise self._not_controller()
        return self._core

    def _on_message(self, message: Message) -> None:
        self._step(MessageReceived(message))

    def _on_persisted(self, sequence: int) -> None:
        self._step(Persisted(sequence))

    def _on_timer(self) -> None:
        self._timer = self._timer_ms = None
        self._step(Tick())

    def _step(self, event: Event) -> None:
        """Take an event to its end; one that is caused meanwhile, by the listener, waits for its turn."""
        core = self._core
        if core is None or self._failure is not None:
            return
        self._events.append(event)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._events and self._failure is None:
                for command in core.step(self._events.popleft(), self._now_ms()):
                    self._do(command)
        except TidelogError as error:
            self._fail(error)
        except Exception as error:
            logger.exception("the Raft engine of controller %s met a defect", self._node_id)
            self._fail(error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"the Raft engine met a defect: {error!r}"))
        finally:
            self._stepping = False
        self._schedule(core)

    def _do(self, command: Command) -> None:
        match command:
            case Send(to, message):
                self._links[to].send(message)
            case Persist():
                self._writer.submit(command)
            case Commit(entries):
                assert self._listener is not None
                self._listener.on_commit([CommittedEntry(e.index, e.term, e.payload) for e in entries])
            case LeaderChanged(leader_id, term):
                self._set_leader(LeaderAndEpoch(leader_id, term, leader_id == self._node_id))
            case ReadReady(request_id, index):
                self._answer_read(request_id, index)
            case ReadFailed(request_id):
                self._answer_read(request_id, None)
            case ProposalAccepted() | ProposalRejected():
                raise AssertionError(f"{command} answers no event of the engine's queue")
            case _:
                assert_never(command)

    def _set_leader(self, leader: LeaderAndEpoch) -> None:
        assert self._listener is not None
        self._leader = leader
        self._listener.on_leader_change(leader)

    def _answer_read(self, request_id: int, index: int | None) -> None:
        future = self._reads.get(request_id)
        if future is None or future.done():
            return
        if index is None:
            future.set_exception(self._not_controller())
        else:
            future.set_result(index)

    def _fail(self, error: TidelogError) -> None:
        if self._failure is not None or self._core is None:
            return
        logger.critical("controller %s takes no more part in the quorum: %s", self._node_id, error)
        self._failure = error
        self._failed.set()
        self._cancel_timer()
        self._fail_reads(error_for(error.code, error.message))
        try:
            self._set_leader(LeaderAndEpoch(None, self._leader.epoch, False))
        except Exception:
            logger.exception("the listener of controller %s refused the news", self._node_id)

    def _fail_reads(self, error: TidelogError) -> None:
        for future in self._reads.values():
            if not future.done():
                future.set_exception(error)

    def _schedule(self, core: Raft) -> None:
        if self._stepping or self._failure is not None or self._core is None:
            return
        assert self._loop is not None
        deadline_ms = core.next_deadline_ms
        if deadline_ms == self._timer_ms:
            return
        self._cancel_timer()
        self._timer_ms = deadline_ms
        if deadline_ms is None:
            return
        if deadline_ms <= self._now_ms():
            self._timer = self._loop.call_soon(self._on_timer)
        else:
            self._timer = self._loop.call_at(deadline_ms / 1000, self._on_timer)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timer_ms = None

    def _now_ms(self) -> int:
        assert self._loop is not None
        return int(self._loop.time() * 1000)

    def _open_links(self) -> None:
        assert self._loop is not None
        for peer_id, address in self._voters.items():
            if peer_id != self._node_id:
                hello = pb.RaftHello(cluster_id=self._cluster_id, sender_id=self._node_id, receiver_id=peer_id)
                link = self._links[peer_id] = PeerLink(hello, address)
                self._link_tasks.append(self._loop.create_task(link.run(), name=f"raft-peer-{peer_id}"))

    def _not_controller(self, where: str = "") -> TidelogError:
        leader_id = self._leader.leader_id
        known = "no leader is known" if leader_id is None else f"controller {leader_id} does"
        text = f"controller {self._node_id} does not lead the quorum{where}; {known} (epoch {self._leader.epoch})"
        return error_for(ErrorCode.NOT_CONTROLLER, text)

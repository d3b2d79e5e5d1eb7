"""Joins the controller to the Raft log: requests become proposals, committed entries become state and answers.

The order of a request, without an await in between: handle, propose, append. Then the answer waits until everything
that the request could see is committed; if the leadership ends first, it fails with NOT_CONTROLLER, and whether the
entry commits after all is open. A new leader writes an entry of its own first and handles requests when that is
committed, because only then has it seen all that its predecessors answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tidelog.errors import ErrorCode, TidelogError, error_for
from tidelog.v1 import controller_service_pb2 as pb
from tidelog.v1 import metadata_record_pb2
from tidelog_quorum.controller import Controller, Result
from tidelog_quorum.metadata import MetadataImage, MetadataRecord, NoOpRecord, encode_batch, from_message
from tidelog_quorum.raft.protocol import CommittedEntry, LeaderAndEpoch, RaftEngine
from tidelog_quorum.server.metadata_feed import MetadataFeed

logger = logging.getLogger(__name__)
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _Waiter:
    offset: int
    done: asyncio.Future[None]


class QuorumController:
    """The listener of the Raft engine; lives as long as the process, all on its event loop."""

    def __init__(
        self,
        controller: Controller,
        engine: RaftEngine,
        feed: MetadataFeed,
        session_timeout_ms: int,
        clock_ms: Callable[[], int],
    ) -> None:
        self._controller = controller
        self._engine = engine
        self._feed = feed
        self._tick_ms = min(500, max(20, session_timeout_ms // 20))
        self._late_ms = self._tick_ms + session_timeout_ms // 4
        self._clock_ms = clock_ms
        self._announcement: tuple[int, int] | None = None
        self._leadership_changed = asyncio.Event()
        self._waiters: list[_Waiter] = []
        self._failed = asyncio.Event()
        self._failure: Exception | None = None

    @property
    def image(self) -> MetadataImage:
        """The committed image; on any controller, as old as its part of the log."""
        return self._controller.committed

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader of the quorum as this controller knows it."""
        return self._engine.leader

    def log_end_offsets(self) -> Mapping[int, int]:
        """The last offset known to be in each voter's log; of the others only what the engine tells."""
        leader = self._engine.leader
        if not leader.is_self or leader.leader_id is None:
            return {}
        return {leader.leader_id: self._controller.latest.offset}

    async def submit(self, handle: Callable[[Controller, int], Result[R]]) -> R:
        """Handle a request as leader and return its answer once it is committed.

        Raises:
            TidelogError: NOT_CONTROLLER when this controller does not lead, or ceases to; what the handler raises.
        """
        await self._wait_active()
        result = handle(self._controller, self._clock_ms())
        self._write(result.records)
        await self._wait_committed(self._controller.latest.offset)
        return result.response

    async def read(self, view: Callable[[MetadataImage], R]) -> R:
        """Return a view of an image that has everything answered before the call.

        Raises:
            TidelogError: NOT_CONTROLLER when this controller does not lead, or ceases to.
        """
        await self._wait_committed(await self._engine.read_barrier())
        return view(self._controller.committed)

    async def run(self) -> None:
        """Fence silent brokers until cancelled; ends with the exception of an entry that could not be applied."""
        last_ms = self._clock_ms()
        while not await self._wait_failed(self._tick_ms / 1000):
            now_ms = self._clock_ms()
            if now_ms - last_ms > self._late_ms:
                # A process that was paused has not heard the heartbeats that were sent meanwhile.
                self._controller.prolong_sessions(now_ms)
            last_ms = now_ms
            self._expire_sessions(now_ms)
        assert self._failure is not None
        raise self._failure

    def on_commit(self, entries: Sequence[CommittedEntry]) -> None:
        """Apply committed entries in order, and let the answers go that waited for them."""
        try:
            for entry in entries:
                self._apply(entry)
        except Exception as error:
            self._fail(error)
            raise
        self._feed.wake()
        self._release()

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Begin or cease to lead."""
        if leader.leader_id is not None:
            logger.info("the quorum is led by controller %s in epoch %s", leader.leader_id, leader.epoch)
        self._announcement = None
        self._controller.resign()
        self._feed.set_leader(-1 if leader.leader_id is None else leader.leader_id)
        self._notify_leadership()
        for waiter in self._waiters:
            if not waiter.done.done():
                waiter.done.set_exception(self._not_controller())
        self._waiters.clear()
        if leader.is_self:
            # Later: the engine is in the middle of a step.
            asyncio.get_running_loop().call_soon(self._announce, leader)

    def _announce(self, leader: LeaderAndEpoch) -> None:
        try:
            index = self._engine.propose(encode_batch([NoOpRecord()]), leader.epoch)
        except TidelogError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                self._fail(error)
            return
        self._announcement = (index, leader.epoch)

    def _apply(self, entry: CommittedEntry) -> None:
        batch = metadata_record_pb2.MetadataRecordBatch.FromString(entry.payload)
        self._controller.replay(entry.index, entry.term, [from_message(m) for m in batch.records])
        message = pb.MetadataEntry(offset=entry.index, epoch=entry.term, records=batch.records)
        self._feed.publish(message, self._controller.committed)
        if self._announcement == (entry.index, entry.term):
            self._announcement = None
            self._controller.activate(entry.term, self._clock_ms())
            self._notify_leadership()
            logger.info("this controller leads the quorum in epoch %s from offset %s on", entry.term, entry.index)

    def _write(self, records: Sequence[MetadataRecord]) -> None:
        if not records:
            return
        epoch = self._engine.leader.epoch
        offset = self._engine.propose(encode_batch(records), epoch)
        self._controller.append(offset, epoch, records)

    def _expire_sessions(self, now_ms: int) -> None:
        if not self._controller.is_active:
            return
        expired = self._controller.expire_sessions(now_ms)
        for broker_id in sorted(expired.response):
            logger.info("broker %s is fenced: its session has ended", broker_id)
        try:
            self._write(expired.records)
        except TidelogError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._failed.set()

    def _release(self) -> None:
        offset = self._controller.committed.offset
        for waiter in self._waiters:
            if waiter.offset <= offset and not waiter.done.done():
                waiter.done.set_result(None)
        self._waiters = [w for w in self._waiters if not w.done.done()]

    async def _wait_committed(self, offset: int) -> None:
        if self._controller.committed.offset >= offset:
            return
        waiter = _Waiter(offset, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        await waiter.done

    async def _wait_active(self) -> None:
        while not self._controller.is_active:
            if not self._engine.leader.is_self:
                raise self._not_controller()
            await self._leadership_changed.wait()

    async def _wait_failed(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._failed.wait()
        except TimeoutError:
            return False

    def _notify_leadership(self) -> None:
        self._leadership_changed.set()
        self._leadership_changed = asyncio.Event()

    def _not_controller(self) -> TidelogError:
        leader_id = self._engine.leader.leader_id
        known = "no leader is known" if leader_id is None else f"controller {leader_id} does"
        return error_for(ErrorCode.NOT_CONTROLLER, f"this controller does not lead the quorum; {known}")

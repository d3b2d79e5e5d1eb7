"""Joins the controller to the Raft log: requests become proposals, committed entries become state and answers.

The order of a request: handle, propose, append, with no other request in between. Then the answer waits until
everything that the request could see is committed; if the leadership ends first, it fails with NOT_CONTROLLER, and
whether the entry commits after all is open. A new leader writes an entry of its own first and handles requests when
that is committed, because only then has it seen all that its predecessors answered. What it writes next, in a new
cluster, are the records that a cluster begins with.

No entry is larger than what the log and its messages take: a user's operation that needs more is refused whole,
what may be split becomes several entries, between which the event loop turns and no request is handled. A snapshot is
the image in batches: taken from an unchanging value and read in other threads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import NoReturn, TypeVar

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.lasting_objects import LastingObjects, building_lasting_objects
from tidelog_quorum.controller import BrokerProgress, Controller, Result
from tidelog_quorum.metadata import (
    MetadataImage,
    MetadataRecord,
    NoOpRecord,
    decode_batch,
    encode_batch,
    encode_batches,
    frame_batches,
    image_from_batches,
    read_frames,
)
from tidelog_quorum.raft.core.voters import VoterSet
from tidelog_quorum.raft.protocol import CommittedEntry, LeaderAndEpoch, RaftEngine
from tidelog_quorum.server.broker_standings import log_standings
from tidelog_quorum.server.commit_waiters import Backlog, CommitWaiters
from tidelog_quorum.server.metadata_feed import MetadataFeed

logger = logging.getLogger(__name__)
R = TypeVar("R")

MAX_RECORDS_PER_OPERATION = 20_000
"""Of one atomic entry. Kafka's MAX_RECORDS_PER_USER_OP is 10,000, which it allows of partitions too; here each
of these may come with a topic of its own, so that 2,000 topics of 5 partitions are one request."""
MAX_ENTRY_BYTES = 8 * 1024 * 1024
"""Of an atomic entry: far below what gRPC carries, with what its neighbours in a message may have."""
_RECORDS_PER_SLICE = 1_000
_MAX_UNCOMMITTED_ENTRIES = 10_000
_MAX_UNCOMMITTED_BYTES = 32 * 1024 * 1024
_BYTES_PER_OBJECT = 32


class QuorumController:
    """The listener of the Raft engine; lives as long as the process, on its event loop where nothing else is said."""

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
        self._serves = False
        self._leadership_changed = asyncio.Event()
        self._writing = asyncio.Lock()
        self._waiters = CommitWaiters()
        self._backlog = Backlog(_MAX_UNCOMMITTED_ENTRIES, _MAX_UNCOMMITTED_BYTES)
        self._lasting = LastingObjects()
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

    @property
    def voters(self) -> VoterSet:
        """Who has a vote now."""
        return self._feed.voters

    def broker_progress(self) -> Sequence[BrokerProgress]:
        """Return how far each node that lives has applied the metadata; on the leader, else nothing."""
        return self._controller.broker_progress(self._clock_ms())

    async def submit(self, handle: Callable[[Controller, int], Result[R]], *, is_long: bool = False) -> R:
        """Handle a request as leader and return its answer once it is committed.

        One that ``is_long`` is handled in a thread, so that elections and heartbeats go on; it may only look at the
        controller's ``latest`` image. Other requests wait for it, as for all that were asked before them.

        A caller that goes away may leave a result that is not atomic written in part.

        Raises:
            TidelogError: NOT_CONTROLLER when this controller does not lead, or ceases to; POLICY_VIOLATION, the request
                is for more than one entry can hold; what the handler raises.
        """
        async with self._writing:
            await self._wait_serving()
            epoch, now_ms = self._engine.leader.epoch, self._clock_ms()
            if is_long:
                result = await _finished(asyncio.to_thread(handle, self._controller, now_ms))
            else:
                result = handle(self._controller, now_ms)
            await self._write(result, epoch)
            if not self._serves or self._engine.leader.epoch != epoch:
                # While it was handled or written: what it saw may never be committed.
                raise self._not_controller()
            offset = self._controller.latest.offset
        await self._wait_committed(offset)
        return result.response

    async def read(self, view: Callable[[MetadataImage], R]) -> R:
        """Return a view of an image that has everything answered before the call.

        Raises:
            TidelogError: NOT_CONTROLLER when this controller does not lead, or ceases to.
        """
        await self._wait_committed(await self._engine.read_barrier())
        return view(self._controller.committed)

    async def lead(self) -> NoReturn:
        """Wait for as long as this controller leads.

        Raises:
            TidelogError: NOT_CONTROLLER, when it does not or ceases to.
        """
        await self._wait_serving()
        epoch = self._engine.leader.epoch
        while self._serves and self._engine.leader.epoch == epoch:
            await self._leadership_changed.wait()
        raise self._not_controller()

    async def run(self) -> None:
        """Do what time demands until cancelled; ends with the exception of an entry that could not be applied."""
        last_ms = self._clock_ms()
        while not await self._wait_failed(self._tick_ms / 1000):
            now_ms = self._clock_ms()
            if now_ms - last_ms > self._late_ms:
                # A process that was paused has not heard the heartbeats that were sent meanwhile.
                self._controller.prolong_sessions(now_ms)
            last_ms = now_ms
            await self._tick(now_ms)
        assert self._failure is not None
        raise self._failure

    def capture(self) -> Iterable[bytes]:
        """Return the committed image in chunks, encoded as they are taken; in any thread."""
        return frame_batches(encode_batches(self._controller.committed.iterate_records()))

    def read_snapshot(self, last_index: int, last_term: int, chunks: Iterable[bytes]) -> Callable[[], None]:
        """Build the image of a snapshot, in any thread, and return what puts it in place, on the event loop.

        Raises:
            TidelogError: CORRUPT_MESSAGE, UNSUPPORTED_VERSION, UNKNOWN_SERVER_ERROR: not what a controller wrote.
        """
        with building_lasting_objects():
            image = image_from_batches(last_index, last_term, read_frames(chunks))
        return lambda: self._restore(image)

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

    def reader_of(self, entry: CommittedEntry) -> Callable[[], Callable[[], None]] | None:
        """Return what builds the image after an entry, in any thread; None when this leader has done it already."""
        if self._controller.is_active:
            return None
        committed = self._controller.committed

        def read() -> Callable[[], None]:
            with building_lasting_objects():
                image = committed.apply(entry.index, entry.term, decode_batch(entry.payload))
            return lambda: self._take_over(entry, image)

        return read

    def on_voters_change(self, voters: VoterSet) -> None:
        """Tell the nodes who the controllers are now."""
        self._feed.set_voters(voters)

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Begin or cease to lead."""
        if leader.leader_id is not None:
            logger.info("the quorum is led by controller %s in epoch %s", leader.leader_id, leader.epoch)
        self._announcement = None
        self._serves = False
        self._controller.resign()
        self._feed.set_leader(-1 if leader.leader_id is None else leader.leader_id)
        self._notify_leadership()
        self._backlog.clear()
        self._waiters.fail(self._not_controller)
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
        before = self._controller.committed
        self._controller.replay(entry.index, entry.term, _records_of(entry.payload))
        self._note_applied(entry, before)

    def _take_over(self, entry: CommittedEntry, image: MetadataImage) -> None:
        before = self._controller.committed
        self._controller.restore(image)
        self._note_applied(entry, before)
        self._feed.wake()
        self._release()

    def _note_applied(self, entry: CommittedEntry, before: MetadataImage) -> None:
        after = self._controller.committed
        self._feed.publish(entry.index, entry.term, entry.payload, after)
        if before.topic_names is not after.topic_names:
            self._lasting.add(len(entry.payload) // _BYTES_PER_OBJECT)
        if self._serves and before.brokers is not after.brokers:
            log_standings(logger, before, after)
        if self._announcement == (entry.index, entry.term):
            self._announcement = None
            self._controller.activate(entry.term, self._clock_ms())
            asyncio.get_running_loop().call_soon(self._begin_to_serve, entry.term)
            logger.info("this controller leads the quorum in epoch %s from offset %s on", entry.term, entry.index)

    def _begin_to_serve(self, epoch: int) -> None:
        if not self._controller.is_active or self._engine.leader.epoch != epoch:
            return
        records = self._controller.bootstrap().records
        try:
            if records:
                self._propose(records, encode_batch(records), epoch)
        except TidelogError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                self._fail(error)
            return
        self._serves = True
        self._notify_leadership()

    def _restore(self, image: MetadataImage) -> None:
        self._controller.restore(image)
        self._feed.restore(image)
        self._release()
        logger.info("the metadata is that of a snapshot of offset %s, epoch %s", image.offset, image.epoch)

    async def _write(self, result: Result[R], epoch: int) -> None:
        """Write a result's records, while holding ``_writing``; those that may be split with pauses in between."""
        if not result.atomic:
            await self._write_slices([*result.preparations, *result.records], epoch)
            return
        # Before the first entry: what is too large leaves nothing behind.
        payload = await _encode_atomic(result.records) if result.records else b""
        await self._write_slices(result.preparations, epoch)
        if payload:
            self._propose(result.records, payload, epoch)

    async def _write_slices(self, records: Sequence[MetadataRecord], epoch: int) -> None:
        for start in range(0, len(records), _RECORDS_PER_SLICE):
            part = records[start : start + _RECORDS_PER_SLICE]
            await self._wait_for_room()
            self._propose(part, encode_batch(part), epoch)
            await asyncio.sleep(0)

    def _propose(self, records: Sequence[MetadataRecord], payload: bytes, epoch: int) -> None:
        offset = self._engine.propose(payload, epoch)
        self._controller.append(offset, epoch, records)
        self._backlog.add(offset, len(payload))

    async def _tick(self, now_ms: int) -> None:
        """Write what is due; requests come in between."""
        due = self._controller.tick(now_ms)
        try:
            while await self._write_next(due):
                pass
        except TidelogError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise

    async def _write_next(self, due: Iterator[Result[object]]) -> bool:
        """Write the next result, which is found while nobody else writes; return whether there was one."""
        async with self._writing:
            if not self._serves:
                return False
            await self._wait_for_room()
            result = next(due, None)
            if result is None:
                return False
            await self._write(result, self._engine.leader.epoch)
        await asyncio.sleep(0)
        return True

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._failed.set()

    def _release(self) -> None:
        offset = self._controller.committed.offset
        self._backlog.release(offset)
        self._waiters.release(offset)

    async def _wait_committed(self, offset: int) -> None:
        if self._controller.committed.offset < offset:
            await self._waiters.wait(offset)

    async def _wait_for_room(self) -> None:
        while self._backlog.is_full:
            await self._wait_committed(self._backlog.first_offset)

    async def _wait_serving(self) -> None:
        """Wait until this controller handles requests and has room for what they write."""
        while not self._serves or self._backlog.is_full:
            if not self._engine.leader.is_self:
                raise self._not_controller()
            if self._serves:
                await self._wait_for_room()
            else:
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


async def _finished(handling: Coroutine[None, None, R]) -> R:
    """Await what a thread does, to its end also when the caller goes away: nobody else is let in before."""
    task = asyncio.ensure_future(handling)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        task.exception()
        raise


def _records_of(payload: bytes) -> Iterator[MetadataRecord]:
    """Yield the records of an entry, which is decoded only when somebody asks for them."""
    yield from decode_batch(payload)


async def _encode_atomic(records: Sequence[MetadataRecord]) -> bytes:
    if len(records) > MAX_RECORDS_PER_OPERATION:
        raise _too_large(f"{len(records)} metadata records, {MAX_RECORDS_PER_OPERATION}")
    if len(records) <= _RECORDS_PER_SLICE:
        payload = encode_batch(records)
    else:
        payload = await asyncio.to_thread(encode_batch, records)
    if len(payload) > MAX_ENTRY_BYTES:
        raise _too_large(f"{len(payload)} bytes of metadata records, {MAX_ENTRY_BYTES}")
    return payload


def _too_large(amount_and_limit: str) -> TidelogError:
    text = f"the operation would write {amount_and_limit} are the limit of one step: ask for less at once"
    return error_for(ErrorCode.POLICY_VIOLATION, text)

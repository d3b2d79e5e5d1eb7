"""The shell of a controller's terms: it runs handlers, encodes large entries off the event loop, proposes and logs.

``controller.term`` decides, see the rules there. A snapshot is the image in batches, taken from an unchanging value and
read in other threads.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TypeVar, assert_never

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerId
from tidelog_foundation.lasting_objects import LastingObjects, building_lasting_objects
from tidelog_foundation.logs.events import EventLog
from tidelog_foundation.requests.quorum import BrokerProgress
from tidelog_foundation.requests.request import Request
from tidelog_foundation.requests.stop_safety import DescribeStopSafetyRequest, DescribeStopSafetyResponse
from tidelog_quorum.controller.feed import LeaderAnnounced, Published, Restored, VotersAnnounced
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state_machine import Controller
from tidelog_quorum.controller.stop_safety import controller_obstacles, describe_stop_safety, node_obstacles
from tidelog_quorum.controller.term import commands, events
from tidelog_quorum.controller.term.backlog import WriteLimits
from tidelog_quorum.controller.term.term import ControllerTerm
from tidelog_quorum.metadata.batches import encode_batches, frame_batches, image_from_batches, read_frames
from tidelog_quorum.metadata.codec import decode_batch, encode_batch
from tidelog_quorum.metadata.features import check_supported
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import MetadataRecord
from tidelog_quorum.raft.core.voters import VoterSet
from tidelog_quorum.raft.protocol import CommittedEntry, LeaderAndEpoch, RaftEngine
from tidelog_quorum.server.controller_metrics import CommitTimes
from tidelog_quorum.server.event_lines import report_brokers, report_partitions
from tidelog_quorum.server.metadata_feed import MetadataFeed

logger = logging.getLogger(__name__)
R = TypeVar("R")

_BYTES_PER_OBJECT = 32
_MANY_TOPICS = 100


class QuorumController:
    """The listener of the Raft engine; lives as long as the process, on its event loop where nothing else is said.

    ``controller`` is the state machine, for reading; its committed image is as old as this controller's part of the
    log.
    """

    def __init__(
        self,
        controller: Controller,
        engine: RaftEngine,
        feed: MetadataFeed,
        session_timeout_ms: int,
        clock_ms: Callable[[], int],
        limits: WriteLimits | None = None,
    ) -> None:
        self._term = ControllerTerm(controller, session_timeout_ms, clock_ms(), limits)
        self.controller = controller
        self._engine = engine
        self._feed = feed
        self._clock_ms = clock_ms
        self._events: deque[events.Event] = deque()
        self._is_stepping = False
        self._request_ids = itertools.count(1)
        self._handlers: dict[int, Callable[[Controller, int], Result[Any]]] = {}
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._lasting = LastingObjects()
        self._topic_names = controller.committed.topic_names
        self._feature_levels = controller.committed.feature_levels
        self.commits = CommitTimes()
        self._log = EventLog(logger)
        self._failed = asyncio.Event()
        self._failure: Exception | None = None

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader of the quorum as this controller knows it."""
        return self._engine.leader

    @property
    def voters(self) -> VoterSet:
        """The controllers that have a vote now."""
        return self._feed.voters

    def broker_progress(self) -> Sequence[BrokerProgress]:
        """Return how far each node that lives has applied the metadata; on the leader, else nothing."""
        return self.controller.sessions.progress(self._clock_ms())

    async def submit(self, handle: Callable[[Controller, int], Result[R]], *, is_long: bool = False) -> R:
        """Handle a request as leader and return its answer once it is committed.

        A request that ``is_long`` is handled in a thread, so that elections and heartbeats go on; its handler may only
        look at the controller's ``latest`` image. Later requests wait for it.

        A caller that goes away may leave a result that is not atomic written in part.

        Raises:
            TidelogError: NOT_CONTROLLER when this controller does not lead, or ceases to; POLICY_VIOLATION, the request
                is for more than one entry can hold; what the handler raises.
        """
        request_id = next(self._request_ids)
        self._handlers[request_id] = handle
        try:
            response: R = await self._call(request_id, events.Submitted(request_id, is_long))
        finally:
            del self._handlers[request_id]
        return response

    async def handle(self, request: Request[R], *, is_long: bool = False) -> R:
        """Handle a request as leader; see :meth:`submit`."""
        return await self.submit(lambda controller, now_ms: controller.handle(request, now_ms), is_long=is_long)

    async def read(self, view: Callable[[MetadataImage], R]) -> R:
        """Return a view of an image that has everything answered before the call.

        Raises:
            TidelogError: NOT_CONTROLLER when this controller does not lead, or ceases to.
        """
        offset, request_id = await self._engine.read_barrier(), next(self._request_ids)
        await self._call(request_id, events.CommitAwaited(request_id, offset))
        return view(self.controller.committed)

    async def describe_stop_safety(self, request: DescribeStopSafetyRequest) -> DescribeStopSafetyResponse:
        """Return what stands against stopping a process, with a large cluster in a thread.

        Raises:
            TidelogError: NOT_CONTROLLER; BROKER_ID_NOT_REGISTERED, there is no such node; VOTER_NOT_FOUND, no such
                controller.
        """
        image = await self.read(lambda image: image)
        if request.is_controller:
            quorum = self._engine.describe()
            if all(each.replica_id != request.process_id for each in (*quorum.voters, *quorum.observers)):
                text = f"the quorum has no controller {request.process_id}"
                raise error_for(ErrorCode.VOTER_NOT_FOUND, text)
            return describe_stop_safety(controller_obstacles(quorum, request.process_id))
        broker_id = BrokerId(request.process_id)
        if broker_id not in image.brokers:
            raise error_for(ErrorCode.BROKER_ID_NOT_REGISTERED, f"node {broker_id} is not registered")
        obstacles = node_obstacles(image, broker_id, self.controller.own)
        if len(image.topics) > _MANY_TOPICS:
            return await asyncio.to_thread(describe_stop_safety, obstacles)
        return describe_stop_safety(obstacles)

    async def lead(self) -> NoReturn:
        """Wait for as long as this controller leads.

        Raises:
            TidelogError: NOT_CONTROLLER if this controller does not lead, or once it no longer does.
        """
        request_id = next(self._request_ids)
        await self._call(request_id, events.LeadershipWatched(request_id))
        raise AssertionError("a watch of the leadership ends with an error")

    async def run(self) -> None:
        """Let time pass until cancelled; ends with the error that makes it impossible to go on."""
        while not await self._wait_failed(self._until_tick_ms() / 1000):
            self._step(events.Tick())
        assert self._failure is not None
        raise self._failure

    def capture(self) -> Iterable[bytes]:
        """Return the committed image in chunks, encoded as they are taken; in any thread."""
        return frame_batches(encode_batches(self.controller.committed.iterate_records()))

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
        self.commits.commit(entries[-1].index, time.monotonic_ns())
        self._step(events.Committed(entries))

    def reader_of(self, entry: CommittedEntry) -> Callable[[], Callable[[], None]] | None:
        """Return what builds the image after an entry, in any thread; None when this leader has done it already."""
        if self.controller.is_active:
            return None
        committed = self.controller.committed

        def read() -> Callable[[], None]:
            with building_lasting_objects():
                image = committed.apply(entry.index, entry.term, decode_batch(entry.payload))
            return lambda: self._step(events.EntryRead(entry, image))

        return read

    def on_voters_change(self, voters: VoterSet) -> None:
        """Tell the nodes which controllers have a vote now."""
        before, after = set(self._feed.voters.ids), set(voters.ids)
        if before != after:
            text = "The voters of the quorum are now controllers %s, were %s"
            self._log.write(text, sorted(after), sorted(before))
        self._feed.step(VotersAnnounced(voters))

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Begin or cease to lead."""
        if leader.leader_id is not None:
            self._log.write("the quorum is led by controller %s in epoch %s", leader.leader_id, leader.epoch)
        if not leader.is_self:
            self.commits.forget()
        self._feed.step(LeaderAnnounced(-1 if leader.leader_id is None else leader.leader_id))
        self._step(events.LeaderChanged(leader))

    def _check_levels(self, image: MetadataImage) -> None:
        """End this controller if it is of an earlier version than the cluster's features need."""
        if image.feature_levels is self._feature_levels:
            return
        self._feature_levels = image.feature_levels
        try:
            check_supported(image.feature_levels)
        except TidelogError as error:
            self._fail(error)

    def _restore(self, image: MetadataImage) -> None:
        self._check_levels(image)
        self._step(events.SnapshotRead(image))
        self._feed.step(Restored(image))
        logger.info("the metadata is that of a snapshot of offset %s, epoch %s", image.offset, image.epoch)

    async def _call(self, request_id: int, event: events.Event) -> Any:
        """Step an event and await the answer to its request."""
        future = self._calls[request_id] = asyncio.get_running_loop().create_future()
        self._step(event)
        try:
            return await future
        except asyncio.CancelledError:
            self._step(events.Cancelled(request_id))
            raise
        finally:
            del self._calls[request_id]

    def _step(self, event: events.Event) -> None:
        """Take an event and execute its commands; an event that happens meanwhile comes after them."""
        self._events.append(event)
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._events:
                for command in self._term.step(self._events.popleft(), self._clock_ms()):
                    self._execute(command)
        except Exception as error:
            self._fail(error)
            raise
        finally:
            self._is_stepping = False

    def _execute(self, command: commands.Command) -> None:
        match command:
            case commands.Handle(request_id, is_long):
                self._handle(request_id, is_long)
            case commands.Encode(records):
                self._step_from_thread(_encoded, records)
            case commands.Propose(payload, epoch):
                self._propose(payload, epoch)
            case commands.Answer(request_id, response):
                if (future := self._calls.get(request_id)) is not None and not future.done():
                    future.set_result(response)
            case commands.Refuse(request_id, error):
                if (future := self._calls.get(request_id)) is not None and not future.done():
                    future.set_exception(error)
            case commands.Publish(entries, image):
                self._publish(entries, image)
            case commands.TermBegan(epoch, offset):
                logger.info("this controller leads the quorum in epoch %s from offset %s on", epoch, offset)
            case commands.BrokersChanged(before, after):
                report_brokers(self._log, before, after)
            case commands.PartitionsChanged(before, after, partitions):
                report_partitions(self._log, before, after, partitions)
            case commands.Later(event):
                asyncio.get_running_loop().call_soon(self._step, event)
            case commands.Fail(error):
                self._fail(error)
            case _:
                assert_never(command)

    def _handle(self, request_id: int, is_long: bool) -> None:
        handle = self._handlers[request_id]
        if is_long:
            self._step_from_thread(_handled, handle, self.controller, self._clock_ms())
        else:
            self._events.append(_handled(handle, self.controller, self._clock_ms()))

    def _step_from_thread(self, work: Callable[..., events.Event], *arguments: object) -> None:
        future = asyncio.get_running_loop().run_in_executor(None, work, *arguments)
        future.add_done_callback(lambda done: self._step(done.result()))

    def _propose(self, payload: bytes, epoch: int) -> None:
        """Propose an entry; its fate is the next event."""
        try:
            index = self._engine.propose(payload, epoch)
            self.commits.propose(index, time.monotonic_ns())
            self._events.appendleft(events.Proposed(index))
        except TidelogError as error:
            self._events.appendleft(events.ProposalFailed(error))

    def _publish(self, entries: Sequence[CommittedEntry], image: MetadataImage) -> None:
        self._check_levels(image)
        self._feed.step(Published(entries, image))
        if image.topic_names is not self._topic_names:
            self._topic_names = image.topic_names
            self._lasting.add(sum(len(entry.payload) for entry in entries) // _BYTES_PER_OBJECT)

    def _until_tick_ms(self) -> int:
        deadline_ms = self._term.next_deadline_ms
        return self._term.tick_ms if deadline_ms is None else max(0, deadline_ms - self._clock_ms())

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._failed.set()

    async def _wait_failed(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._failed.wait()
        except TimeoutError:
            return False


def _handled(handle: Callable[[Controller, int], Result[Any]], controller: Controller, now_ms: int) -> events.Event:
    try:
        return events.Handled(handle(controller, now_ms))
    except Exception as error:  # noqa: BLE001  # its caller gets it
        return events.HandlingFailed(error)


def _encoded(records: Sequence[MetadataRecord]) -> events.Event:
    try:
        return events.Encoded(encode_batch(records))
    except (TypeError, ValueError) as error:
        return events.HandlingFailed(error)

"""The shell of a simulated controller's terms: time, threads and the Raft log are simulated, the product decides."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, assert_never

from random_numbers import mix
from sim.cluster.world import OnAnswer

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_quorum.controller.feed import Published
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state_machine import Controller
from tidelog_quorum.controller.term import commands, events
from tidelog_quorum.controller.term.backlog import WriteLimits
from tidelog_quorum.controller.term.term import ControllerTerm
from tidelog_quorum.metadata.codec import decode_batch, encode_batch
from tidelog_quorum.metadata.features import METADATA_VERSION, SUPPORTED_FEATURES
from tidelog_quorum.metadata.records import FeatureLevelRecord, MetadataRecord
from tidelog_quorum.raft.protocol import CommittedEntry

if TYPE_CHECKING:
    from sim.cluster.controllers import ControllerProcess
    from sim.cluster.metadata_checker import MetadataChecker

_LONG = ("handle_create_topics", "handle_incremental_alter_configs", "handle_alter_partition_reassignments")
"""Requests that may be for many partitions, so that a thread handles them."""
_MAX_THREAD_MS = 20
_SETS_UP = "handle_create_topics"
"""Asked once, before the faults begin."""
_CANCELS_ONE_IN = 100
_LIMITS = (
    WriteLimits(),
    WriteLimits(records_per_slice=1, uncommitted_entries=3),
    WriteLimits(records_per_slice=2, uncommitted_bytes=200),
)
"""Of the product, and so small that slices and a full backlog are the rule."""


class NotController:
    """The answer of a controller that does not lead; ``leader_id`` is who does, as far as it knows."""

    __slots__ = ("leader_id",)

    def __init__(self, leader_id: int | None) -> None:
        self.leader_id = leader_id


class EarlierController(Controller):
    """The controller of a cluster that was created without eligible leader replicas."""

    def bootstrap(self) -> Result[None]:
        if not super().bootstrap().records:
            return Result([], None)
        return Result([FeatureLevelRecord(METADATA_VERSION, SUPPORTED_FEATURES[METADATA_VERSION].max_level)], None)


class Terms:
    """Of one life of a controller."""

    def __init__(
        self, process: ControllerProcess, controller: Controller, checker: MetadataChecker, session_ms: int
    ) -> None:
        self._process = process
        self._checker = checker
        limits = _LIMITS[mix(process.world.seed, 6) % len(_LIMITS)]
        self.core = ControllerTerm(controller, session_ms, process.monotonic_ms(), limits)
        self._requests: dict[int, tuple[str, Any]] = {}
        self._answers: dict[int, OnAnswer] = {}
        self._seen: dict[int, tuple[int, int]] = {}
        self._writing: int | None = None
        self._count = 0
        self._steps = 0
        self._events: deque[events.Event] = deque()
        self._is_stepping = False
        self._wait_for_tick()

    @property
    def controller(self) -> Controller:
        """The state machine that handlers look at."""
        return self.core.controller

    def submit(self, request: tuple[str, Any], answer: OnAnswer) -> None:
        """Handle a request as the leader; ``request`` is a handler's name and what it takes."""
        self._count += 1
        request_id, dice = self._count, self._dice(self._count)
        self._requests[request_id], self._answers[request_id] = request, answer
        self.step(events.Submitted(request_id, request[0] in _LONG and dice % 2 == 0))
        if (dice >> 8) % _CANCELS_ONE_IN == 0 and request[0] != _SETS_UP:
            self._process.after((dice >> 16) % 10, self._cancel, request_id)

    def watch_leadership(self, ended: OnAnswer) -> None:
        """Call ``ended`` when this controller does not lead."""
        self._count += 1
        self._answers[self._count] = ended
        self.step(events.LeadershipWatched(self._count))

    def commit(self, entries: Sequence[CommittedEntry]) -> None:
        """Give committed entries to the core; some of a follower's are read in a thread, as large ones are."""
        batch: list[CommittedEntry] = []
        for entry in entries:
            if self._dice(entry.index) % 8 == 0:
                self._commit_all(batch)
                batch = []
            if self._dice(entry.index) % 8 or self.controller.is_active:
                batch.append(entry)
            else:
                image = self.controller.committed.apply(entry.index, entry.term, decode_batch(entry.payload))
                self.step(events.EntryRead(entry, image))
        self._commit_all(batch)

    def _commit_all(self, entries: Sequence[CommittedEntry]) -> None:
        if entries:
            self.step(events.Committed(entries))

    def step(self, event: events.Event) -> None:
        """Take an event and execute its commands; an event that happens meanwhile comes after them."""
        self._events.append(event)
        if self._is_stepping:
            return
        self._is_stepping = True
        while self._events:
            steps = self.core.step(self._events.popleft(), self._process.monotonic_ms())
            for command in steps:
                self._execute(command)
            self._check(steps)
        self._is_stepping = False

    def _check(self, steps: list[commands.Command]) -> None:
        self._steps += 1
        if not self._steps % self._process.check_every and not any(isinstance(c, commands.Propose) for c in steps):
            self.core.check_invariants()

    def _execute(self, command: commands.Command) -> None:
        match command:
            case commands.Handle(request_id, is_long):
                request = request_id, *self._requests.pop(request_id)
                delay_ms = self._dice(request_id) % _MAX_THREAD_MS
                if is_long and delay_ms:
                    self._process.after(delay_ms, self._handle_in_thread, *request)
                else:
                    self._events.append(self._handled(*request))
            case commands.Encode(records):
                self._process.after(self._dice(len(records)) % 3, self._encode, records)
            case commands.Propose(payload, epoch):
                self._propose(payload, epoch)
            case commands.Answer(request_id, response):
                if request_id in self._seen:
                    self._checker.check_answered(*self._seen[request_id])
                self._answer(request_id, response)
            case commands.Refuse(request_id, error):
                self._refuse(request_id, error)
            case commands.Publish(entries, image):
                self._process.feed.step(Published(entries, image))
            case commands.Later(event):
                self._process.soon(self.step, event)
            case commands.Fail(error):
                raise error
            case commands.TermBegan() | commands.BrokersChanged() | commands.PartitionsChanged():
                pass
            case _:
                assert_never(command)

    def _propose(self, payload: bytes, epoch: int) -> None:
        offset = self._process.propose(payload, epoch)
        if offset is None:
            error = error_for(ErrorCode.NOT_CONTROLLER, "the leadership has ended")
            self._events.appendleft(events.ProposalFailed(error))
            return
        self._events.appendleft(events.Proposed(offset))
        if self._writing is not None:
            self._seen[self._writing] = epoch, offset
            self._writing = None

    def _handled(self, request_id: int, name: str, message: Any) -> events.Event:
        self._seen[request_id] = self.core.leader.epoch, self.controller.latest.offset
        self._checker.check_handled(*self._seen[request_id])
        try:
            result = self.controller.handle(message, self._process.monotonic_ms())
        except TidelogError as error:
            return events.HandlingFailed(error)
        self._process.note_handled(name, message, result)
        self._writing = request_id if result.records or result.preparations else None
        return events.Handled(result)

    def _handle_in_thread(self, request_id: int, name: str, message: Any) -> None:
        self.step(self._handled(request_id, name, message))

    def _encode(self, records: Sequence[MetadataRecord]) -> None:
        self.step(events.Encoded(encode_batch(records)))

    def _answer(self, request_id: int, response: Any) -> None:
        self._requests.pop(request_id, None)
        self._seen.pop(request_id, None)
        answer = self._answers.pop(request_id, None)
        if answer is not None:
            answer(response)

    def _refuse(self, request_id: int, error: Exception) -> None:
        if isinstance(error, TidelogError) and error.code is ErrorCode.NOT_CONTROLLER:
            leader_id = self.core.leader.leader_id
            self._answer(request_id, NotController(None if self.core.leader.is_self else leader_id))
        elif isinstance(error, TidelogError):
            self._answer(request_id, error)
        else:
            raise error

    def _cancel(self, request_id: int) -> None:
        """The connection over which the request came breaks."""
        if request_id in self._answers:
            self._answer(request_id, None)
            self.step(events.Cancelled(request_id))

    def _wait_for_tick(self) -> None:
        deadline_ms = self.core.next_deadline_ms
        now_ms = self._process.monotonic_ms()
        delay_ms = self.core.tick_ms if deadline_ms is None else max(1, deadline_ms - now_ms)
        self._process.after(delay_ms, self._tick)

    def _tick(self) -> None:
        self.step(events.Tick())
        self._wait_for_tick()

    def _dice(self, number: int) -> int:
        return mix(self._process.world.seed, self._process.number, self._process.life, number, 5)

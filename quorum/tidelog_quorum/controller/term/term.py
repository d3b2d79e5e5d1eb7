"""A controller's terms as a state machine: it joins the controller to the Raft log.

State:

- *Following*: another controller leads, or none. It refuses requests with NOT_CONTROLLER.
- *Elected*: this controller leads an epoch. It proposes an entry of its own, the announcement, after the step of the
  engine that elected it.
- *Announcing*: the announcement is in the log. Its commit proves that this controller has seen everything that
  its predecessors answered.
- *Starting*: the announcement is committed. In a new cluster this controller next proposes the initial records.
- *Serving*: this controller handles requests. From *Elected* to *Starting*, requests wait.

Rules:

1. Another leader or epoch ends every state. Requests that wait for a commit then get NOT_CONTROLLER, since
   the entry may still commit.
2. Each request is handled, proposed and applied to the latest image without another request in between.
   A request whose handling or writing outlasts the epoch in which it began gets NOT_CONTROLLER.
3. An answer waits until everything that the request could see is committed, also when it writes nothing.
4. An entry holds at most ``WriteLimits``. A user's operation that needs more is refused whole, before any of it is
   written. A result that may be split becomes several entries; between them other work runs, but no other request.
5. While the backlog of uncommitted entries is full, neither a request nor a slice begins.
6. Requests and ticks run in order of arrival. Between two of them other work runs.
7. A tick that is late, after a pause of this process, gives every broker a full session: the controller missed the
   heartbeats during the pause.
8. A request whose client disconnected is dropped; its written entries stay.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from typing import assert_never

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state_machine import Controller, PeriodicTask
from tidelog_quorum.controller.term import commands, events, states
from tidelog_quorum.controller.term.backlog import Backlog, WriteLimits
from tidelog_quorum.metadata.codec import decode_batch, encode_batch
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import MetadataRecord, NoOpRecord
from tidelog_quorum.raft.protocol import CommittedEntry, LeaderAndEpoch


class ControllerTerm:
    """The state machine of the process, for its whole life. Handlers read ``controller`` and never change it.

    ``tick`` events are due every ``tick_ms``, the next one at ``next_deadline_ms``: None while a tick is in progress.
    """

    def __init__(
        self, controller: Controller, session_timeout_ms: int, now_ms: int, limits: WriteLimits | None = None
    ) -> None:
        self.controller = controller
        self.leader = LeaderAndEpoch(None, 0, False)
        self.state: states.State = states.Following()
        self.tick_ms = min(500, max(20, session_timeout_ms // 20))
        self._late_ms = self.tick_ms + session_timeout_ms // 4
        self._ticked_ms = now_ms
        self.next_deadline_ms: int | None = now_ms + self.tick_ms
        self._limits = limits or WriteLimits()
        self._backlog = Backlog(self._limits)
        self._queue: deque[events.Submitted | events.TaskDue] = deque()
        self._is_yielding = False
        self._job: states.Job | None = None
        self._proposal: states.Proposal | None = None
        self._waiting: list[tuple[int, int, int, object]] = []
        self._waited = 0
        self._watchers: dict[int, None] = {}
        self._commands: list[commands.Command] = []

    def step(self, event: events.Event, now_ms: int) -> list[commands.Command]:
        """Process an event and return the commands in order.

        Raises:
            TidelogError: a committed entry or a snapshot does not fit; this process cannot continue.
        """
        self._commands = []
        match event:
            case events.LeaderChanged(leader):
                self._change_leader(leader, now_ms)
            case events.Committed(entries):
                self._replay(entries, now_ms)
            case events.EntryRead(entry, image):
                before = self.controller.committed
                self.controller.restore(image)
                self._note_applied(entry, before, now_ms)
                self._commands.append(commands.Publish([entry], image))
                self._release(now_ms)
            case events.SnapshotRead(image):
                self.controller.restore(image)
                self._release(now_ms)
            case events.Proposed() | events.ProposalFailed():
                self._end_proposal(event, now_ms)
            case events.AnnouncementDue(epoch):
                if self.state == states.Elected(epoch):
                    record = NoOpRecord()
                    self._propose([record], encode_batch([record]), epoch)
            case events.StartDue(epoch):
                if self.state == states.Starting(epoch):
                    self._start(epoch, now_ms)
            case events.WriteDue():
                assert self._job is not None
                self._write_next(self._job, now_ms)
            case events.QueueDue():
                self._is_yielding = False
                self._begin_jobs(now_ms)
            case events.Submitted() | events.TaskDue():
                self._queue.append(event)
                self._begin_jobs(now_ms)
            case events.Handled() | events.HandlingFailed() | events.Encoded():
                self._take_from_job(event, now_ms)
            case events.CommitAwaited(request_id, offset):
                self._answer_when_committed(request_id, None, offset)
            case events.Cancelled(request_id):
                self._cancel(request_id)
            case events.LeadershipWatched(request_id):
                if self.leader.is_self:
                    self._watchers[request_id] = None
                else:
                    self._refuse(request_id)
            case events.Tick():
                self._tick(now_ms)
            case _:
                assert_never(event)
        return self._commands

    def _change_leader(self, leader: LeaderAndEpoch, now_ms: int) -> None:
        has_served = type(self.state) is states.Serving
        self.leader = leader
        self.state = states.Elected(leader.epoch) if leader.is_self else states.Following()
        self.controller.resign()
        self._backlog.clear()
        for _, _, request_id, _ in sorted(self._waiting, key=lambda w: w[:2]):
            self._refuse(request_id)
        self._waiting.clear()
        if has_served or not leader.is_self:
            for request_id in self._watchers:
                self._refuse(request_id)
            self._watchers.clear()
        if leader.is_self:
            # The command is Later, because the engine is in the middle of a step.
            self._commands.append(commands.Later(events.AnnouncementDue(leader.epoch)))
        self._continue(now_ms)

    def _start(self, epoch: int, now_ms: int) -> None:
        records = self.controller.bootstrap().records
        if records:
            self._propose(records, encode_batch(records), epoch)
        else:
            self._serve(epoch, now_ms)

    def _serve(self, epoch: int, now_ms: int) -> None:
        self.state = states.Serving(epoch)
        self._begin_jobs(now_ms)

    def _replay(self, entries: Sequence[CommittedEntry], now_ms: int) -> None:
        for entry in entries:
            before = self.controller.committed
            changed = self.controller.replay(entry.index, entry.term, _records_of(entry.payload))
            self._note_applied(entry, before, now_ms)
            if changed:
                self._commands.append(commands.PartitionsChanged(before, self.controller.committed, changed))
        self._commands.append(commands.Publish(entries, self.controller.committed))
        self._release(now_ms)

    def _note_applied(self, entry: CommittedEntry, before: MetadataImage, now_ms: int) -> None:
        after = self.controller.committed
        if type(self.state) is states.Serving and before.brokers is not after.brokers:
            self._commands.append(commands.BrokersChanged(before, after))
        if self.state == states.Announcing(entry.term, entry.index):
            self.state = states.Starting(entry.term)
            self.controller.activate(entry.term, now_ms)
            self._commands.append(commands.TermBegan(entry.term, entry.index))
            self._commands.append(commands.Later(events.StartDue(entry.term)))

    def _release(self, now_ms: int) -> None:
        committed = self.controller.committed.offset
        self._backlog.release(committed)
        while self._waiting and self._waiting[0][0] <= committed:
            _, _, request_id, response = heapq.heappop(self._waiting)
            self._commands.append(commands.Answer(request_id, response))
        self._continue(now_ms)

    def _continue(self, now_ms: int) -> None:
        if self._job is not None and self._job.stage is states.Stage.BACKLOG:
            self._write_next(self._job, now_ms)
        self._begin_jobs(now_ms)

    def _begin_jobs(self, now_ms: int) -> None:
        """Begin the first job of the queue if no other is in progress. Refuse jobs that cannot begin."""
        while self._queue and self._job is None and not self._is_yielding:
            if not self._may_begin(self._queue[0]):
                return
            match self._queue.popleft():
                case events.Submitted(request_id) if not self.leader.is_self:
                    self._refuse(request_id)
                case events.Submitted(request_id, is_long):
                    self._job = states.Job(self.leader.epoch, request_id=request_id)
                    self._commands.append(commands.Handle(request_id, is_long))
                case events.TaskDue() if type(self.state) is not states.Serving:
                    self._end_tick(now_ms)
                case events.TaskDue(task, began_ms):
                    self._begin_task(task, began_ms, now_ms)

    def _may_begin(self, first: events.Submitted | events.TaskDue) -> bool:
        """Return True if the job may be handled or refused."""
        if type(self.state) is states.Serving:
            return not self._backlog.is_full
        return isinstance(first, events.TaskDue) or not self.leader.is_self

    def _begin_task(self, task: PeriodicTask, began_ms: int, now_ms: int) -> None:
        result, following = self.controller.tick(task, began_ms)
        job = self._job = states.Job(self.leader.epoch)
        job.following = None if following is None else events.TaskDue(following, began_ms)
        self._write(job, result, now_ms)

    def _take_from_job(self, event: events.Handled | events.HandlingFailed | events.Encoded, now_ms: int) -> None:
        job = self._job
        assert job is not None
        match event:
            case events.Handled(result):
                assert job.stage is states.Stage.HANDLING
                job.response = result.response
                self._write(job, result, now_ms)
            case events.HandlingFailed(error):
                assert job.stage in (states.Stage.HANDLING, states.Stage.ENCODING)
                self._end_job(job, error, now_ms)
            case events.Encoded(payload):
                assert job.stage is states.Stage.ENCODING
                self._take_payload(job, payload, now_ms)

    def _write(self, job: states.Job, result: Result[object], now_ms: int) -> None:
        """Check an atomic entry before any write, so that a refused operation writes nothing."""
        size = self._limits.records_per_slice
        if not result.atomic:
            job.slices.extend(_slices([*result.preparations, *result.records], size))
            self._write_next(job, now_ms)
            return
        job.slices.extend(_slices(result.preparations, size))
        job.entry = result.records
        if (refusal := self._limits.refusal(len(job.entry))) is not None:
            self._end_job(job, refusal, now_ms)
        elif len(job.entry) > size:
            job.stage = states.Stage.ENCODING
            self._commands.append(commands.Encode(job.entry))
        elif (payload := self._encode(job, job.entry, now_ms)) is not None:
            self._take_payload(job, payload, now_ms)

    def _encode(self, job: states.Job, records: Sequence[MetadataRecord], now_ms: int) -> bytes | None:
        """Return the encoded records, or end a job whose handler made invalid records."""
        try:
            return encode_batch(records)
        except (TypeError, ValueError) as error:
            self._end_job(job, error, now_ms)
            return None

    def _take_payload(self, job: states.Job, payload: bytes, now_ms: int) -> None:
        job.payload = payload
        if (refusal := self._limits.refusal(len(job.entry), len(payload))) is not None:
            self._end_job(job, refusal, now_ms)
        else:
            self._write_next(job, now_ms)

    def _write_next(self, job: states.Job, now_ms: int) -> None:
        """Propose the next slice or the entry of a job, or end the job."""
        if job.is_abandoned:
            self._end_job(job, None, now_ms)
        elif self.state != states.Serving(job.epoch):
            self._end_job(job, self._not_controller(), now_ms)
        elif job.slices and self._backlog.is_full:
            job.stage = states.Stage.BACKLOG
        elif job.slices:
            records = job.slices.popleft()
            if (payload := self._encode(job, records, now_ms)) is not None:
                job.stage = states.Stage.PROPOSING_SLICE
                self._propose(records, payload, job.epoch)
        elif job.entry:
            job.stage = states.Stage.PROPOSING_ENTRY
            self._propose(job.entry, job.payload, job.epoch)
        else:
            self._end_job(job, None, now_ms)

    def _propose(self, records: Sequence[MetadataRecord], payload: bytes, epoch: int) -> None:
        assert self._proposal is None
        self._proposal = states.Proposal(self.state, records, len(payload))
        self._commands.append(commands.Propose(payload, epoch))

    def _end_proposal(self, event: events.Proposed | events.ProposalFailed, now_ms: int) -> None:
        proposal, self._proposal = self._proposal, None
        assert proposal is not None
        assert proposal.state == self.state
        if isinstance(event, events.ProposalFailed):
            if type(self.state) is states.Serving:
                assert self._job is not None
                self._end_job(self._job, event.error, now_ms)
            elif event.error.code is not ErrorCode.NOT_CONTROLLER:
                self._commands.append(commands.Fail(event.error))
            return
        if type(self.state) is states.Elected:
            self.state = states.Announcing(self.state.epoch, event.offset)
            return
        assert type(self.state) in (states.Starting, states.Serving)
        self.controller.append(event.offset, self.leader.epoch, proposal.records)
        self._backlog.add(event.offset, proposal.size)
        if type(self.state) is states.Starting:
            self._serve(self.state.epoch, now_ms)
            return
        assert self._job is not None
        if self._job.stage is states.Stage.PROPOSING_SLICE:
            self._job.stage = states.Stage.YIELDING
            self._commands.append(commands.Later(events.WriteDue()))
        else:
            self._end_job(self._job, None, now_ms)

    def _end_job(self, job: states.Job, error: Exception | None, now_ms: int) -> None:
        """Answer a request, now or after its commit, or continue the tick; then begin the next job."""
        self._job = None
        if job.request_id is None:
            self._end_task(job, error, now_ms)
        elif not job.is_abandoned and error is not None:
            self._commands.append(commands.Refuse(job.request_id, error))
        elif not job.is_abandoned:
            self._answer_when_committed(job.request_id, job.response, self.controller.latest.offset)
        if self._queue and not self._is_yielding:
            self._is_yielding = True
            self._commands.append(commands.Later(events.QueueDue()))

    def _end_task(self, job: states.Job, error: Exception | None, now_ms: int) -> None:
        is_over = isinstance(error, TidelogError) and error.code is ErrorCode.NOT_CONTROLLER
        if error is not None and not is_over:
            self._commands.append(commands.Fail(error))
        elif error is None and job.following is not None:
            self._commands.append(commands.Later(job.following))
        else:
            self._end_tick(now_ms)

    def _answer_when_committed(self, request_id: int, response: object, offset: int) -> None:
        if offset <= self.controller.committed.offset:
            self._commands.append(commands.Answer(request_id, response))
        else:
            self._waited += 1
            heapq.heappush(self._waiting, (offset, self._waited, request_id, response))

    def _cancel(self, request_id: int) -> None:
        self._watchers.pop(request_id, None)
        if self._job is not None and self._job.request_id == request_id:
            self._job.is_abandoned = True
        self._queue = deque(q for q in self._queue if not isinstance(q, events.Submitted) or q.request_id != request_id)

    def _tick(self, now_ms: int) -> None:
        if self.next_deadline_ms is None or now_ms < self.next_deadline_ms:
            return
        if now_ms - self._ticked_ms > self._late_ms:
            self.controller.sessions.prolong(now_ms)
        self._ticked_ms, self.next_deadline_ms = now_ms, None
        self._queue.append(events.TaskDue(PeriodicTask.EXPIRE_SESSIONS, now_ms))
        self._begin_jobs(now_ms)

    def _end_tick(self, now_ms: int) -> None:
        self.next_deadline_ms = now_ms + self.tick_ms

    def _refuse(self, request_id: int) -> None:
        self._commands.append(commands.Refuse(request_id, self._not_controller()))

    def _not_controller(self) -> TidelogError:
        leader_id = self.leader.leader_id
        known = "no leader is known" if leader_id is None else f"controller {leader_id} does"
        return error_for(ErrorCode.NOT_CONTROLLER, f"this controller does not lead the quorum; {known}")

    def check_invariants(self) -> None:
        """Assert what holds between any two events."""
        serves, committed = type(self.state) is states.Serving, self.controller.committed.offset
        assert self.leader.is_self == (type(self.state) is not states.Following), (self.leader, self.state)
        assert self.controller.is_active == (type(self.state) in (states.Starting, states.Serving)), self.state
        assert isinstance(self.state, states.Following) or self.state.epoch == self.leader.epoch, (
            self.leader,
            self.state,
        )
        assert all(offset > committed for offset, *_ in self._waiting), "an answer waits for what is committed"
        assert self._proposal is None, "the fate of a proposal is unknown"
        assert not self._queue or self._job is not None or self._is_yielding or not self._may_begin(self._queue[0])
        assert self._job is None or self._job.stage not in (states.Stage.PROPOSING_SLICE, states.Stage.PROPOSING_ENTRY)
        if self._job is not None and self._job.stage is states.Stage.BACKLOG:
            assert serves, "a write waits for room when nothing is written"
            assert self._backlog.is_full, "a write waits, and there is room"
        self._backlog.check_invariants(committed)


def _records_of(payload: bytes) -> Iterator[MetadataRecord]:
    """Yield the records of an entry. The entry is decoded when the first record is read."""
    yield from decode_batch(payload)


def _slices(records: Sequence[MetadataRecord], size: int) -> Iterator[Sequence[MetadataRecord]]:
    return (records[start : start + size] for start in range(0, len(records), size))

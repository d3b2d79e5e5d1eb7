"""The decisions about a consumer's fetches, without I/O or a clock.

Rules:

1. Each record at or after a partition's starting offset is delivered once and in order: the next fetch begins at the
   end of the last answer, and an answer counts only without a seek, pause or assignment in between (generation).
2. Each node has one long poll for all its fetchable partitions. When another partition of the node becomes fetchable,
   the poll is interrupted.
3. Fetching stops while ``queue_bytes`` wait for the application, and resumes at half of that. A partition is not
   fetched while ``queue_messages`` of its messages wait.
4. After transient errors and changes of leader, fetches are retried from the same offset, after a back-off.
   OFFSET_OUT_OF_RANGE triggers ``auto.offset.reset``. Other errors are reported and stop the partition until the next
   seek.
5. The end of a partition is reported once per position.
6. A fetch that takes longer than ``overdue_ms`` triggers metadata requests until it ends. If the metadata names another
   leader for one of its partitions, the poll is interrupted. A paused node thus delays its partitions only until the
   cluster replaces it.
7. After a change of leader or leader epoch, a partition is not fetched until the new leader has told where the epoch of
   the last record ends in its log. If it ends below the position, the log was truncated and reading continues there;
   with ``auto.offset.reset=error`` the consumer reports _LOG_TRUNCATION (KIP-320).
8. If the leader names a replica to read from, the consumer reads from it (KIP-392) until ``preferred_ms`` have passed,
   it returns any error, OFFSET_OUT_OF_RANGE included, it is overdue, or it leaves the metadata. If the metadata does
   not have the replica yet, the metadata is refreshed before the next request to the leader.
9. In a group, a partition assigned without an offset starts at its committed offset, or else by ``auto.offset.reset``.
   The request for the committed offset is retried until it succeeds, also while the group rebalances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import assert_never

from tidelog.consumer.core.events import (
    AskMetadata,
    AssignedPartition,
    Command,
    Deliver,
    Event,
    FetchCommitted,
    Fetched,
    FetchedPartition,
    FetchFailed,
    FetchSpec,
    LookUp,
    LookUpSpec,
    OffsetFound,
    PositionSettings,
    Refused,
    Report,
    RequestFailed,
    Validate,
    Validated,
    ValidationSpec,
)
from tidelog.consumer.core.node_polls import NodePolls
from tidelog.consumer.core.partition import (
    REPORTED,
    CanRead,
    PartitionState,
    end_reached,
    may_pass,
    truncated,
    without_offset,
    without_progress,
)
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.records import summarize_batches

Key = tuple[str, int]
Start = tuple[Key, int | None, int | None]
LeaderOf = Callable[[str, int], tuple[int, int] | None]
"""Returns a partition's leader and leader epoch, or None if unknown."""


class Positions:
    """All assigned partitions. Not thread-safe: the shell holds a lock around each call."""

    def __init__(self, settings: PositionSettings, backoff_ms: Callable[[int], float]) -> None:
        self._settings = settings
        self._backoff_ms = backoff_ms
        self._partitions: dict[Key, PartitionState] = {}
        self._polls = NodePolls()
        self._generation = 0
        self._served = 0
        self._is_full = False
        self._is_held_back = False
        self.queued_bytes = 0

    @property
    def is_full(self) -> bool:
        """True if rule 3 kept the last poll from a fetch."""
        return self._is_full or self._is_held_back

    @property
    def assignment(self) -> list[Key]:
        """The assigned partitions, in the order of assignment."""
        return list(self._partitions)

    def state(self, topic: str, partition: int) -> PartitionState | None:
        """Return the state of a partition, read-only; None if it is not assigned."""
        return self._partitions.get((topic, partition))

    def is_current(self, topic: str, partition: int, generation: int) -> bool:
        """Return True if records fetched in ``generation`` may still be delivered."""
        state = self._partitions.get((topic, partition))
        return state is not None and state.generation == generation

    def assign(self, starts: Iterable[Start]) -> list[Report]:
        """Replace the assignment. A start is (partition, offset, None) or (partition, None, timestamp to look up).

        A start with neither uses the committed offset or, without one, ``auto.offset.reset``.
        """
        self._partitions.clear()
        return self.add(starts)

    def add(self, starts: Iterable[Start]) -> list[Report]:
        """Assign more partitions, or assigned ones at other offsets."""
        reports: list[Report] = []
        for (topic, partition), offset, look_up_ms in starts:
            state = PartitionState(topic, partition, self._next_generation())
            self._partitions[topic, partition] = state
            reports += self._start(state, offset, look_up_ms)
        return reports

    def remove(self, keys: Iterable[Key]) -> None:
        """Remove partitions."""
        for key in keys:
            self._partitions.pop(key, None)

    def seek(self, key: Key, offset: int | None, look_up_ms: int | None) -> list[Report]:
        """Continue at another offset, given as in :meth:`assign`; restart a stopped partition."""
        old = self._partitions[key]
        state = PartitionState(old.topic, old.partition, self._next_generation(), paused=old.paused)
        self._partitions[key] = state
        return self._start(state, offset, look_up_ms)

    def pause(self, key: Key) -> None:
        """Stop fetches and deliveries. Queued records are dropped and fetched again after :meth:`resume`."""
        state = self._partitions[key]
        state.restart(self._next_generation())
        state.paused = True

    def resume(self, key: Key) -> None:
        """Continue at the application's position."""
        self._partitions[key].paused = False

    def consumed(self, topic: str, partition: int, next_offset: int, generation: int | None = None) -> bool:
        """Move the position after a record was returned; return False if its ``generation`` is over."""
        state = self._partitions.get((topic, partition))
        if state is None or generation not in (None, state.generation):
            return False
        state.position, state.consumed = next_offset, True
        return True

    def stop(self, key: Key) -> None:
        """Stop a partition until the next seek, after the application got an error in its records."""
        state = self._partitions[key]
        state.restart(self._next_generation())
        self._halt(state)

    def released(self, size: int) -> None:
        """Release ``size`` bytes of deliveries that were consumed or dropped."""
        self.queued_bytes -= size

    def poll(self, now_ms: float, leader_of: LeaderOf, can_read: CanRead = lambda *_: True) -> list[Command]:
        """Return the due commands: offset searches, validations, fetches, and metadata requests."""
        limit = self._settings.queue_bytes
        self._is_full = self.queued_bytes >= (limit / 2 if self._is_full else limit)
        self._is_held_back = False
        look_ups: list[LookUpSpec] = []
        committed: list[AssignedPartition] = []
        fetches: dict[int, list[tuple[PartitionState, FetchSpec]]] = {}
        validations: dict[int, list[ValidationSpec]] = {}
        unknown: set[str] = set()
        moved: set[int] = set()
        for state in sorted(self._partitions.values(), key=lambda s: s.served_at):
            if state.busy:
                self._watch_fetch(state, now_ms, leader_of, moved, unknown)
                continue
            if state.stopped or state.not_before_ms > now_ms:
                continue
            if state.look_up_ms is not None:
                state.busy = True
                look_ups.append(LookUpSpec(state.topic, state.partition, state.generation, state.look_up_ms))
            elif state.wants_committed:
                state.busy = True
                committed.append(AssignedPartition(state.topic, state.partition, state.generation))
            elif not state.paused and not self._is_full and not self._holds_back(state):
                leader = leader_of(state.topic, state.partition)
                if leader is None or state.fetch_offset is None:
                    unknown.add(state.topic)
                    continue
                state.follow_leader(leader)
                if state.must_validate:
                    validations.setdefault(leader[0], []).append(state.validation(leader[1]))
                elif (node_id := state.read_from(leader[0], now_ms, can_read)) is not None:
                    fetches.setdefault(node_id, []).append((state, state.fetch_spec(leader[1])))
                else:
                    state.not_before_ms = now_ms + self._backoff_ms(1)
                    unknown.add(state.topic)
        commands: list[Command] = [LookUp(look_ups)] if look_ups else []
        commands += [FetchCommitted(committed)] if committed else []
        commands += [Validate(node_id, specs) for node_id, specs in validations.items()]
        commands += [c for node_id in moved for c in self._polls.interrupt(node_id)]
        commands += [c for node_id, wanted in fetches.items() for c in self._polls.begin(node_id, wanted, now_ms)]
        return [*commands, AskMetadata(frozenset(unknown))] if unknown else commands

    def next_timer_ms(self, now_ms: float) -> float | None:
        """Return the time of the next :meth:`poll`; None if only an event can change anything."""
        states = [s for s in self._partitions.values() if not s.stopped]
        waiting = [s.not_before_ms for s in states if not s.busy]
        asked = [s for s in states if s.busy and s.fetch_offset is not None and not s.must_validate]
        overdue = [s.asked_ms + self._settings.overdue_ms for s in asked]
        return min((due for due in (*waiting, *overdue) if due > now_ms), default=None)

    def handle(self, event: Event, now_ms: float) -> Sequence[Command]:
        """Apply an event and return its commands; the caller then polls."""
        match event:
            case Fetched():
                self._polls.end(event.node_id)
                return [c for result in event.results for c in self._take(result, now_ms)]
            case FetchFailed():
                self._polls.end(event.node_id)
                return self._fetch_failed(event, now_ms)
            case Validated():
                return self._validated(event)
            case RequestFailed():
                state = self._current(event.spec)
                return [] if state is None else self._back_off(state, event.error, now_ms)
            case OffsetFound():
                return self._offset_found(event)
            case Refused():
                state = self._partitions.get((event.topic, event.partition))
                return [] if state is None or state.stopped else self._back_off(state, event.error, now_ms)
            case _:
                assert_never(event)

    def check_invariants(self) -> None:
        """Assert the invariants of each partition, and that the queue's size is never negative."""
        assert self.queued_bytes >= 0
        self._polls.check_invariants()
        for key, state in self._partitions.items():
            assert key == (state.topic, state.partition)
            assert state.generation <= self._generation
            state.check_invariants()

    def _holds_back(self, state: PartitionState) -> bool:
        most = self._settings.queue_messages
        is_enough = most is not None and state.waiting_offsets >= most
        self._is_held_back |= is_enough
        return is_enough

    def _next_generation(self) -> int:
        self._generation += 1
        return self._generation

    def _start(self, state: PartitionState, offset: int | None, look_up_ms: int | None) -> list[Report]:
        if offset is not None:
            state.start_at(offset)
        elif look_up_ms is not None:
            state.look_up_ms = look_up_ms
        elif self._settings.has_group:
            state.wants_committed = True
        else:
            return self._reset(state, without_offset(state))
        return []

    def _offset_found(self, event: OffsetFound) -> Sequence[Command]:
        if (state := self._current(event.spec)) is not None:
            state.attempts, state.reported = 0, None
            if event.offset is None:
                return self._reset(state, without_offset(state))
            state.start_at(event.offset, event.leader_epoch)
        return []

    def _watch_fetch(
        self, state: PartitionState, now_ms: float, leader_of: LeaderOf, moved: set[int], unknown: set[str]
    ) -> None:
        if state.fetch_offset is None or state.must_validate or state.asked_ms + self._settings.overdue_ms > now_ms:
            return
        leader = leader_of(state.topic, state.partition)
        if state.preferred_node == state.asked_node:
            state.preferred_node = None
            moved.add(state.asked_node)
            unknown.add(state.topic)
        elif leader is None or leader[0] == state.asked_node:
            unknown.add(state.topic)
        else:
            moved.add(state.asked_node)

    def _current(self, spec: AssignedPartition) -> PartitionState | None:
        state = self._partitions.get((spec.topic, spec.partition))
        if state is None or state.generation != spec.generation:
            return None
        state.busy = False
        return None if state.stopped else state

    def _fetch_failed(self, event: FetchFailed, now_ms: float) -> list[Command]:
        states = [s for s in map(self._current, event.specs) if s is not None]
        if event.error is None:
            return []
        for state in states:
            state.preferred_node = None
        return [c for state in states for c in self._back_off(state, event.error, now_ms)]

    def _take(self, result: FetchedPartition, now_ms: float) -> Sequence[Command]:
        state = self._current(result.spec)
        if state is None:
            return []
        if result.error is not None:
            if not state.is_from_leader:
                return self._read_from_leader(state, result.error, now_ms)
            if result.error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                return self._reset(state, result.error)
            return self._back_off(state, result.error, now_ms, leader_known=result.leader_known)
        state.attempts, state.reported = 0, None
        if result.preferred_node is not None:
            state.preferred_node = result.preferred_node
            state.preferred_until_ms = now_ms + self._settings.preferred_ms
        if not result.is_unchanged:
            state.high_watermark = result.high_watermark
            state.end_offset = result.high_watermark if result.end_offset is None else result.end_offset
            state.log_start_offset = result.log_start_offset
        return [*self._deliver(state, result), *self._report_end(state)]

    def _read_from_leader(self, state: PartitionState, error: TidelogError, now_ms: float) -> Sequence[Command]:
        state.preferred_node = None
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return []
        commands = self._back_off(state, error, now_ms)
        return [*commands, AskMetadata(frozenset([state.topic]))]

    def _validated(self, event: Validated) -> Sequence[Command]:
        state = self._current(event.spec)
        if state is None or state.fetch_offset is None:
            return []
        state.attempts, state.reported, state.must_validate = 0, None, False
        if event.epoch >= 0 and event.end_offset >= state.fetch_offset:
            return []
        error = truncated(state, event)
        if self._settings.reset_timestamp_ms is None:
            return self._report_and_halt(state, error)
        state.restart(self._next_generation())
        if event.epoch < 0:
            return self._reset(state, error)
        state.truncate_to(event.end_offset, event.epoch)
        return []

    def _deliver(self, state: PartitionState, result: FetchedPartition) -> Sequence[Command]:
        if not result.records:
            return []
        assert state.fetch_offset is not None
        offset = state.fetch_offset
        summary = summarize_batches(result.records)
        if summary.next_offset <= offset:
            return self._report_and_halt(state, without_progress(state, len(result.records)))
        state.fetch_offset = summary.next_offset
        state.offset_epoch = summary.leader_epoch
        self._served += 1
        state.served_at = self._served
        self.queued_bytes += len(result.records)
        return [Deliver(state.topic, state.partition, state.generation, offset, result.records, result.aborted)]

    def _report_end(self, state: PartitionState) -> list[Report]:
        at_end = state.fetch_offset is not None and state.fetch_offset >= state.end_offset
        if not (self._settings.report_end and at_end) or state.end_reported_at == state.fetch_offset:
            return []
        assert state.fetch_offset is not None
        state.end_reported_at = state.fetch_offset
        return [self._report(state, end_reached(state, state.fetch_offset))]

    def _reset(self, state: PartitionState, error: TidelogError) -> list[Report]:
        if self._settings.reset_timestamp_ms is None:
            return self._report_and_halt(state, error_for(ErrorCode._AUTO_OFFSET_RESET, error.message))
        state.clear_start()
        state.look_up_ms = self._settings.reset_timestamp_ms
        return []

    def _back_off(
        self, state: PartitionState, error: TidelogError, now_ms: float, *, leader_known: bool = False
    ) -> Sequence[Command]:
        if not may_pass(error):
            return self._report_and_halt(state, error)
        state.attempts += 1
        state.failure = error
        state.not_before_ms = now_ms + (0 if leader_known else self._backoff_ms(state.attempts))
        commands: list[Command] = []
        if error.code.refresh_metadata and not leader_known:
            commands.append(AskMetadata(frozenset([state.topic])))
        if error.code in REPORTED and state.reported is not error.code:
            state.reported = error.code
            commands.append(self._report(state, error))
        return commands

    def _report_and_halt(self, state: PartitionState, error: TidelogError) -> list[Report]:
        report = self._report(state, error)
        self._halt(state)
        return [report]

    def _halt(self, state: PartitionState) -> None:
        state.clear_start()
        state.stopped = True

    def _report(self, state: PartitionState, error: TidelogError) -> Report:
        offset = -1 if state.fetch_offset is None else state.fetch_offset
        return Report(state.topic, state.partition, state.generation, offset, error)

"""A simulated consumer: the product's ``Positions`` and fetch sessions, and a shell that does what ``Fetcher`` does.

Where it reads, from whom, what it does when a leader is new or its position is out of range is the product's.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING

from raft_properties import require
from sim.cluster.clients import ClientProcess, backoff_ms, no_answer
from sim.cluster.serving import Key
from sim.cluster.world import World, rack_of

from tidelog.cluster import EARLIEST_TIMESTAMP
from tidelog.consumer.config import ConsumerConfig
from tidelog.consumer.core.events import (
    AskMetadata,
    Command,
    Deliver,
    Event,
    Fetch,
    Fetched,
    FetchedPartition,
    FetchFailed,
    FetchSpec,
    Interrupt,
    LookUp,
    LookUpSpec,
    OffsetFound,
    PositionSettings,
    Report,
    RequestFailed,
    Validate,
    Validated,
)
from tidelog.consumer.core.positions import Positions
from tidelog.consumer.node_sessions import NodeSession
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.config import parse_config
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import LeaderEpoch
from tidelog_node.handlers.requests.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from sim.cluster.checker import Checker

_WAIT_MS = 100
_CALL_MS = 300
_MOST_BYTES = 600
_SETTINGS = PositionSettings(
    queue_bytes=1 << 30, reset_timestamp_ms=EARLIEST_TIMESTAMP, report_end=False, overdue_ms=250, preferred_ms=600
)


class Consumer(ClientProcess):
    """Reads all partitions from the beginning, from their leaders or from replicas near by."""

    def __init__(
        self,
        world: World,
        number: int,
        clock: tuple[int, int],
        checker: Checker,
        nodes: list[int],
        keys: list[Key],
        from_replicas: bool,
    ) -> None:
        super().__init__(world, number, clock, checker, nodes)
        self._session_config = _config(rack_of(number) if from_replicas else "")
        self._sessions: dict[int, NodeSession] = {}
        self._positions = Positions(_SETTINGS, backoff_ms)
        self._positions.assign([(key, 0, None) for key in keys])
        self._next = dict.fromkeys(keys, 0)
        self._polls: dict[int, tuple[int, Fetch]] = {}
        self._poll_count = self._step_number = 0
        self.soon(self.refresh)

    @property
    def is_done(self) -> bool:
        """Return whether all committed records have been read."""
        return all(self.checker.truth(key).high_watermark <= self._position(key) for key in self._next)

    def describe(self) -> str:
        """Say what has not."""
        return f"consumer {self.number}: " + ", ".join(
            f"{key[0]}-{key[1]} at {self._position(key)} of {self.checker.truth(key).high_watermark}"
            for key in self._next
        )

    def learned(self) -> None:
        self._wake()

    def _position(self, key: Key) -> int:
        state = self._positions.state(*key)
        return -1 if state is None or state.fetch_offset is None else state.fetch_offset

    def _wake(self) -> None:
        self._step_number += 1
        self.soon(self._step, self._step_number)

    def _step(self, number: int) -> None:
        """Look at the positions; ``number`` tells a timer that is not the last one."""
        if number != self._step_number:
            return
        now_ms = self.monotonic_ms()
        self._execute(self._positions.poll(now_ms, lambda *key: self.leader_of(key), self._can_read))
        self._positions.check_invariants()
        timer_ms = self._positions.next_timer_ms(now_ms)
        if timer_ms is not None:
            self.after(max(1, timer_ms - now_ms), self._step, number)

    def _can_read(self, topic: str, index: int, node_id: int) -> bool:
        known = self.leaders.get((topic, index))
        return known is not None and node_id in known[2]

    def _handle(self, events: Iterable[Event]) -> None:
        now_ms = self.monotonic_ms()
        self._execute([c for event in events for c in self._positions.handle(event, now_ms)])
        self._wake()

    def _execute(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Fetch():
                    self._poll(command)
                case Interrupt():
                    self.soon(self._interrupt, *self._polls[command.node_id])
                case LookUp():
                    for look_up in command.specs:
                        self._look_up(look_up)
                case Validate():
                    self._validate(command)
                case AskMetadata():
                    self.refresh()
                case Deliver():
                    self._take(command)
                case Report():
                    self._hear(command)

    def _poll(self, fetch: Fetch) -> None:
        self._poll_count += 1
        number, session = self._poll_count, self._session(fetch.node_id)
        self._polls[fetch.node_id] = number, fetch
        request = session.request(fetch.specs)
        self.checker.note_fetch(request)

        def take(answer: pb.FetchResponse | TidelogError | None) -> None:
            if self._polls.get(fetch.node_id) != (number, fetch):
                return
            del self._polls[fetch.node_id]
            if not isinstance(answer, pb.FetchResponse):
                session.fail()
                error = no_answer(fetch.node_id) if answer is None else answer
                self._handle([FetchFailed(fetch.node_id, fetch.specs, error)])
            elif answer.HasField("error"):
                self._handle([FetchFailed(fetch.node_id, fetch.specs, session.refused(answer.error))])
            else:
                results = {(t.name, p.index): p for t in answer.topics for p in t.partitions}
                is_incremental = session.take(answer.session_id, results.keys())
                found = [self._result(s, results.get((s.topic, s.partition)), is_incremental) for s in fetch.specs]
                self._handle([Fetched(fetch.node_id, found)])

        self.call(self.world.processes[fetch.node_id], "read", ("fetch", request), take, _WAIT_MS + _CALL_MS)

    def _interrupt(self, number: int, fetch: Fetch) -> None:
        """Give up a poll, as a call that is cancelled: what it asked of the session is not known any more."""
        if self._polls.get(fetch.node_id) == (number, fetch):
            del self._polls[fetch.node_id]
            self._session(fetch.node_id).fail()
            self._handle([FetchFailed(fetch.node_id, fetch.specs, None)])

    def _result(
        self, spec: FetchSpec, result: pb.FetchPartitionResult | None, is_incremental: bool
    ) -> FetchedPartition:
        if result is None and is_incremental:
            return FetchedPartition(spec, is_unchanged=True)
        if result is None:
            return FetchedPartition(spec, error=_says_nothing(spec))
        if result.HasField("error"):
            self.checker.count(f"read refused: {ErrorCode.of(result.error.code).name}")
            return FetchedPartition(spec, error=error_for(result.error.code, result.error.message))
        preferred = result.preferred_read_replica if result.HasField("preferred_read_replica") else None
        if preferred is not None:
            self.checker.count("sent to another replica")
        return FetchedPartition(
            spec, result.records, result.high_watermark, result.log_start_offset, preferred_node=preferred
        )

    def _session(self, node_id: int) -> NodeSession:
        return self._sessions.setdefault(node_id, NodeSession(self._session_config))

    def _look_up(self, spec: LookUpSpec) -> None:
        key = spec.topic, spec.partition
        leader = self.leader_of(key)
        if leader is None:
            self.refresh()
            self.soon(self._handle, [RequestFailed(spec, error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"of {key}"))])
            return
        item = ListOffsetsPartition(spec.partition, spec.timestamp_ms, LeaderEpoch(leader[1]))
        request = ListOffsetsRequest((ListOffsetsTopic(spec.topic, (item,)),))

        def take(answer: ListOffsetsResponse | TidelogError | None) -> None:
            if not isinstance(answer, ListOffsetsResponse):
                self._handle([RequestFailed(spec, no_answer(leader[0]) if answer is None else answer)])
                return
            [result] = answer.topics[0].partitions
            if result.error is not None:
                self._handle([RequestFailed(spec, result.error)])
            else:
                self.checker.count("offsets looked up")
                self._handle([OffsetFound(spec, result.offset, result.leader_epoch)])

        self.call(self.world.processes[leader[0]], "read", ("list_offsets", request), take, _CALL_MS)

    def _validate(self, command: Validate) -> None:
        topics = []
        for spec in command.specs:
            leader_epoch = LeaderEpoch(spec.leader_epoch) if spec.leader_epoch >= 0 else None
            item = OffsetForLeaderPartition(spec.partition, LeaderEpoch(spec.offset_epoch), leader_epoch)
            topics.append(OffsetForLeaderTopic(spec.topic, (item,)))
        request = OffsetForLeaderEpochRequest(tuple(topics))

        def take(answer: OffsetForLeaderEpochResponse | TidelogError | None) -> None:
            if not isinstance(answer, OffsetForLeaderEpochResponse):
                error = no_answer(command.node_id) if answer is None else answer
                self._handle([RequestFailed(spec, error) for spec in command.specs])
                return
            self.checker.count("positions validated")
            results = [result for topic in answer.topics for result in topic.partitions]
            events: list[Event] = []
            for spec, result in zip(command.specs, results, strict=True):
                if result.error is not None:
                    events.append(RequestFailed(spec, result.error))
                else:
                    events.append(Validated(spec, result.leader_epoch, result.end_offset))
            self._handle(events)

        node = self.world.processes[command.node_id]
        self.call(node, "read", ("offset_for_leader_epoch", request), take, _CALL_MS)

    def _take(self, command: Deliver) -> None:
        """The application gets what it has asked for, and is done with it at once."""
        key = command.topic, command.partition
        self.checker.clients.check_position(key, self._next[key], command.offset)
        self._next[key] = self.checker.clients.check_consumed(key, command.offset, command.records)
        self._positions.consumed(*key, self._next[key])
        self._positions.released(len(command.records))

    def _hear(self, command: Report) -> None:
        state = self._positions.state(command.topic, command.partition)
        require(state is not None and not state.stopped, "ConsumerStopped", f"{command}")


@functools.cache
def _config(rack: str) -> ConsumerConfig:
    given = {
        "bootstrap.servers": "node:9092",
        "fetch.wait.max.ms": _WAIT_MS,
        "max.partition.fetch.bytes": _MOST_BYTES,
        "client.rack": rack,
    }
    return parse_config(ConsumerConfig, given)


def _says_nothing(spec: FetchSpec) -> TidelogError:
    text = f"the fetch response does not contain {spec.topic}-{spec.partition}"
    return error_for(ErrorCode.NETWORK_EXCEPTION, text)

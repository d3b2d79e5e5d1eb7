"""The transaction coordinators of a simulated broker: the product's shards and queue of markers, and a small shell.

A shard's log survives its leader. A write is committed a while after it was appended. When another broker takes over,
it has all that was committed, and maybe more of what was appended.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_node.shards.events import (
    ClientIdentity,
    RecordsCommitted,
    RecordsWritten,
    RequestReceived,
    Respond,
    TimePassed,
    WriteFailed,
    WriteRecords,
)
from tidelog_node.shards.store import MemoryRecordStore
from tidelog_node.transactions.events import AllocateProducerId, MarkersWritten, ProducerIdAllocated, WriteMarkers
from tidelog_node.transactions.markers import MarkerQueue, MarkersRequest
from tidelog_node.transactions.settings import TransactionSettings
from tidelog_node.transactions.shard import TransactionShard
from tidelog_node.transactions.states import EPOCH_BUMP_VERSION

if TYPE_CHECKING:
    from sim.transactions.brokers import Broker

SETTINGS = TransactionSettings(abort_timed_out_interval_ms=200, transaction_max_timeout_ms=60_000)
_CLIENT = ClientIdentity("simulated", "memory")
_TICK_MS = 5
_MARKERS_TIMEOUT_MS = 150


@dataclass(slots=True)
class StateLog:
    """One partition of __transaction_state. ``appended`` are the writes that are not committed."""

    leader: int
    epoch: int = 1
    store: MemoryRecordStore = field(default_factory=MemoryRecordStore)
    appended: list[WriteRecords] = field(default_factory=list)
    stalled_until_us: int = 0
    """Nothing is committed before: a replica does not follow."""

    def change_leader(self, broker: int, kept: int) -> None:
        """Let another broker lead, with so many of the writes that are not committed."""
        for write in self.appended[:kept]:
            self.store.apply(write.records)
        self.appended = []
        self.leader, self.epoch, self.stalled_until_us = broker, self.epoch + 1, 0


class LedShard:
    """A shard that a broker leads, as far as that broker knows."""

    def __init__(self, broker: Broker, index: int, log: StateLog) -> None:
        self.index = index
        self.epoch = log.epoch
        self._broker = broker
        self._log = log
        self._answers: dict[int, Any] = {}
        self._next_call = 0
        self._core = TransactionShard(SETTINGS, log.store, broker.monotonic_ms())

    @property
    def is_current(self) -> bool:
        """Return whether no other broker has taken over."""
        return (self._log.leader, self._log.epoch) == (self._broker.number, self.epoch)

    def ask(self, request: Any, answer: Any) -> None:
        """Process a client's request."""
        self._next_call += 1
        self._answers[self._next_call] = answer
        self.step(RequestReceived(self._next_call, request, _CLIENT))

    def step(self, event: Any) -> None:
        """Let the core process an event, and execute its commands."""
        broker, events = self._broker, [event]
        while events:
            for command in self._core.step(events.pop(0), broker.monotonic_ms(), broker.wall_ms()):
                events += self._execute(command)
        broker.check(self._core)

    def pass_time(self) -> None:
        """Let the core see the time, if it has a deadline."""
        if self._core.next_deadline_ms <= self._broker.monotonic_ms():
            self.step(TimePassed())

    def _execute(self, command: Any) -> list[Any]:
        broker = self._broker
        match command:
            case WriteRecords() if not self.is_current:
                return [WriteFailed(command.write_id, error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another leads"))]
            case WriteRecords():
                self._log.appended.append(command)
                dice = broker.world.dice
                broker.after(1 + dice.randrange(120 if dice.random() < 0.15 else 12), self._commit, command)
                return [RecordsWritten(command.write_id)]
            case Respond():
                self._answers.pop(command.call_id)(command.response)
            case AllocateProducerId():
                allocated = ProducerIdAllocated(command.transactional_id, broker.world.new_producer_id())
                broker.after(2, self.step, allocated)
            case WriteMarkers():
                broker.markers.add(self.index, self.epoch, command)
        return []

    def _commit(self, command: WriteRecords) -> None:
        """Commit everything up to a write, unless another broker leads: this one then never learns."""
        world = self._broker.world
        if not self.is_current:
            return
        if world.now_us < self._log.stalled_until_us:
            self._broker.after((self._log.stalled_until_us - world.now_us) / 1_000 + 1, self._commit, command)
            return
        while command in self._log.appended:
            write = self._log.appended.pop(0)
            self._log.store.apply(write.records)
            self.step(RecordsCommitted(write.write_id))


class Coordinators:
    """The shards that a broker leads, and its markers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._shards: dict[int, LedShard] = {}
        self.queue = MarkerQueue()
        self._shard_of: dict[int, int] = {}
        self._under_way: dict[int, MarkersRequest] = {}
        broker.after(_TICK_MS, self._tick)

    def add(self, index: int, epoch: int, markers: WriteMarkers) -> None:
        """Have markers written."""
        self._shard_of[self.queue.add(index, epoch, markers)] = index

    def lead(self, index: int, log: StateLog) -> None:
        """Begin to lead a shard."""
        self._shards[index] = LedShard(self._broker, index, log)

    def resign(self, index: int) -> None:
        """Learn that another broker leads a shard."""
        self._shards.pop(index, None)
        self.queue.end_shard(index)

    def ask(self, index: int, request: Any, answer: Any) -> None:
        """Process a request for a shard; None if this broker does not lead it."""
        shard = self._shards.get(index)
        if shard is None:
            answer(None)
        else:
            shard.ask(request, answer)

    def strays(self, index: int) -> list[MarkersRequest]:
        """Return the requests for a shard that are under way, with its markers alone."""
        requests = []
        for request in self._under_way.values():
            items = tuple(item for item in request.transactions if item.markers_id in self._markers_of(index))
            if items:
                requests.append(replace(request, transactions=items))
        return requests

    def _markers_of(self, index: int) -> set[int]:
        return {markers_id for markers_id, shard in self._shard_of.items() if shard == index}

    def _tick(self) -> None:
        for shard in list(self._shards.values()):
            shard.pass_time()
        self._send_markers()
        self._broker.after(_TICK_MS, self._tick)

    def _send_markers(self) -> None:
        broker = self._broker
        self._take_written()
        for request in self.queue.requests(broker.world.leader_of, broker.monotonic_ms()):
            target = broker.world.processes[request.node_id]
            request_id = request.request_id
            self._under_way[request_id] = request
            self._stray(request)

            def answered(errors: Any, request_id: int = request_id) -> None:
                del self._under_way[request_id]
                if errors is None:
                    self.queue.fail(request_id, broker.monotonic_ms())
                else:
                    self.queue.answer(request_id, errors, broker.monotonic_ms())
                self._send_markers()

            broker.call(target, "write_markers", request, answered, _MARKERS_TIMEOUT_MS)
        broker.check(self.queue)

    def _stray(self, request: MarkersRequest) -> None:
        """Let a request arrive once more, if no version of the protocol may be harmed by it."""
        world = self._broker.world
        items = tuple(item for item in request.transactions if item.markers.version >= EPOCH_BUMP_VERSION)
        if items and world.dice.random() < world.share_of_strays:
            world.stray(request.node_id, "write_markers", replace(request, transactions=items))

    def _take_written(self) -> None:
        for index, markers in self.queue.take_written():
            shard = self._shards.get(index)
            if shard is not None:
                shard.step(MarkersWritten(markers.transactional_id, markers.producer))

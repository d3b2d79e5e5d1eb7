"""A shard of the transaction coordinator with a log, a store and a clock in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_node.shards.events import (
    ClientIdentity,
    RecordsCommitted,
    RecordsWritten,
    RequestAbandoned,
    RequestReceived,
    Respond,
    ShardRecord,
    TimePassed,
    WriteFailed,
    WriteRecords,
)
from tidelog_node.shards.store import MemoryRecordStore
from tidelog_node.transactions.events import (
    AllocateProducerId,
    Command,
    Event,
    MarkersWritten,
    ProducerIdAllocated,
    WriteMarkers,
)
from tidelog_node.transactions.record_format import encode_key, encode_value
from tidelog_node.transactions.requests import TransactionRequest, TransactionResponse
from tidelog_node.transactions.settings import TransactionSettings
from tidelog_node.transactions.shard import TransactionShard
from tidelog_node.transactions.states import TransactionMetadata
from tidelog_node.transactions.store import TransactionStore

WALL_MS = 1_700_000_000_000
CLIENT = ClientIdentity("client", "/127.0.0.1")


@dataclass
class TransactionHarness:
    """Executes a shard's commands. Nothing is committed, allocated or marked before the test says so.

    ``markers`` has the markers that the shard has requested, ``answers`` the response to each call.
    """

    settings: TransactionSettings = field(default_factory=TransactionSettings)
    store: MemoryRecordStore = field(default_factory=MemoryRecordStore)
    now_ms: int = 0
    uncommitted: list[WriteRecords] = field(default_factory=list)
    allocations: list[str] = field(default_factory=list)
    markers: list[WriteMarkers] = field(default_factory=list)
    answers: dict[int, TransactionResponse] = field(default_factory=dict)
    refuses_writes: ErrorCode | None = None
    commits_at_once: bool = True
    next_producer_id: int = 100
    _next_call: int = 0

    def __post_init__(self) -> None:
        self.shard = TransactionShard(self.settings, self.store, self.now_ms)

    def call(self, request: TransactionRequest) -> int:
        """Send a request and return its call id."""
        self._next_call += 1
        self._step(RequestReceived(self._next_call, request, CLIENT))
        return self._next_call

    def ask(self, request: TransactionRequest) -> TransactionResponse:
        """Send a request, do everything that it needs, and return the response."""
        call_id = self.call(request)
        self.settle()
        return self.answers[call_id]

    def abandon(self, call_id: int) -> None:
        self._step(RequestAbandoned(call_id))

    def settle(self) -> None:
        """Commit, allocate and mark until nothing is left, and let the shard finish what it does in slices."""
        while self.uncommitted or self.allocations or self.markers or self.shard.next_deadline_ms == 0:
            self.commit()
            self.allocate()
            while self.markers:
                self.mark()
            if self.shard.next_deadline_ms == 0:
                self._step(TimePassed())

    def commit(self, count: int | None = None) -> None:
        """Commit the oldest writes."""
        for _ in range(len(self.uncommitted) if count is None else count):
            write = self.uncommitted.pop(0)
            self.store.apply(write.records)
            self._step(RecordsCommitted(write.write_id))

    def allocate(self) -> None:
        while self.allocations:
            name = self.allocations.pop(0)
            self.next_producer_id += 1
            self._step(ProducerIdAllocated(name, self.next_producer_id))

    def refuse_allocation(self) -> None:
        name = self.allocations.pop(0)
        error = error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no controller answers")
        self._step(ProducerIdAllocated(name, None, error))

    def mark(self, index: int = 0) -> WriteMarkers:
        markers = self.markers.pop(index)
        self._step(MarkersWritten(markers.transactional_id, markers.producer))
        return markers

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self._step(TimePassed())

    def stored(self, transactional_id: str) -> TransactionMetadata | None:
        """Return the committed state of a transactional id."""
        return TransactionStore(self.store).get(transactional_id)

    def store_state(self, transactional_id: str, metadata: TransactionMetadata) -> None:
        """Replace the committed state of a transactional id, as another coordinator would leave it."""
        self.store.apply([ShardRecord(encode_key(transactional_id), encode_value(metadata, self.settings.version))])

    def fail_over(self, *, keeps_uncommitted: int = 0) -> None:
        """Begin a new term with the committed records, and so many of the uncommitted ones."""
        for write in self.uncommitted[:keeps_uncommitted]:
            self.store.apply(write.records)
        self.uncommitted, self.allocations, self.markers = [], [], []
        self.shard = TransactionShard(self.settings, self.store, self.now_ms)

    def _step(self, event: Event) -> None:
        events = [event]
        while events:
            commands = self.shard.step(events.pop(0), self.now_ms, WALL_MS + self.now_ms)
            for command in commands:
                events += self._execute(command)
        self.shard.check_invariants()

    def _execute(self, command: Command) -> list[Event]:
        match command:
            case WriteRecords() if self.refuses_writes is not None:
                return [WriteFailed(command.write_id, error_for(self.refuses_writes, "refused"))]
            case WriteRecords():
                self.uncommitted.append(command)
                return [RecordsWritten(command.write_id)]
            case Respond():
                assert command.call_id not in self.answers
                self.answers[command.call_id] = command.response
            case AllocateProducerId():
                self.allocations.append(command.transactional_id)
            case WriteMarkers():
                stored = self.stored(command.transactional_id)
                assert stored is not None
                assert stored.state.is_prepared, "markers of a transaction whose end is not committed"
                assert stored.producer == command.producer
                self.markers.append(command)
        return []

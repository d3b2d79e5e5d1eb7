"""The transaction coordinator of one partition of __transaction_state, as a pure state machine (KIP-98).

:class:`TransactionShard` processes events and returns commands. Its parts are:

- :mod:`.decisions`: the effect of each request, by the rules of :mod:`.transitions`.
- :mod:`.writes`: the records that it writes, and the markers of prepared transactions. Nothing that depends on a record
  is visible outside before the record is committed.
- :mod:`.calls`: answers and waits. A request waits up to :data:`~.calls.CONCURRENT_WAIT_MS` for the end of the previous
  transaction of the same id, and is then answered with CONCURRENT_TRANSACTIONS. A request whose caller has gone has no
  effect.
- :mod:`~tidelog_node.shards.connections`: requests that the network delivers late have no effect. Only requests before
  transaction version 2 need this.
- :mod:`.listings`: the requests of operators.
- :mod:`.upkeep`: loading, timeouts and expiration.

A shard lives as long as its node leads the partition. It reads transactional ids from the store of committed records on
demand. State that is only in memory, such as waiting requests, is lost with the shard; clients repeat their requests at
the next coordinator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.shards.connections import ConnectionOrder, LateRequestError
from tidelog_node.shards.events import (
    RecordsCommitted,
    RecordsWritten,
    RequestAbandoned,
    RequestReceived,
    TimePassed,
    WriteFailed,
)
from tidelog_node.shards.store import RecordStore
from tidelog_node.transactions import transitions
from tidelog_node.transactions.calls import Calls
from tidelog_node.transactions.decisions import Decision, decide
from tidelog_node.transactions.entries import ActingRequest, Entries, Entry, Waiting
from tidelog_node.transactions.events import (
    AllocateProducerId,
    Command,
    Event,
    MarkersWritten,
    ProducerIdAllocated,
    SettingsChanged,
    TransactionCall,
)
from tidelog_node.transactions.listings import Listings
from tidelog_node.transactions.requests import (
    AddPartitionsRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    refuse,
)
from tidelog_node.transactions.settings import TransactionSettings
from tidelog_node.transactions.states import TransactionMetadata, TransactionState
from tidelog_node.transactions.upkeep import Upkeep
from tidelog_node.transactions.writes import Writes


class TransactionShard:
    """One shard, used on one thread. Times are in ms.

    Waits use ``now_ms``, a clock that never goes back. Records and timeouts use ``wall_ms``, the wall-clock time,
    because they outlive the process.
    """

    def __init__(self, settings: TransactionSettings, store: RecordStore, now_ms: int) -> None:
        """Take over the transactional ids of a store."""
        self._settings = settings
        self._commands: list[Command] = []
        self._entries = Entries(store)
        self._calls = Calls(self._entries, self._commands)
        self._writes = Writes(self._entries, self._calls, self._commands)
        self._listings = Listings(self._entries, self._calls)
        self._upkeep = Upkeep(self._entries, self._writes, settings, now_ms)
        self._connections = ConnectionOrder(now_ms * 1_000)

    @property
    def next_deadline_ms(self) -> int:
        """The time of the next :class:`TimePassed`."""
        if self._listings:
            return 0
        due = (self._upkeep.next_deadline_ms, self._writes.next_deadline_ms, self._calls.next_deadline_ms)
        return min(time_ms for time_ms in due if time_ms is not None)

    def step(self, event: Event, now_ms: int, wall_ms: int) -> list[Command]:
        """Process an event and return the commands in order."""
        self._commands.clear()
        match event:
            case RequestReceived():
                self._receive(event, now_ms, wall_ms)
            case RequestAbandoned():
                self._listings.abandon(event.call_id)
                self._calls.abandon(event.call_id)
            case RecordsWritten():
                self._retry_waiting(self._writes.note_written(event.write_id), wall_ms)
            case RecordsCommitted():
                self._writes.note_committed(event.write_id)
            case WriteFailed():
                self._writes.note_failed(event.write_id, event.error, now_ms)
            case ProducerIdAllocated():
                self._note_allocated(event, wall_ms)
            case MarkersWritten():
                self._writes.complete(event.transactional_id, event.producer, self._settings.version, wall_ms)
                self._entries.drop_unneeded(event.transactional_id)
            case SettingsChanged():
                self._settings = event.settings
                self._upkeep.change_settings(event.settings, now_ms)
            case TimePassed():
                self._pass_time(now_ms, wall_ms)
            case _:
                assert_never(event)
        return list(self._commands)

    def states(self) -> Iterator[TransactionState]:
        """Yield the state of each transactional id in memory: those with an open transaction, and few others."""
        for _, entry in self._entries:
            if entry.metadata is not None:
                yield entry.metadata.state

    def check_invariants(self) -> None:
        """Assert the shard's invariants."""
        self._calls.check_invariants(self._writes.calls(), self._listings.calls(), self._writes.ids())
        self._writes.check_invariants()
        for _, entry in self._entries:
            if entry.metadata is not None:
                _check_metadata(entry.metadata)

    def _receive(self, call: TransactionCall, now_ms: int, wall_ms: int) -> None:
        request = call.request
        self._calls.begin(call.call_id, getattr(request, "transactional_id", ""))
        match request:
            case InitProducerIdRequest() | AddPartitionsRequest() | EndTxnRequest():
                entry = self._entries.get(request.transactional_id)
                waiting = Waiting(call.call_id, request)
                if self._is_late(entry, request):
                    self._calls.answer(call.call_id, refuse(request, LateRequestError.of(*request.producer)))
                elif entry.waiting or entry.is_appending or not self._try(entry, waiting, wall_ms):
                    self._calls.wait(entry, waiting, now_ms)
                self._entries.drop_unneeded(request.transactional_id)
            case DescribeTransactionsRequest():
                self._listings.describe(call.call_id, request)
            case ListTransactionsRequest():
                self._listings.begin(call.call_id, request)
            case _:
                assert_never(request)

    def _is_late(self, entry: Entry, request: ActingRequest) -> bool:
        """Return whether a request may be of an earlier transaction of the same producer and epoch (KAFKA-17754)."""
        if isinstance(request, InitProducerIdRequest):
            return False
        is_current = entry.metadata is not None and entry.metadata.client == request.producer
        return is_current and self._connections.is_late(*request.producer, request.connection_us)

    def _try(self, entry: Entry, waiting: Waiting, wall_ms: int) -> bool:
        """Execute a request. Return False if it must wait."""
        request = waiting.request
        try:
            decision = decide(entry, request, self._settings, wall_ms)
        except TidelogError as error:
            self._calls.answer_after_writes([entry], waiting.call_id, refuse(request, error))
            return True
        if isinstance(decision, Decision):
            return self._execute(entry, waiting, decision)
        if decision is transitions.NEEDS_PRODUCER_ID and not entry.allocates_id:
            entry.allocates_id = True
            self._commands.append(AllocateProducerId(request.transactional_id))
        return False

    def _execute(self, entry: Entry, waiting: Waiting, decision: Decision) -> bool:
        """Apply a decision. Return False if the request must wait for the end of what is written."""
        name, after, response = waiting.request.transactional_id, decision.after, decision.response
        if after is not None and entry.new_producer_id in (after.producer.id, after.next_producer.id):
            entry.new_producer_id = None
        if after is not None and isinstance(response, InitProducerIdResponse):
            self._connections.begin(*after.client)
        if response is None:
            self._writes.begin(name, after, self._settings.version)
            return False
        if after is None:
            self._calls.answer_after_writes([entry], waiting.call_id, response)
        else:
            self._writes.begin(name, after, self._settings.version, waiting, response)
        return True

    def _retry_waiting(self, entry: Entry, wall_ms: int) -> None:
        """Try the waiting requests again, in order, until one must wait or a record is being written."""
        while entry.waiting and not entry.is_appending and self._try(entry, entry.waiting[0], wall_ms):
            entry.waiting.popleft()

    def _note_allocated(self, event: ProducerIdAllocated, wall_ms: int) -> None:
        entry = self._entries.get(event.transactional_id)
        entry.allocates_id = False
        if event.producer_id is None:
            error = event.error or error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no producer id is available")
            self._calls.refuse_waiting(entry, error)
        else:
            entry.new_producer_id = event.producer_id
            self._retry_waiting(entry, wall_ms)
        self._entries.drop_unneeded(event.transactional_id)

    def _pass_time(self, now_ms: int, wall_ms: int) -> None:
        self._upkeep.go_on(self._settings, wall_ms)
        self._listings.go_on(wall_ms)
        self._calls.end_waits(now_ms)
        self._writes.go_on(self._settings.version, now_ms, wall_ms)
        self._upkeep.pass_time(self._settings, now_ms, wall_ms)


def _check_metadata(metadata: TransactionMetadata) -> None:
    state = metadata.state
    assert metadata.producer.id >= 0
    assert metadata.producer.epoch >= 0
    assert not (state.is_idle and metadata.partitions)
    assert not (state.is_idle and metadata.client != metadata.producer)
    assert state is not TransactionState.ONGOING or metadata.started_ms >= 0

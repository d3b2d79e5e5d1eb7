"""The transaction coordinator of one partition of __transaction_state, as a pure state machine (KIP-98).

:class:`TransactionShard` processes events and returns commands. :mod:`.transitions` has the rules of a transactional
id. The shard's own rules are:

- A transition is in force as soon as its record is in the log, because records are committed in order. Its answer, and
  the markers of a prepared transaction, follow when the record is committed. Nothing that depends on a record is
  visible outside before that.
- A request waits up to :data:`CONCURRENT_WAIT_MS` for the end of the previous transaction of the same id, and is then
  answered with CONCURRENT_TRANSACTIONS. A request whose caller has gone has no effect.
- A periodic check fences and aborts a transaction that is open longer than its timeout, unless the transaction takes
  part in an external two-phase commit.
- An idle transactional id without a change for ``transactional.id.expiration.ms`` is removed.

A shard lives as long as its node leads the partition. It reads transactional ids from the store of committed records on
demand, and all of them once, in slices, in order to find open and prepared transactions. State that is only in memory,
such as waiting requests, is lost with the shard; clients repeat their requests at the next coordinator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import assert_never

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.shards.deadlines import Deadlines
from tidelog_node.shards.events import (
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
from tidelog_node.shards.store import RecordStore
from tidelog_node.transactions import transitions
from tidelog_node.transactions.entries import ActingRequest, Entry, Listing, Waiting, Write
from tidelog_node.transactions.events import (
    AllocateProducerId,
    Command,
    Event,
    MarkersWritten,
    ProducerIdAllocated,
    SettingsChanged,
    TransactionCall,
    WriteMarkers,
)
from tidelog_node.transactions.record_format import encode_key, encode_value
from tidelog_node.transactions.requests import (
    AddPartitionsRequest,
    AddPartitionsResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionDescription,
    TransactionListing,
    TransactionResponse,
    refuse,
)
from tidelog_node.transactions.settings import TransactionSettings
from tidelog_node.transactions.states import (
    LEGAL_TRANSITIONS,
    NO_PRODUCER,
    TransactionMetadata,
    TransactionState,
)
from tidelog_node.transactions.store import TransactionStore

CONCURRENT_WAIT_MS = 100
"""The longest wait of a request for the end of the previous transaction; Kafka's brokers retry for as long."""
_RETRY_MS = 100
_SLICE = 100
_SLICE_CHARS = 10_000
"""The characters of the ids that one step compares with a pattern."""
_MAX_WAITING = 100
"""The number of requests that wait for one transactional id."""


class TransactionShard:
    """One shard, used on one thread. Times are in ms.

    Waits use ``now_ms``, a clock that never goes back. Records and timeouts use ``wall_ms``, the wall-clock time,
    because they outlive the process.
    """

    def __init__(self, settings: TransactionSettings, store: RecordStore, now_ms: int) -> None:
        """Take over the transactional ids of a store."""
        self._settings = settings
        self._store = TransactionStore(store)
        self._entries: dict[str, Entry] = {}
        self._writes: dict[int, Write] = {}
        self._answers: dict[int, list[tuple[int, TransactionResponse]]] = {}
        """Answers that follow the commit of another request's write, by the id of that write."""
        self._listings: dict[int, Listing] = {}
        self._open_calls: dict[int, str] = {}
        """The transactional id of each open call, empty for calls without one."""
        self._waits: deque[tuple[int, int]] = deque()
        """The deadlines of waiting calls, with their call ids, in order. Some of the calls may have been answered."""
        self._next_write_id = 1
        self._commands: list[Command] = []
        self._loading: Iterator[str] | None = self._store.ids()
        self._expiring: Iterator[str] | None = None
        self._next_timeouts_ms = now_ms + settings.abort_timed_out_interval_ms
        self._next_expiry_ms = now_ms + settings.remove_expired_interval_ms
        self._retries = Deadlines()
        """The time of the next attempt to record a complete transaction, by transactional id."""

    @property
    def next_deadline_ms(self) -> int:
        """The time of the next :class:`TimePassed`."""
        if self._loading is not None or self._expiring is not None or self._listings:
            return 0
        waits_ms = self._waits[0][0] if self._waits else None
        due = (self._next_timeouts_ms, self._next_expiry_ms, self._retries.next_ms(), waits_ms)
        return min(time_ms for time_ms in due if time_ms is not None)

    def step(self, event: Event, now_ms: int, wall_ms: int) -> list[Command]:
        """Process an event and return the commands in order."""
        self._commands = []
        match event:
            case RequestReceived():
                self._open_calls[event.call_id] = getattr(event.request, "transactional_id", "")
                self._receive(event, now_ms, wall_ms)
            case RequestAbandoned():
                self._abandon(event.call_id)
            case RecordsWritten():
                self._note_written(event.write_id, wall_ms)
            case RecordsCommitted():
                self._note_committed(event.write_id)
            case WriteFailed():
                self._note_failed(event.write_id, event.error, now_ms)
            case ProducerIdAllocated():
                self._note_allocated(event, wall_ms)
            case MarkersWritten():
                self._note_markers(event, wall_ms)
            case SettingsChanged():
                self._change_settings(event.settings, now_ms)
            case TimePassed():
                self._pass_time(now_ms, wall_ms)
            case _:
                assert_never(event)
        return self._commands

    def check_invariants(self) -> None:
        """Assert the shard's invariants."""
        waiting = [w.call_id for entry in self._entries.values() for w in entry.waiting]
        answered = [call_id for answers in self._answers.values() for call_id, _ in answers]
        written = [write.call_id for write in self._writes.values() if write.call_id is not None]
        assert len(waiting) == len(set(waiting))
        assert {*waiting} <= self._open_calls.keys()
        assert self._open_calls.keys() <= {*waiting, *answered, *written, *self._listings}
        assert {*waiting} <= {call_id for _, call_id in self._waits}
        for entry in self._entries.values():
            assert list(entry.open_writes) == sorted(entry.open_writes)
            assert entry.open_writes or not entry.markers_sent or (entry.metadata and entry.metadata.state.is_prepared)
            assert all(write_id in self._writes for write_id in entry.open_writes)
            if entry.metadata is not None:
                _check_metadata(entry.metadata)
        assert self._answers.keys() <= self._writes.keys()

    # Requests

    def _receive(self, call: TransactionCall, now_ms: int, wall_ms: int) -> None:
        request = call.request
        match request:
            case InitProducerIdRequest() | AddPartitionsRequest() | EndTxnRequest():
                entry = self._entry(request.transactional_id)
                waiting = Waiting(call.call_id, request)
                if entry.waiting or entry.is_appending or not self._try(entry, waiting, wall_ms):
                    self._wait(entry, waiting, now_ms)
                self._drop_unneeded(request.transactional_id)
            case DescribeTransactionsRequest():
                found = tuple(self._describe(transactional_id) for transactional_id in request.transactional_ids)
                self._answer_in_order(call.call_id, request.transactional_ids, DescribeTransactionsResponse(found))
            case ListTransactionsRequest():
                self._listings[call.call_id] = Listing(request, self._ids())
            case _:
                assert_never(request)

    def _try(self, entry: Entry, waiting: Waiting, wall_ms: int) -> bool:
        """Execute a request. Return False if it must wait."""
        request = waiting.request
        try:
            hindrance = self._act(entry, waiting.call_id, request, wall_ms)
        except TidelogError as error:
            self._answer_after_writes(entry, waiting.call_id, refuse(request, error))
            return True
        if hindrance is transitions.NEEDS_PRODUCER_ID and not entry.allocates_id:
            entry.allocates_id = True
            self._commands.append(AllocateProducerId(request.transactional_id))
        return hindrance is None

    def _act(self, entry: Entry, call_id: int, request: ActingRequest, wall_ms: int) -> transitions.Hindrance | None:
        match request:
            case InitProducerIdRequest():
                return self._initialize(entry, call_id, request, wall_ms)
            case AddPartitionsRequest():
                return self._add_partitions(entry, call_id, request, wall_ms)
            case EndTxnRequest():
                return self._end(entry, call_id, request, wall_ms)

    def _initialize(
        self, entry: Entry, call_id: int, request: InitProducerIdRequest, wall_ms: int
    ) -> transitions.Hindrance | None:
        self._check_timeout(request)
        current = entry.metadata
        if current is not None and current.state is TransactionState.ONGOING and not request.keep_prepared:
            transitions.check_expected(current, request)
            aborted = transitions.abort_fenced(current, self._settings.version, wall_ms)
            self._write(request.transactional_id, aborted)
            return transitions.IN_PROGRESS
        after = transitions.initialize(current, request, entry.new_producer_id, wall_ms)
        if isinstance(after, transitions.Hindrance):
            return after
        self._use_new_id(entry, after)
        ongoing = after.producer if after.is_taken_over else NO_PRODUCER
        self._write(request.transactional_id, after, call_id, InitProducerIdResponse(after.client, ongoing), request)
        return None

    def _add_partitions(
        self, entry: Entry, call_id: int, request: AddPartitionsRequest, wall_ms: int
    ) -> transitions.Hindrance | None:
        current = _known(entry, request.transactional_id)
        if request.verify_only:
            return self._verify(entry, call_id, request, current)
        after = transitions.add_partitions(
            current, request.transactional_id, request.producer, request.partitions, request.version, wall_ms
        )
        if isinstance(after, transitions.Hindrance):
            return after
        if after is current:
            self._answer_after_writes(entry, call_id, AddPartitionsResponse())
        else:
            self._write(request.transactional_id, after, call_id, AddPartitionsResponse(), request)
        return None

    def _verify(
        self, entry: Entry, call_id: int, request: AddPartitionsRequest, current: TransactionMetadata
    ) -> transitions.Hindrance | None:
        transitions.check_producer(current, request.transactional_id, request.producer)
        if current.state.is_prepared:
            return transitions.IN_PROGRESS
        missing = [p for p in request.partitions if p not in current.partitions]
        errors = {p: _not_added(request.transactional_id, p) for p in missing}
        self._answer_after_writes(entry, call_id, AddPartitionsResponse(errors=errors))
        return None

    def _end(self, entry: Entry, call_id: int, request: EndTxnRequest, wall_ms: int) -> transitions.Hindrance | None:
        current = _known(entry, request.transactional_id)
        after = transitions.end(current, request, entry.new_producer_id, wall_ms)
        if isinstance(after, transitions.Hindrance):
            return after
        self._use_new_id(entry, after)
        response = EndTxnResponse(after.client)
        if after is current:
            self._answer_after_writes(entry, call_id, response)
        else:
            self._write(request.transactional_id, after, call_id, response, request)
        return None

    def _check_timeout(self, request: InitProducerIdRequest) -> None:
        if request.is_two_phase:
            if not self._settings.two_phase_commit_enable:
                text = "transaction.two.phase.commit.enable is false"
                raise error_for(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text)
            return
        limit_ms = self._settings.transaction_max_timeout_ms
        if not 0 < request.timeout_ms <= limit_ms:
            text = (
                f"transaction.timeout.ms {request.timeout_ms} must be from 1 to transaction.max.timeout.ms {limit_ms}"
            )
            raise error_for(ErrorCode.INVALID_TRANSACTION_TIMEOUT, text)

    def _describe(self, transactional_id: str) -> TransactionDescription:
        metadata = self._metadata_of(transactional_id)
        if metadata is not None:
            return TransactionDescription(transactional_id, metadata)
        text = f"there is no transactional id {transactional_id!r}"
        return TransactionDescription(transactional_id, error=error_for(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, text))

    # Waiting and answering

    def _wait(self, entry: Entry, waiting: Waiting, now_ms: int) -> None:
        if len(entry.waiting) >= _MAX_WAITING:
            self._answer(waiting.call_id, refuse(waiting.request, _concurrent(waiting.request.transactional_id)))
            return
        entry.waiting.append(waiting)
        self._waits.append((now_ms + CONCURRENT_WAIT_MS, waiting.call_id))

    def _retry_waiting(self, entry: Entry, wall_ms: int) -> None:
        """Try the waiting requests again, in order, until one must wait or a record is being written."""
        while entry.waiting and not entry.is_appending and self._try(entry, entry.waiting[0], wall_ms):
            entry.waiting.popleft()

    def _answer(self, call_id: int, response: TransactionResponse) -> None:
        if call_id in self._open_calls:
            del self._open_calls[call_id]
            self._commands.append(Respond(call_id, response))

    def _answer_after_writes(self, entry: Entry, call_id: int, response: TransactionResponse) -> None:
        """Send a response once every record that it depends on is committed."""
        if entry.open_writes:
            self._answers.setdefault(entry.open_writes[-1], []).append((call_id, response))
        else:
            self._answer(call_id, response)

    def _answer_in_order(self, call_id: int, ids: tuple[str, ...], response: TransactionResponse) -> None:
        entries = (self._entries.get(transactional_id) for transactional_id in ids)
        last = max((entry.open_writes[-1] for entry in entries if entry and entry.open_writes), default=None)
        if last is None:
            self._answer(call_id, response)
        else:
            self._answers.setdefault(last, []).append((call_id, response))

    def _abandon(self, call_id: int) -> None:
        transactional_id = self._open_calls.pop(call_id, "")
        self._listings.pop(call_id, None)
        self._stop_waiting(transactional_id, call_id)

    def _stop_waiting(self, transactional_id: str, call_id: int) -> Waiting | None:
        entry = self._entries.get(transactional_id)
        found = next((w for w in entry.waiting if w.call_id == call_id), None) if entry is not None else None
        if entry is not None and found is not None:
            entry.waiting.remove(found)
            self._drop_unneeded(transactional_id)
        return found

    # Writes

    def _write(
        self,
        transactional_id: str,
        after: TransactionMetadata | None,
        call_id: int | None = None,
        response: TransactionResponse | None = None,
        request: ActingRequest | None = None,
    ) -> None:
        entry = self._entry(transactional_id)
        write_id, self._next_write_id = self._next_write_id, self._next_write_id + 1
        self._writes[write_id] = Write(transactional_id, after, call_id, response, request)
        value = None if after is None else encode_value(after, self._settings.version)
        self._commands.append(WriteRecords(write_id, (ShardRecord(encode_key(transactional_id), value),)))
        entry.open_writes.append(write_id)
        entry.is_appending = True

    def _note_written(self, write_id: int, wall_ms: int) -> None:
        write = self._writes[write_id]
        entry = self._entry(write.transactional_id)
        before = TransactionState.DEAD if write.metadata is None else write.metadata.state
        assert entry.metadata is None or entry.metadata.state in LEGAL_TRANSITIONS[before]
        entry.metadata = write.metadata
        entry.is_appending = entry.markers_sent = False
        self._retry_waiting(entry, wall_ms)

    def _note_committed(self, write_id: int) -> None:
        write = self._writes.pop(write_id)
        entry = self._entry(write.transactional_id)
        entry.open_writes.remove(write_id)
        if write.call_id is not None and write.response is not None:
            self._answer(write.call_id, write.response)
        for call_id, response in self._answers.pop(write_id, ()):
            self._answer(call_id, response)
        if not entry.open_writes:
            self._send_markers(write.transactional_id, entry)
        self._drop_unneeded(write.transactional_id)

    def _note_failed(self, write_id: int, error: TidelogError, now_ms: int) -> None:
        """Refuse the call of a write that was not appended. The state is unchanged."""
        write = self._writes.pop(write_id)
        entry = self._entry(write.transactional_id)
        entry.open_writes.remove(write_id)
        entry.is_appending = False
        if write.call_id is not None and write.refused is not None:
            self._answer(write.call_id, refuse(write.refused, _write_error(error)))
        for call_id, response in self._answers.pop(write_id, ()):
            self._answer_after_writes(entry, call_id, response)
        while entry.waiting:
            waiting = entry.waiting.popleft()
            self._answer(waiting.call_id, refuse(waiting.request, _write_error(error)))
        if entry.metadata is not None and entry.metadata.state.is_prepared and write.metadata is not None:
            self._retries.set(write.transactional_id, now_ms + _RETRY_MS)
        self._drop_unneeded(write.transactional_id)

    def _send_markers(self, transactional_id: str, entry: Entry) -> None:
        metadata = entry.metadata
        if metadata is None or not metadata.state.is_prepared or entry.markers_sent:
            return
        entry.markers_sent = True
        committed = metadata.state is TransactionState.PREPARE_COMMIT
        self._commands.append(
            WriteMarkers(transactional_id, metadata.producer, committed, metadata.partitions, metadata.client_version)
        )

    def _note_markers(self, event: MarkersWritten, wall_ms: int) -> None:
        self._complete(event.transactional_id, event.producer, wall_ms)
        self._drop_unneeded(event.transactional_id)

    def _complete(self, transactional_id: str, producer: object, wall_ms: int) -> None:
        """Record that a prepared transaction is complete, unless that is done or belongs to an earlier transaction."""
        entry = self._entry(transactional_id)
        metadata = entry.metadata
        if entry.open_writes or metadata is None or not metadata.state.is_prepared or metadata.producer != producer:
            return
        self._write(transactional_id, transitions.complete(metadata, wall_ms))

    def _use_new_id(self, entry: Entry, after: TransactionMetadata) -> None:
        if entry.new_producer_id in (after.producer.id, after.next_producer.id):
            entry.new_producer_id = None

    def _note_allocated(self, event: ProducerIdAllocated, wall_ms: int) -> None:
        entry = self._entry(event.transactional_id)
        entry.allocates_id = False
        if event.producer_id is None:
            error = event.error or error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no producer id is available")
            while entry.waiting:
                waiting = entry.waiting.popleft()
                self._answer(waiting.call_id, refuse(waiting.request, error))
        else:
            entry.new_producer_id = event.producer_id
            self._retry_waiting(entry, wall_ms)
        self._drop_unneeded(event.transactional_id)

    # Time

    def _pass_time(self, now_ms: int, wall_ms: int) -> None:
        self._loading = self._next_slice(self._loading, self._load)
        self._expiring = self._next_slice(self._expiring, lambda name: self._expire(name, wall_ms))
        self._go_on_listing(wall_ms)
        self._end_waits(now_ms)
        for name in self._retries.pop_expired(now_ms):
            metadata = self._entry(name).metadata
            self._complete(name, metadata and metadata.producer, wall_ms)
        if self._next_timeouts_ms <= now_ms:
            self._next_timeouts_ms = now_ms + self._settings.abort_timed_out_interval_ms
            self._abort_timed_out(wall_ms)
        if self._next_expiry_ms <= now_ms:
            self._next_expiry_ms = now_ms + self._settings.remove_expired_interval_ms
            self._expiring = self._ids()

    def _next_slice(self, left: Iterator[str] | None, visit: Callable[[str], None]) -> Iterator[str] | None:
        if left is None:
            return None
        names = list(islice(left, _SLICE))
        for name in names:
            visit(name)
            self._drop_unneeded(name)
        return left if names else None

    def _load(self, transactional_id: str) -> None:
        entry = self._entry(transactional_id)
        if not entry.open_writes:
            self._send_markers(transactional_id, entry)

    def _expire(self, transactional_id: str, wall_ms: int) -> None:
        entry = self._entry(transactional_id)
        metadata = entry.metadata
        if metadata is None or not metadata.state.is_idle or entry.open_writes or entry.waiting:
            return
        if metadata.updated_ms + self._settings.transactional_id_expiration_ms <= wall_ms:
            self._write(transactional_id, None)

    def _abort_timed_out(self, wall_ms: int) -> None:
        for name, entry in list(self._entries.items()):
            ends_ms = None if entry.metadata is None else entry.metadata.times_out_at()
            if entry.metadata is not None and ends_ms is not None and ends_ms <= wall_ms and not entry.open_writes:
                self._write(name, transitions.abort_fenced(entry.metadata, self._settings.version, wall_ms))

    def _end_waits(self, now_ms: int) -> None:
        while self._waits and self._waits[0][0] <= now_ms:
            _, call_id = self._waits.popleft()
            transactional_id = self._open_calls.get(call_id, "")
            waiting = self._stop_waiting(transactional_id, call_id)
            if waiting is not None:
                self._answer(call_id, refuse(waiting.request, _concurrent(transactional_id)))

    def _go_on_listing(self, wall_ms: int) -> None:
        for call_id, listing in list(self._listings.items()):
            names = _slice_of(listing.left)
            pattern = listing.request.pattern
            matching = names if pattern is None else pattern.matching(names)
            listing.found += [line for name in matching if (line := self._line(name, listing.request, wall_ms))]
            if not names:
                del self._listings[call_id]
                self._answer(call_id, ListTransactionsResponse(listing.found))

    def _line(self, name: str, request: ListTransactionsRequest, wall_ms: int) -> TransactionListing | None:
        metadata = self._metadata_of(name)
        if metadata is None or (request.states and metadata.state not in request.states):
            return None
        if request.producer_ids and metadata.producer.id not in request.producer_ids:
            return None
        least_ms = request.running_longer_than_ms
        is_open = metadata.state is TransactionState.ONGOING or metadata.state.is_prepared
        if least_ms >= 0 and not (is_open and wall_ms - metadata.started_ms > least_ms):
            return None
        return TransactionListing(name, metadata.producer.id, metadata.state)

    def _change_settings(self, settings: TransactionSettings, now_ms: int) -> None:
        self._settings = settings
        self._next_timeouts_ms = min(self._next_timeouts_ms, now_ms + settings.abort_timed_out_interval_ms)
        self._next_expiry_ms = min(self._next_expiry_ms, now_ms + settings.remove_expired_interval_ms)

    # Entries

    def _entry(self, transactional_id: str) -> Entry:
        entry = self._entries.get(transactional_id)
        if entry is None:
            entry = self._entries[transactional_id] = Entry(self._store.get(transactional_id))
        return entry

    def _metadata_of(self, transactional_id: str) -> TransactionMetadata | None:
        entry = self._entries.get(transactional_id)
        return self._store.get(transactional_id) if entry is None else entry.metadata

    def _drop_unneeded(self, transactional_id: str) -> None:
        entry = self._entries.get(transactional_id)
        if entry is not None and not entry.is_needed:
            del self._entries[transactional_id]

    def _ids(self) -> Iterator[str]:
        """Yield every transactional id of the store and of memory, each once."""
        in_memory = tuple(self._entries)
        yield from in_memory
        known = frozenset(in_memory)
        yield from (name for name in self._store.ids() if name not in known)


def _slice_of(left: Iterator[str]) -> list[str]:
    """Return the next ids of a listing, at least one if there is one."""
    names: list[str] = []
    chars = 0
    while len(names) < _SLICE and chars < _SLICE_CHARS and (name := next(left, None)) is not None:
        names.append(name)
        chars += len(name)
    return names


def _known(entry: Entry, transactional_id: str) -> TransactionMetadata:
    if entry.metadata is None:
        text = f"transactional id {transactional_id!r} has no producer id"
        raise error_for(ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)
    return entry.metadata


def _not_added(transactional_id: str, partition: tuple[str, int]) -> TidelogError:
    text = f"{partition[0]}-{partition[1]} is not in the transaction of {transactional_id!r}"
    return error_for(ErrorCode.TRANSACTION_ABORTABLE, text)


def _concurrent(transactional_id: str) -> TidelogError:
    text = f"the previous transaction of {transactional_id!r} is still being completed"
    return error_for(ErrorCode.CONCURRENT_TRANSACTIONS, text)


def _write_error(error: TidelogError) -> TidelogError:
    """Return the error that a client of the coordinator gets (TransactionStateManager.appendTransactionToLog)."""
    match error.code:
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR | ErrorCode.FENCED_LEADER_EPOCH:
            return error_for(ErrorCode.NOT_COORDINATOR, error.message)
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode.REQUEST_TIMED_OUT
        ):
            return error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
        case _:
            return error_for(ErrorCode.UNKNOWN_SERVER_ERROR, error.message)


def _check_metadata(metadata: TransactionMetadata) -> None:
    state = metadata.state
    assert metadata.producer.id >= 0
    assert metadata.producer.epoch >= 0
    assert not (state.is_idle and metadata.partitions)
    assert not (state.is_idle and metadata.client != metadata.producer)
    assert state is not TransactionState.ONGOING or metadata.started_ms >= 0

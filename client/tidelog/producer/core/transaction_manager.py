"""The transactions of a producer, without I/O or a clock (KIP-98, KIP-360, KIP-447, KIP-890, KIP-939).

:class:`TransactionManager` decides which request goes to a coordinator next; at most one is in progress. Its states are
those of Kafka's client:

| state | event | next state |
|---|---|---|
| UNINITIALIZED | ``initialize()`` | INITIALIZING |
| INITIALIZING | producer given | READY; PREPARED_TRANSACTION if an open transaction was kept |
| READY | ``begin()`` | IN_TRANSACTION |
| IN_TRANSACTION | ``prepare()``, and all records and offsets are stored | PREPARED_TRANSACTION |
| IN_TRANSACTION, PREPARED_TRANSACTION | ``commit()`` | COMMITTING_TRANSACTION |
| IN_TRANSACTION, PREPARED_TRANSACTION, ABORTABLE_ERROR | ``abort()`` | ABORTING_TRANSACTION |
| COMMITTING_TRANSACTION, ABORTING_TRANSACTION | ended | READY; INITIALIZING if the producer needs another epoch |
| IN_TRANSACTION, COMMITTING_TRANSACTION | a record failed, or an abortable error | ABORTABLE_ERROR |
| all | a fatal error (:mod:`.transaction_errors`) | FATAL_ERROR |

Rules:

1. EndTxn commits only if every record and every offset of the transaction is stored, and none has failed.
2. With transaction version 2, the end of a transaction gives the producer another epoch, leaders add partitions, and
   the group coordinator adds groups. All attempts of the ended transaction have the old epoch, so its producer fences
   them, and an abort need not wait for batches in flight.
3. With an older version, partitions and groups are added before anything is sent to them, and an abort waits for the
   batches in flight. If a request of the transaction has no known outcome, or a batch failed, the producer gets another
   epoch after the end (KIP-360): a request that is still in the network cannot touch the next transaction.
4. A request that failed for a transient reason is repeated until it succeeds. The caller may stop waiting for an
   operation, which continues; the same call then waits for the same operation.
5. Without a sent batch, partition or offset, nothing is sent to end a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

from tidelog.producer.core.accumulator import Accumulator
from tidelog.producer.core.events import Command
from tidelog.producer.core.faults import abortable_error
from tidelog.producer.core.numbering import ProducerIdAndEpoch
from tidelog.producer.core.transaction_errors import (
    Consequence,
    consequence_for,
    consequence_of_failed_batch,
    fatal_of,
    worst_of,
)
from tidelog.producer.core.transaction_operations import STATE_TEXTS, Action, Operation, State, conflict
from tidelog.producer.core.transaction_requests import (
    AddGroup,
    AddPartitions,
    Answered,
    Ask,
    CommitOffsets,
    EndTransaction,
    GroupMember,
    InitProducer,
    OffsetToCommit,
    PreparedTransaction,
    ProducerGiven,
    Request,
    Unanswered,
)
from tidelog.producer.core.transaction_scope import IMPLICIT_VERSION
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

_CONCURRENT_BACKOFF_MS = 20
"""The wait while the markers of the previous transaction are written. The coordinator waits too before it answers."""


class TransactionManager:
    """The transactions of one producer. Not thread-safe: the shell holds the accumulator's lock around each call.

    ``backoff_ms(attempt)`` is the wait after a failure.
    """

    def __init__(self, accumulator: Accumulator, backoff_ms: Callable[[int], float]) -> None:
        assert accumulator.scope is not None
        self._accumulator = accumulator
        self._scope = accumulator.scope
        self._backoff_ms = backoff_ms
        self._state = State.UNINITIALIZED
        self._producer: ProducerIdAndEpoch | None = None
        self._version = 0
        self._prepared: PreparedTransaction | None = None
        self._keeps_prepared = False
        self._error: TidelogError | None = None
        """The error of ABORTABLE_ERROR and FATAL_ERROR."""
        self._operation: Operation | None = None
        """The latest operation whose outcome no caller knows."""
        self._asked: Ask | None = None
        self._next_request_id = 0
        self._failures = 0
        self._not_before_ms = 0.0
        self._is_closed = True
        """No record may be added to the transaction."""
        self._has_begun = False
        """The coordinator may have the open transaction."""
        self._needs_epoch = False
        """An attempt without a known outcome may still be executed; only versions before 2."""
        self._groups: set[str] = set()
        self._repeated: Request | None = None
        """An addition whose outcome is not known yet."""
        self._commands: list[Command] = []

    @property
    def state(self) -> State:
        """The current state."""
        return self._state

    @property
    def fatal_error(self) -> TidelogError | None:
        """The error that ended the producer, if any."""
        return self._error if self._state is State.FATAL_ERROR else None

    def initialize(self, *, keep_prepared: bool = False) -> Operation:
        """Get a producer, which fences all older ones with the transactional id.

        ``keep_prepared`` keeps an open transaction, for :meth:`commit` and :meth:`abort` to end it. Otherwise it is
        aborted.

        Raises:
            TidelogError: _STATE, _CONFLICT, or the fatal error.
        """
        operation = self._resumed(Action.INITIALIZE)
        if operation is not None:
            return operation
        self._check_state(State.UNINITIALIZED, "the producer is initialized already")
        self._state, self._keeps_prepared = State.INITIALIZING, keep_prepared
        return self._started(Operation(Action.INITIALIZE))

    def begin(self) -> None:
        """Begin a transaction.

        Raises:
            TidelogError: _STATE, _CONFLICT, or the fatal error.
        """
        self._check_no_other(None)
        self._check_state(State.READY)
        assert self._producer is not None
        self._operation = self._prepared = None
        self._is_closed = self._has_begun = self._needs_epoch = False
        self._groups.clear()
        self._state = State.IN_TRANSACTION
        self._accumulator.begin_transaction(self._producer, self._version)

    def send_offsets(self, member: GroupMember, offsets: Sequence[OffsetToCommit]) -> Operation:
        """Commit offsets with the transaction.

        Raises:
            TidelogError: _STATE, _CONFLICT, the fatal error, or the error that requires an abort of the transaction.
        """
        wanted = (member, tuple(offsets))
        operation = self._resumed(Action.SEND_OFFSETS)
        if operation is not None and operation.offsets == wanted:
            return operation
        if operation is not None and not operation.is_done:
            raise conflict(Action.SEND_OFFSETS)
        self._check_state(State.IN_TRANSACTION)
        return self._started(Operation(Action.SEND_OFFSETS, wanted))

    def prepare(self) -> Operation:
        """Store all records, and keep the transaction until it is committed or aborted (KIP-939). Raise as
        :meth:`send_offsets`.
        """
        operation = self._resumed(Action.PREPARE)
        if operation is not None:
            return operation
        self._check_state(State.IN_TRANSACTION)
        self._close(State.PREPARED_TRANSACTION)
        return self._started(Operation(Action.PREPARE))

    def commit(self) -> Operation:
        """Commit the transaction when all records are stored. Raise the errors of :meth:`send_offsets`."""
        operation = self._resumed(Action.COMMIT)
        if operation is not None:
            return operation
        if self._state is not State.PREPARED_TRANSACTION:
            self._check_state(State.IN_TRANSACTION)
        self._close(State.COMMITTING_TRANSACTION)
        self._state = State.COMMITTING_TRANSACTION
        return self._started(Operation(Action.COMMIT))

    def abort(self) -> Operation:
        """Abort the transaction, and fail its records without an outcome.

        Raises:
            TidelogError: _STATE, _CONFLICT while a commit is in progress, or the fatal error.
        """
        operation = self._resumed(Action.ABORT)
        if operation is not None:
            return operation
        if self._state not in (State.PREPARED_TRANSACTION, State.ABORTABLE_ERROR):
            self._check_state(State.IN_TRANSACTION)
        self._finish(error_for(ErrorCode._STATE, STATE_TEXTS[State.ABORTING_TRANSACTION]))
        self._close(State.ABORTING_TRANSACTION)
        self._state, self._error = State.ABORTING_TRANSACTION, None
        self._scope.is_sending = False
        if self._version >= IMPLICIT_VERSION:
            self._commands += self._accumulator.purge(in_queue=True, in_flight=True)
        return self._started(Operation(Action.ABORT))

    def complete(self, prepared: PreparedTransaction) -> Operation:
        """Commit the open transaction if it is ``prepared``, otherwise abort it (KIP-939).

        Raise the errors of :meth:`abort`.
        """
        is_same = self._prepared == prepared
        action = Action.COMMIT if is_same else Action.ABORT
        if self._state is not State.PREPARED_TRANSACTION and self._resumed(action) is None:
            self._check_state(State.PREPARED_TRANSACTION, "there is no prepared transaction")
        return self.commit() if is_same else self.abort()

    def acknowledge(self, operation: Operation) -> None:
        """Record that the caller of an operation knows its outcome."""
        if self._operation is operation and operation.is_done:
            self._operation = None

    def give_up(self, operation: Operation) -> None:
        """Record that the caller's time for an operation is over.

        Offsets of a topic that is still unknown fail the transaction, as in librdkafka: the topic may have been
        deleted, and a repeated call would never end.
        """
        error = operation.last_error
        is_unknown = error is not None and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_current = self._operation is operation and not operation.is_done and self._state is State.IN_TRANSACTION
        if operation.action is Action.SEND_OFFSETS and is_unknown and is_current:
            assert error is not None
            self._fail_transaction(error)

    def poll(self, now_ms: float) -> list[Command | Ask]:
        """Return the next request, if one is due, and the records that have failed."""
        self._note_failure()
        if self._state in (State.ABORTABLE_ERROR, State.ABORTING_TRANSACTION):
            # Batches whose attempt has failed in the meantime.
            self._commands += self._accumulator.purge(in_queue=True, in_flight=False)
        found: list[Command | Ask] = []
        if self._asked is None and now_ms >= self._not_before_ms:
            request = self._next_request()
            if request is not None:
                self._asked = Ask(self._next_request_id, request)
                self._next_request_id += 1
                found = [self._asked]
        found[:0], self._commands = self._commands, []
        return found

    def next_timer_ms(self, now_ms: float) -> float | None:
        """Return the time of the next :meth:`poll` after one at ``now_ms``; None if only an event or a settled record
        can change anything.
        """
        return self._not_before_ms if self._asked is None and self._not_before_ms > now_ms else None

    def handle(self, event: Answered | Unanswered, now_ms: float) -> None:
        """Apply the outcome of a request; the caller then polls."""
        asked = self._asked
        if asked is None or asked.request_id != event.request_id:
            return
        self._asked = None
        if isinstance(event, Unanswered):
            self._needs_epoch |= event.is_unknown
            self._fail(asked.request, event.error, now_ms)
        elif isinstance(event.answer, ProducerGiven):
            self._failures = 0
            self._take_producer(asked.request, event.answer)
        elif event.answer.errors:
            self._fail(asked.request, worst_of(event.answer.errors.values()), now_ms)
        else:
            self._failures = 0
            self._note_done(asked.request)

    def check_invariants(self) -> None:
        """Assert that the state matches the accumulator's and the operation's."""
        has_error = self._state in (State.ABORTABLE_ERROR, State.FATAL_ERROR)
        assert has_error == (self._error is not None), self._state
        assert self._scope.refusal is not None or self._state is State.IN_TRANSACTION, self._state
        assert not self._scope.is_sending or self._scope.producer == self._producer
        operation = self._operation
        pending = operation.action if operation is not None and not operation.is_done else None
        if self._state in (State.UNINITIALIZED, State.READY, State.ABORTABLE_ERROR, State.FATAL_ERROR):
            assert pending is None, (self._state, pending)
        if self._state in (State.INITIALIZING, State.COMMITTING_TRANSACTION, State.ABORTING_TRANSACTION):
            assert pending is not None, self._state
        if self._state in (State.READY, State.PREPARED_TRANSACTION):
            assert not self._accumulator.count

    # Calls

    def _resumed(self, action: Action) -> Operation | None:
        self._check_no_other(action)
        operation = self._operation
        return operation if operation is not None and operation.action is action else None

    def _check_no_other(self, action: Action | None) -> None:
        operation = self._operation
        if operation is None or operation.is_done or operation.action is action:
            return
        may_interrupt = action is Action.ABORT and operation.action in (Action.SEND_OFFSETS, Action.PREPARE)
        if not may_interrupt:
            raise conflict(operation.action)

    def _check_state(self, state: State, text: str | None = None) -> None:
        if self._state is state:
            return
        if self._error is not None:
            raise type(self._error)(self._error.error)
        raise error_for(ErrorCode._STATE, text or STATE_TEXTS[self._state])

    def _started(self, operation: Operation) -> Operation:
        self._operation = operation
        self._not_before_ms, self._failures = 0.0, 0
        return operation

    def _finish(self, error: TidelogError | None = None) -> None:
        if self._operation is not None and not self._operation.is_done:
            self._operation.is_done, self._operation.error = True, error

    def _close(self, state: State) -> None:
        """Refuse new records, and send the others without lingering."""
        self._accumulator.refuse_records(error_for(ErrorCode._STATE, STATE_TEXTS[state]))
        if not self._is_closed:
            self._is_closed = True
            self._accumulator.flushing += 1

    # Requests

    def _next_request(self) -> Request | None:
        match self._state:
            case State.INITIALIZING:
                return InitProducer(self._producer, self._keeps_prepared)
            case State.IN_TRANSACTION | State.COMMITTING_TRANSACTION:
                return self._addition() or self._completion()
            case State.ABORTING_TRANSACTION:
                # An addition that may have begun the transaction.
                return self._repeated or self._completion()
            case _:
                return None

    def _addition(self) -> Request | None:
        """Return the next request that adds something to the open transaction."""
        assert self._producer is not None
        if self._scope.wanted:
            return AddPartitions(self._producer, frozenset(self._scope.wanted))
        operation = self._operation
        if operation is None or operation.is_done or operation.offsets is None:
            return None
        member, offsets = operation.offsets
        if self._version < IMPLICIT_VERSION:
            if member.group_id not in self._groups:
                return AddGroup(self._producer, member.group_id)
        else:
            self._has_begun = True
        return CommitOffsets(self._producer, member, offsets, self._version)

    def _completion(self) -> Request | None:
        """Return EndTxn if nothing of the transaction is left to do; complete it here if it has nothing to end."""
        if self._accumulator.count or (self._state is State.IN_TRANSACTION and not self._is_preparing):
            return None
        assert self._producer is not None
        if self._is_preparing:
            self._note_prepared()
            return None
        if self._has_begun or (self._version >= IMPLICIT_VERSION and self._scope.has_sent):
            committed = self._state is State.COMMITTING_TRANSACTION
            return EndTransaction(self._producer, committed, self._version)
        self._end()
        return self._next_request() if self._state is State.INITIALIZING else None

    @property
    def _is_preparing(self) -> bool:
        operation = self._operation
        return operation is not None and not operation.is_done and operation.action is Action.PREPARE

    def _note_prepared(self) -> None:
        assert self._producer is not None
        assert self._operation is not None
        self._state = State.PREPARED_TRANSACTION
        self._stop_sending()
        self._prepared = self._operation.prepared = PreparedTransaction(*self._producer)
        self._has_begun |= self._scope.has_sent
        self._finish()

    # Outcomes

    def _take_producer(self, request: Request, given: ProducerGiven) -> None:
        is_end = isinstance(request, EndTransaction)
        self._producer = given.producer
        if is_end:
            self._end()
            self._version = given.version
            return
        self._version = given.version
        self._keeps_prepared = self._needs_epoch = False
        if given.kept is None:
            self._state = State.READY
        else:
            self._state = State.PREPARED_TRANSACTION
            self._prepared, self._has_begun = PreparedTransaction(*given.kept), True
        self._finish()

    def _end(self) -> None:
        """Leave the transaction, which has ended or never begun."""
        self._stop_sending()
        self._has_begun, self._repeated = False, None
        is_bumped = self._version >= IMPLICIT_VERSION
        if not is_bumped and (self._needs_epoch or self._accumulator.has_gap):
            self._state = State.INITIALIZING
        else:
            self._state = State.READY
            self._finish()

    def _stop_sending(self) -> None:
        if self._scope.producer is not None:
            self._scope.producer, self._scope.is_sending = None, False
            self._accumulator.flushing -= 1
        self._scope.failure = None
        self._accumulator.refuse_records(error_for(ErrorCode._STATE, STATE_TEXTS[State.READY]))

    def _note_done(self, request: Request) -> None:
        self._repeated = None
        match request:
            case AddPartitions():
                self._has_begun = True
                self._scope.enlisted |= request.partitions
                self._scope.wanted -= request.partitions
            case AddGroup():
                self._has_begun = True
                self._groups.add(request.group_id)
            case CommitOffsets():
                operation = self._operation
                if operation is not None and operation.offsets == (request.member, request.offsets):
                    self._finish()
            case InitProducer() | EndTransaction():
                raise AssertionError(f"{request} needs a producer as its answer")
            case _:
                assert_never(request)

    def _fail(self, request: Request, error: TidelogError, now_ms: float) -> None:
        consequence = consequence_for(request, error)
        if consequence is Consequence.RETRY:
            self._failures += 1
            if self._operation is not None:
                self._operation.last_error = error
            is_short = error.code is ErrorCode.CONCURRENT_TRANSACTIONS
            self._not_before_ms = now_ms + (_CONCURRENT_BACKOFF_MS if is_short else self._backoff_ms(self._failures))
            if isinstance(request, AddPartitions | AddGroup):
                self._repeated = request
            return
        self._repeated = None
        is_addition = isinstance(request, AddPartitions | AddGroup | CommitOffsets)
        if consequence is Consequence.ABORT and self._state is State.ABORTING_TRANSACTION and is_addition:
            return
        may_abort = self._state in (State.IN_TRANSACTION, State.COMMITTING_TRANSACTION, State.ABORTABLE_ERROR)
        if consequence is Consequence.ABORT and may_abort and not _is_lost(request, error):
            self._fail_transaction(error)
        else:
            self._die(error)

    def _note_failure(self) -> None:
        """Apply the failure of a record."""
        failure = self._scope.failure
        if failure is None or self._state not in (State.IN_TRANSACTION, State.COMMITTING_TRANSACTION):
            return
        if consequence_of_failed_batch(failure) is Consequence.FATAL:
            self._die(failure)
        else:
            self._fail_transaction(failure)

    def _fail_transaction(self, error: TidelogError) -> None:
        if self._state is State.ABORTABLE_ERROR:
            return
        self._close(State.ABORTABLE_ERROR)
        self._state, self._error = State.ABORTABLE_ERROR, abortable_error(error)
        self._accumulator.refuse_records(self._error)
        self._scope.is_sending = False
        self._finish(self._error)

    def _die(self, error: TidelogError) -> None:
        operation = self._operation
        is_over = self._state is State.INITIALIZING and operation is not None and operation.action is Action.COMMIT
        self._state, self._error = State.FATAL_ERROR, fatal_of(error)
        self._accumulator.refuse_records(self._error)
        self._scope.is_sending = False
        self._commands += self._accumulator.end(self._error)
        # The transaction of a commit that is over is committed; only the producer has failed.
        self._finish(None if is_over else self._error)


def _is_lost(request: Request, error: TidelogError) -> bool:
    """Return whether the coordinator does not know the producer, so that no abort can succeed."""
    return isinstance(request, EndTransaction) and error.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING

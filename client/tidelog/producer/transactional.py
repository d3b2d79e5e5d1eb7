"""The methods of a transactional producer: confluent-kafka's, a context manager, and those of a two-phase commit."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Self, TypeAlias

from tidelog.cluster import ClusterClient, Lifetime
from tidelog.message import TopicPartition
from tidelog.producer.config import ProducerConfig
from tidelog.producer.core.transaction_manager import TransactionManager
from tidelog.producer.core.transaction_operations import Operation, State
from tidelog.producer.core.transaction_requests import GroupMember, OffsetToCommit, PreparedTransaction
from tidelog.producer.reports import DeliveryReports
from tidelog.producer.sender import Sender
from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError, error_for
from tidelog_foundation.transport import call_soon

if TYPE_CHECKING:
    from tidelog.consumer.group import ConsumerGroupMetadata

Start: TypeAlias = Callable[[TransactionManager], Operation]
"""Starts or resumes an operation."""
_OPEN = (State.IN_TRANSACTION, State.ABORTABLE_ERROR)


class TransactionalCalls:
    """The base of :class:`tidelog.Producer`.

    Errors are KafkaExceptions. If ``retriable()``, call the same method again: it waits for the same operation. If
    ``txn_requires_abort()``, call :meth:`abort_transaction` and begin the transaction again. If ``fatal()``, create
    another producer. Any other error means that the call does not fit the producer's state, and changes nothing.
    If a callback raises, the call still waits for its operation. It then raises the operation's error, or the
    callback's exception if the operation has succeeded.

    A ``timeout`` is in seconds; -1 means ``transaction.timeout.ms``, or twice that in :meth:`init_transactions`. The
    calls serve delivery callbacks while they wait.
    """

    _cluster: ClusterClient
    _config: ProducerConfig
    _lifetime: Lifetime
    _lock: threading.RLock
    _manager: TransactionManager | None
    _reports: DeliveryReports
    _sender: Sender
    _wait_for: Callable[[Callable[[], bool], float | None], bool]

    def init_transactions(self, timeout: float = -1, *, keep_prepared: bool = False) -> None:
        """Fence all other producers with the same ``transactional.id``, and end their open transaction.

        Call it once, before all other calls. It aborts the open transaction; with ``keep_prepared``, it keeps the
        transaction for :meth:`complete_transaction` (KIP-939).

        Raises:
            KafkaException: See the class; _NOT_CONFIGURED without ``transactional.id``.
        """
        self._check_keeps_prepared(keep_prepared)
        self._complete(lambda manager: manager.initialize(keep_prepared=keep_prepared), timeout, factor=2)

    def begin_transaction(self) -> None:
        """Begin a transaction. All records that are produced from now on belong to it.

        Raises:
            KafkaException: See the class.
        """
        manager = self._transactions()
        with self._lock:
            self._lifetime.check()
            manager.begin()

    def send_offsets_to_transaction(
        self, positions: Sequence[TopicPartition], group_metadata: ConsumerGroupMetadata, timeout: float = -1
    ) -> None:
        """Commit a consumer's positions with the transaction (KIP-447).

        ``group_metadata`` is the result of ``consumer.consumer_group_metadata()``. The consumer must not commit these
        positions itself: set ``enable.auto.commit`` to false. Positions without an offset are left out.

        Raises:
            KafkaException: See the class. The transaction must be aborted if the consumer is no longer a
                member of its group.
        """
        member, offsets = group_member(group_metadata), offsets_of(positions)
        if offsets:
            self._complete(lambda manager: manager.send_offsets(member, offsets), timeout)
        else:
            self._transactions()

    def commit_transaction(self, timeout: float = -1) -> None:
        """Wait until all records of the transaction are stored, and commit it.

        Raises:
            KafkaException: See the class. The transaction must be aborted if a record was not stored.
        """
        self._complete(TransactionManager.commit, timeout)

    def abort_transaction(self, timeout: float = -1) -> None:
        """Abort the transaction. Unsent records fail with _PURGE_QUEUE; sent ones may fail with _PURGE_INFLIGHT.

        Raises:
            KafkaException: See the class.
        """
        self._complete(TransactionManager.abort, timeout)

    def prepare_transaction(self, timeout: float = -1) -> PreparedTransaction:
        """Wait until all records are stored, and keep the transaction until it is committed or aborted (KIP-939).

        The result identifies the transaction; store it with the other system's decision. The producer, or its successor
        after ``init_transactions(keep_prepared=True)``, then calls :meth:`complete_transaction`.

        Raises:
            KafkaException: See the class; _INVALID_ARG without ``transaction.two.phase.commit.enable``.
        """
        self._check_is_two_phase("prepare_transaction()")
        prepared = self._complete(TransactionManager.prepare, timeout).prepared
        assert prepared is not None
        return prepared

    def complete_transaction(self, state: PreparedTransaction, timeout: float = -1) -> None:
        """Commit the prepared transaction if it is the one that ``state`` identifies, otherwise abort it (KIP-939).

        Raises:
            KafkaException: See the class.
            TypeError: ``state`` is not a PreparedTransaction; text becomes one with PreparedTransaction.parse().
        """
        prepared = prepared_transaction(state)
        self._complete(lambda manager: manager.complete(prepared), timeout)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Self]:
        """Return a context manager that begins a transaction and commits it, or aborts it after an exception.

        ::

            with producer.transaction():
                producer.produce("orders", value=b"...")
                producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())

        Raises:
            KafkaException: see :meth:`begin_transaction` and :meth:`commit_transaction`. If the latter failed, and the
                error is not retriable, the transaction is aborted.
        """
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction()
        except BaseException:
            if self._is_open:
                with contextlib.suppress(TidelogError):
                    self.abort_transaction()
            raise

    def _transactions(self) -> TransactionManager:
        self._lifetime.check()
        if self._manager is None:
            raise error_for(ErrorCode._NOT_CONFIGURED, "transactions need the setting transactional.id")
        return self._manager

    def _check_keeps_prepared(self, keep_prepared: bool) -> None:
        if keep_prepared:
            self._check_is_two_phase("init_transactions(keep_prepared=True)")

    def _check_is_two_phase(self, call: str) -> None:
        if not self._config.transaction_two_phase_commit_enable:
            text = f"{call} needs the setting transaction.two.phase.commit.enable"
            raise error_for(ErrorCode._INVALID_ARG, text)

    @property
    def _is_open(self) -> bool:
        return self._manager is not None and self._manager.state in _OPEN

    def _start(self, start: Start) -> Operation:
        manager = self._transactions()
        with self._lock:
            self._lifetime.check()
            operation = start(manager)
        call_soon(self._sender.wake)
        return operation

    def _complete(self, start: Start, timeout: float, factor: int = 1) -> Operation:
        timeout_s = operation_timeout_s(self._config, timeout, factor)
        operation = self._start(start)
        raised = self._wait_until_done(operation, time.monotonic() + timeout_s)
        if raised is None:
            return self._outcome(operation, timeout_s)
        if not operation.is_done or operation.error is not None:
            try:
                return self._outcome(operation, timeout_s)
            except TidelogError as error:
                raise error from raised
        raised.add_note(f"{operation.action.value} has succeeded; this exception comes from a callback")
        raise raised

    def _wait_until_done(self, operation: Operation, deadline: float) -> Exception | None:
        """Wait for an operation and for the callbacks of the transaction's records.

        Return the first exception of a callback, which must not hide the outcome of the operation.
        """
        first: Exception | None = None
        while True:
            try:
                if self._wait_for(lambda: operation.is_done, max(deadline - time.monotonic(), 0)):
                    self._wait_for(lambda: not self._reports.left, max(deadline - time.monotonic(), 0))
            except Exception as error:  # noqa: BLE001 whatever the application's callbacks raise
                first = first or error
            else:
                return first

    def _outcome(self, operation: Operation, timeout_s: float) -> Operation:
        self._lifetime.check()
        with self._lock:
            assert self._manager is not None
            self._manager.give_up(operation)
            self._manager.acknowledge(operation)
        if not operation.is_done:
            last_error = operation.last_error or self._cluster.failures.latest
            reason = f"; the last error was {last_error}" if last_error is not None else ""
            text = f"{operation.action.value} did not complete in {timeout_s:g} s: call it again{reason}"
            raise TidelogError(KafkaError(ErrorCode._TIMED_OUT, text, retriable=True))
        if operation.error is not None:
            raise type(operation.error)(operation.error.error)
        return operation


def operation_timeout_s(config: ProducerConfig, timeout: float, factor: int = 1) -> float:
    """Return the timeout of a call; -1 means ``factor`` times that of a transaction.

    Raises:
        TypeError: ``timeout`` is not a number.
    """
    if not isinstance(timeout, int | float):
        raise TypeError(f"timeout must be a number of seconds, not {type(timeout).__name__}")
    return config.transaction_timeout_ms / 1000 * factor if timeout < 0 else timeout


def group_member(metadata: ConsumerGroupMetadata) -> GroupMember:
    """Return the member that a consumer's metadata describes.

    Raises:
        TypeError: it is something else.
    """
    try:
        return GroupMember(metadata.group_id, metadata.generation_id, metadata.member_id, metadata.group_instance_id)
    except AttributeError:
        text = f"group_metadata must be the result of consumer_group_metadata(), not {type(metadata).__name__}"
        raise TypeError(text) from None


def prepared_transaction(state: object) -> PreparedTransaction:
    """Return the identity of a prepared transaction unchanged.

    Raises:
        TypeError: it is something else, which would look like another transaction's identity.
    """
    if not isinstance(state, PreparedTransaction):
        raise TypeError(
            f"state must be a PreparedTransaction, not {type(state).__name__}: see PreparedTransaction.parse()"
        )
    return state


def offsets_of(positions: Sequence[TopicPartition]) -> list[OffsetToCommit]:
    """Return the positions that have an offset.

    Raises:
        TypeError: ``positions`` is no list of TopicPartitions.
    """
    if not all(isinstance(position, TopicPartition) for position in positions):
        raise TypeError("positions must be a list of TopicPartition")
    return [
        OffsetToCommit(p.topic, p.partition, p.offset, p.leader_epoch, p.metadata or "")
        for p in positions
        if p.offset >= 0
    ]

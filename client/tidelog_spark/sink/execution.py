"""Execution of the protocol's commands on a cluster. Blocking; one instance serves one task, commit or abort."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from tidelog import AdminClient, Producer
from tidelog.admin import TransactionState
from tidelog.producer import PreparedTransaction
from tidelog_foundation.errors import ConfigError, ErrorCode, TidelogError
from tidelog_spark.sink.journal import Prepared
from tidelog_spark.sink.journal_topic import JournalTopic
from tidelog_spark.sink.options import SinkPlan
from tidelog_spark.sink.protocol import (
    MAX_AT_ONCE,
    Append,
    Begin,
    Command,
    Complete,
    Discard,
    ListOpen,
    ReadState,
    Result,
    TakeOver,
    Write,
)

T = TypeVar("T")
_NOT_PREPARED = PreparedTransaction(-1, -1)
"""The identity of no transaction: completing with it aborts."""
_FENCED = (ErrorCode._FENCED, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
_PREFIX = "tidelog-spark-"


def task_id(sink: str, partition: int, attempt: int) -> str:
    """Return the transactional id of an attempt at a partition of a sink's batch."""
    return f"{_PREFIX}{sink}-{partition}-{attempt}"


class Execution:
    """Executes the commands of one sink.

    ``write`` stores the rows of a task with its producer. The sink of a batch query (``is_single``) has one batch, so
    that all its transactional ids are fenced in the end, and not only those with an open transaction.
    """

    def __init__(
        self, plan: SinkPlan, sink: str, *, is_single: bool, write: Callable[[Producer], None] | None = None
    ) -> None:
        self._plan, self._sink, self._is_single, self._write = plan, sink, is_single, write
        self._journal = JournalTopic(plan, sink)
        self._own: tuple[str, Producer] | None = None
        self._taken: dict[str, Producer] = {}

    def run(self, steps: Generator[Command, Result, T]) -> T:
        """Execute all commands, and return the result.

        Raises:
            TidelogError: the protocol's, or that of a command.
        """
        try:
            command = next(steps)
            while True:
                try:
                    result = self.execute(command)
                except TidelogError as error:
                    command = steps.throw(error)
                else:
                    command = steps.send(result)
        except StopIteration as stop:
            value: T = stop.value
            return value
        finally:
            self._close()

    def execute(self, command: Command) -> Result:
        """Execute one command."""
        match command:
            case ReadState(is_current):
                return self._journal.read(is_current=is_current)
            case Append(state):
                self._journal.append(state)
                return None
            case Begin(transactional_id):
                return self._begin(transactional_id)
            case Write():
                return self._write_rows()
            case Discard():
                self._discard()
                return None
            case ListOpen():
                return self._list_open()
            case TakeOver(transactional_ids):
                self._take_over(transactional_ids)
                return None
            case Complete(committed):
                return self._complete(committed)

    def _begin(self, transactional_id: str) -> bool:
        producer = open_producer(self._plan, transactional_id)
        try:
            producer.begin_transaction()
        except TidelogError as error:
            producer.close()
            if error.code is not ErrorCode._STATE:
                raise
            # The only state after a successful init_transactions() that refuses: a transaction was kept.
            return False
        self._own = transactional_id, producer
        return True

    def _write_rows(self) -> Prepared:
        assert self._own is not None
        assert self._write is not None
        transactional_id, producer = self._own
        self._write(producer)
        prepared = producer.prepare_transaction()
        return Prepared(transactional_id, prepared.producer_id, prepared.epoch)

    def _discard(self) -> None:
        assert self._own is not None
        self._own[1].abort_transaction()

    def _list_open(self) -> tuple[str, ...]:
        states = () if self._is_single else (TransactionState.ONGOING,)
        pattern = re.escape(f"{_PREFIX}{self._sink}-") + ".*"
        with AdminClient(dict(self._plan.client)) as admin:
            found = admin.list_transactions(states=states, transactional_id_pattern=pattern).result()
        if found.errors:
            raise found.errors[0]
        return tuple(sorted(each.transactional_id for each in found.valid))

    def _take_over(self, transactional_ids: tuple[str, ...]) -> None:
        producers = _in_parallel(lambda each: open_producer(self._plan, each), transactional_ids)
        self._taken = dict(zip(transactional_ids, producers, strict=True))

    def _complete(self, committed: tuple[Prepared, ...]) -> bool:
        identities = {each.transactional_id: PreparedTransaction(each.producer_id, each.epoch) for each in committed}

        def complete(transactional_id: str) -> bool:
            identity = identities.get(transactional_id, _NOT_PREPARED)
            return _complete(self._taken[transactional_id], identity)

        are_complete = _in_parallel(complete, tuple(self._taken))
        self._close_taken()
        return all(are_complete)

    def _close(self) -> None:
        if self._own is not None:
            # Aborts the transaction unless it is prepared.
            self._own[1].close()
            self._own = None
        self._close_taken()

    def _close_taken(self) -> None:
        for producer in self._taken.values():
            producer.close()
        self._taken = {}


def open_producer(plan: SinkPlan, transactional_id: str) -> Producer:
    """Return a producer that has fenced the others of its id, and kept their transaction.

    Raises:
        ConfigError: the nodes do not permit two-phase commits.
        KafkaException: as ``init_transactions()``.
    """
    settings: dict[str, Any] = {"transactional.id": transactional_id, "transaction.two.phase.commit.enable": True}
    producer = Producer({**plan.producer, **settings})
    try:
        check_login(producer)
        producer.init_transactions(keep_prepared=True)
    except TidelogError as error:
        producer.close()
        if error.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            raise ConfigError(
                'the option sink.semantics is "exactly-once", which needs transaction.two.phase.commit.enable=true on '
                "all nodes and, with ACLs, the permissions for it: change this, or set the option sink.semantics to "
                f'"at-least-once"; the nodes answer: {error.message}'
            ) from error
        raise
    return producer


def check_login(producer: Producer) -> None:
    """Ask a node for something. A producer would repeat a refused login until its records time out.

    Raises:
        TidelogError: _AUTHENTICATION at once, or no node answers.
    """
    producer.cluster_id()


def _complete(producer: Producer, identity: PreparedTransaction) -> bool:
    try:
        producer.complete_transaction(identity)
    except TidelogError as error:
        if error.code in _FENCED:
            return False
        # Without a kept transaction there is nothing to complete.
        if error.code is not ErrorCode._STATE:
            raise
    return True


def _in_parallel(call: Callable[[str], T], transactional_ids: tuple[str, ...]) -> list[T]:
    with ThreadPoolExecutor(MAX_AT_ONCE) as pool:
        return list(pool.map(call, transactional_ids))

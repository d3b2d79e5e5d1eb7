"""Execution of the protocol's commands on a cluster. Blocking; one instance serves one task, commit or abort."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from tidelog import Producer
from tidelog.admin import TransactionState
from tidelog_foundation.errors import OUTAGES, ErrorCode, TidelogError
from tidelog_spark.sink.clients import shared_admin
from tidelog_spark.sink.journal import Prepared
from tidelog_spark.sink.journal_topic import journal_of
from tidelog_spark.sink.options import SinkPlan
from tidelog_spark.sink.protocol import (
    Append,
    Begin,
    Command,
    Complete,
    Describe,
    Discard,
    ListOpen,
    ReadState,
    Result,
    TakeOver,
    Write,
)
from tidelog_spark.sink.transactions import OwnedTransactions, explained

T = TypeVar("T")
_PREFIX = "tidelog-spark-"
_LIST_TIMEOUT_S = 120
_LIST_ATTEMPT_S = 5
_LIST_BACKOFF_S = 0.2
_TASK = r"-\d+-\d+(\.\d+)?"
"""The end of a task's transactional id, without which the ids of one sink would look like those of another."""


def task_id(sink: str, partition: int, attempt: int) -> str:
    """Return the transactional id of an attempt at a partition of a sink's batch."""
    return f"{_PREFIX}{sink}-{partition}-{attempt}"


def task_pattern(sink: str | None = None) -> str:
    """Return the regular expression of the transactional ids of a sink, or of all sinks."""
    return re.escape(_PREFIX) + ("(?P<sink>.+)" if sink is None else re.escape(sink)) + _TASK


class Execution:
    """Executes the commands of one sink.

    ``write`` stores the rows of a task with its producer. The sink of a batch query (``is_single``) has one batch, so
    that all its transactional ids are fenced in the end, and not only those with an open transaction.
    """

    def __init__(
        self, plan: SinkPlan, sink: str, *, is_single: bool, write: Callable[[Producer], None] | None = None
    ) -> None:
        self._plan, self._sink, self._is_single, self._write = plan, sink, is_single, write
        self._journal = journal_of(plan, sink)
        self._own: tuple[str, Producer] | None = None
        self._transactions = OwnedTransactions(plan)

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
            case Describe(prepared):
                return self._transactions.describe(prepared)
            case TakeOver(transactional_ids):
                return self._transactions.take_over(transactional_ids)
            case Complete(committed, aborted):
                return self._transactions.complete(committed, aborted)

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
        states = () if self._is_single else (TransactionState.ONGOING, TransactionState.EMPTY)
        deadline_s = time.monotonic() + _LIST_TIMEOUT_S
        while True:
            found = shared_admin(self._plan).list_transactions(
                states=states,
                transactional_id_pattern=task_pattern(self._sink),
                request_timeout=_LIST_ATTEMPT_S,
            )
            listed = found.result()
            if not listed.errors:
                return tuple(sorted(each.transactional_id for each in listed.valid))
            error = listed.errors[0]
            # A node that has died remains in the metadata until its session ends; then others coordinate its ids.
            if not (error.code.retriable or error.code in OUTAGES) or time.monotonic() >= deadline_s:
                raise error
            time.sleep(_LIST_BACKOFF_S)

    def _close(self) -> None:
        if self._own is not None:
            # Aborts the transaction unless it is prepared.
            self._own[1].close()
            self._own = None


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
        raise explained(error) from error
    return producer


def check_login(producer: Producer) -> None:
    """Ask a node for something. A producer would repeat a refused login until its records time out.

    Raises:
        TidelogError: _AUTHENTICATION at once, or no node answers.
    """
    producer.cluster_id()

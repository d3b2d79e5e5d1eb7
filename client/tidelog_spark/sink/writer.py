"""The writers that Spark calls: of a batch query, and of each micro-batch of a stream.

Spark pickles a writer to the tasks, which call `write`. The driver calls `commit` or `abort` with the tasks' messages:
in a batch query on the same writer, in a stream on another one, which knows the query only from the messages.
"""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidelog import Producer
from tidelog.cluster.config import ClientConfig
from tidelog_foundation.errors import ConfigError, ErrorCode, error_for
from tidelog_foundation.transport.loop import run_sync
from tidelog_spark.clients import cluster_client
from tidelog_spark.sink.execution import Execution, check_login, task_id
from tidelog_spark.sink.journal import Prepared
from tidelog_spark.sink.options import SinkPlan, check_of_stream
from tidelog_spark.sink.protocol import Attempt, abort_batch, commit_batch, write_task
from tidelog_spark.sink.schema import check_schema
from tidelog_spark.sink.transactions import OwnedTransactions
from tidelog_spark.worker import prepare_worker

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

_TIMEOUT_MS = 60_000
_CHECKED_ID = "tidelog-spark-check"
_checked: set[ClientConfig] = set()
"""The clients of clusters that have permitted two-phase commits to this process."""


@dataclass
class SinkMessage(WriterCommitMessage):
    """The result of one task. ``prepared`` is None for a task without rows, and if the batch is committed already."""

    attempt: Attempt | None = None
    prepared: Prepared | None = None
    is_repeated: bool = False


class _Writer:
    """The part common to both writers."""

    _is_single: bool

    def __init__(self, plan: SinkPlan, schema: StructType) -> None:
        """Check that the rows can be written.

        Raises:
            ConfigError: the columns do not fit.
            TidelogError: the topic does not exist, or no node answers.
        """
        check_schema(schema, plan.options.topic)
        if plan.options.topic is not None:
            _check_topic(plan, plan.options.topic)
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkMessage:
        """Write the rows of one task.

        Raises:
            TidelogError: the rows were not stored, or another run of the query owns the sink.
        """
        # Arrow is loaded by tasks alone: Spark plans and commits each micro-batch in new processes.
        from tidelog_spark.sink.rows import tables_of

        prepare_worker()
        tables = tables_of(iterator)
        first = next(tables, None)
        if first is None:
            return SinkMessage()
        rows = chain((first,), tables)
        if not self._plan.options.is_exactly_once:
            with Producer(self._plan.producer) as producer:
                check_login(producer)
                self._produce(producer, rows)
            return SinkMessage()
        return self._write_once(self._attempt(), rows)

    def _write_once(self, attempt: Attempt, rows: Iterator[pa.Table]) -> SinkMessage:
        context = _task()
        own_id = task_id(attempt.sink, context.partitionId(), context.attemptNumber())
        execution = self._execution(attempt.sink, write=lambda producer: self._produce(producer, rows))
        prepared = execution.run(write_task(attempt, own_id))
        if prepared is None:
            # Spark's side waits until all rows are read.
            for _ in rows:
                pass
        return SinkMessage(attempt, prepared, is_repeated=prepared is None)

    def _produce(self, producer: Producer, rows: Iterator[pa.Table]) -> None:
        from tidelog_spark.sink.rows import produce_rows

        for table in rows:
            produce_rows(producer, self._plan.options.topic, table)

    def _attempt(self) -> Attempt:
        raise NotImplementedError

    def _commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        found = [message for message in messages if isinstance(message, SinkMessage)]
        attempt = next((each.attempt for each in found if each.attempt is not None), None)
        # Without rows there is nothing to commit, nor to repeat.
        if attempt is None:
            return
        if any(each.is_repeated for each in found):
            logger.warning("Sink %s has committed batch %d before; its rows are dropped", attempt.sink, attempt.batch)
        prepared = tuple(each.prepared for each in found if each.prepared is not None)
        completion = self._execution(attempt.sink).run(commit_batch(attempt, prepared))
        if completion.ended:
            logger.warning(
                "Batch %d of sink %s may lack rows: these transactions of it are not known to be committed: %s",
                *(attempt.batch, attempt.sink, ", ".join(completion.ended)),
            )

    def _abort(self, attempt: Attempt | None) -> None:
        if attempt is not None:
            self._execution(attempt.sink).run(abort_batch(attempt))

    def _execution(self, sink: str, write: Callable[[Producer], None] | None = None) -> Execution:
        return Execution(self._plan, sink, is_single=self._is_single, write=write)


class TidelogBatchWriter(_Writer, DataSourceArrowWriter):
    """Writes the result of one batch query. Spark pickles it to the tasks and to the process that commits.

    The sink is the query's own, or the application's of ``txnAppId``, whose batches are its writes.
    """

    def __init__(self, plan: SinkPlan, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError("the tidelog sink only appends: use the mode append")
        super().__init__(plan, schema)
        self._run = uuid.uuid4().hex
        application = plan.options.application_sink
        self._is_single = application is None
        self._sink = application or f"batch:{self._run}"
        if plan.options.is_exactly_once:
            check_permits_two_phase_commits(plan)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the rows of all tasks visible."""
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Discard the rows of all tasks, which at least once cannot."""
        self._abort(self._attempt() if self._plan.options.is_exactly_once else None)

    def _attempt(self) -> Attempt:
        return Attempt(self._sink, self._run, self._plan.options.txn_version or 0, is_in_order=self._is_single)


class TidelogStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query. Spark builds one to plan each batch, and another to commit it.

    ``overwrite`` means the output mode complete, whose whole result is appended each time, as Spark's Kafka sink does.
    """

    _is_single = False

    def __init__(self, plan: SinkPlan, schema: StructType, overwrite: bool) -> None:
        check_of_stream(plan.options)
        if _COMMITTING_WORKER in sys.modules:
            # The topic may be gone by now, but the transactions of its batch must end.
            self._plan = plan
            return
        super().__init__(plan, schema)
        if plan.options.is_exactly_once:
            check_permits_two_phase_commits(plan)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Make the rows of all tasks visible, unless an earlier commit of the batch has done so with its own."""
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Discard the rows of all tasks.

        Only tasks that were successful tell the query. If there was none, the next run discards the rows.
        """
        found = (message.attempt for message in messages if isinstance(message, SinkMessage))
        self._abort(next((attempt for attempt in found if attempt is not None), None))

    def _attempt(self) -> Attempt:
        context = _task()
        sink, run, batch = map(context.getLocalProperty, _QUERY_PROPERTIES)
        if sink is None or run is None or batch is None:
            text = f"this Spark does not tell its tasks {', '.join(_QUERY_PROPERTIES)}, which exactly-once needs"
            raise error_for(ErrorCode._NOT_IMPLEMENTED, text)
        return Attempt(sink, run, int(batch))


_COMMITTING_WORKER = "pyspark.sql.worker.python_streaming_sink_runner"
"""The module of the processes in which Spark only commits or aborts micro-batches."""
_QUERY_PROPERTIES = ("sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId")
"""Spark's properties of a task for the query, which its checkpoint keeps, this run of it, and the batch."""


def _task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "only a task of Spark writes"
    return context


def _check_topic(plan: SinkPlan, topic: str) -> None:
    """Check that a topic exists, before tasks wait for it in vain; nodes that create topics by themselves create it."""
    client = cluster_client(plan.client_config)
    known = client.metadata.topics.get(topic)
    if known is None or known.error is not None:
        run_sync(client.refresh([topic], timeout_ms=_TIMEOUT_MS, allow_auto_topic_creation=True))
        run_sync(client.topic(topic, timeout_ms=_TIMEOUT_MS))


def check_permits_two_phase_commits(plan: SinkPlan) -> None:
    """Check once per process that the cluster permits transactions without a timeout.

    Raises:
        ConfigError: it does not.
        KafkaException: no coordinator answers.
    """
    if plan.client_config not in _checked:
        OwnedTransactions(plan).take_over((_CHECKED_ID,))
        _checked.add(plan.client_config)

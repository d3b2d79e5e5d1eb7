"""`DeadLetterTopic`: the failed records of a sink, in a topic (KIP-298).

The dead letters of a batch are one write of an application (docs/decisions/0032), numbered like the batch. After a
crash, the same batch comes again, and the journal drops a write that it has, so each dead letter is there once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as sql

from tidelog_connect.errors import ErrorSettings
from tidelog_connect.records import HEADERS_TYPE
from tidelog_connect.server.settings import WorkerSettings
from tidelog_connect.server.topic_storage import TopicStorage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PARTITIONS = 1
_PREFIX = "__connect.errors."


class DeadLetterTopic:
    """The dead-letter topic of one run of a sink. ``query`` is the id of its query."""

    def __init__(self, name: str, query: str, errors: ErrorSettings, worker: WorkerSettings) -> None:
        self._name, self._query, self._errors, self._worker = name, query, errors, worker

    def write(self, failed: DataFrame, number: int) -> None:
        """Write the original records of a batch that have failed, with headers if the connector wants them."""
        headers = sql.coalesce(sql.col("original.headers"), sql.array()).cast(HEADERS_TYPE)
        if self._errors.adds_headers:
            headers = sql.concat(headers, error_headers(self._name))
        rows = failed.select("original.key", "original.value", "original.timestamp", headers.alias("headers"))
        options = {
            "topic": self._errors.dead_letter_topic,
            "txnAppId": f"connect-{self._worker.worker.group_id}-{self._name}-dead-letters-{self._query}",
            "txnVersion": str(number),
        }
        rows.write.format("tidelog").options(**self._worker.client, **options).mode("append").save()


def create_dead_letter_topic(errors: ErrorSettings, storage: TopicStorage) -> None:
    """Create the dead-letter topic of a sink, if it has one that does not exist."""
    topic = errors.dead_letter_topic
    if topic and not storage.partitions(topic):
        storage.create_topic(topic, _PARTITIONS, errors.dead_letter_replication_factor, {})


def error_headers(connector: str) -> Column:
    """Return the headers that describe the error of a failed record, in Connect's order.

    The stack trace is the error alone: an expression that fails has no stack.
    """
    failure = {name: sql.col(f"failure.{name}") for name in ("stage", "class", "exception", "message")}
    trace = sql.concat_ws(": ", failure["exception"], failure["message"])
    texts = {
        "topic": sql.col("original.topic"),
        "partition": sql.col("original.partition"),
        "offset": sql.col("original.offset"),
        "connector.name": sql.lit(connector),
        "task.id": sql.lit("0"),
        "stage": failure["stage"],
        "class.name": failure["class"],
        "exception.class.name": failure["exception"],
        "exception.message": failure["message"],
        "exception.stacktrace": trace,
    }
    named = [
        sql.struct(sql.lit(_PREFIX + name).alias("key"), text.cast("string").cast("binary").alias("value"))
        for name, text in texts.items()
    ]
    return sql.array(*named).cast(HEADERS_TYPE)

"""`FailedRecords`: separates the records of a batch that a converter or transform cannot process from the good ones.

Steps mark such records in the column ``failure`` (`tidelog_connect.records`). The batch is evaluated once for that, and
kept in Spark's cache until it is written. A pipeline whose steps cannot fail does not have this cost. `errors` has the
rules of KIP-298.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import functions as sql

from tidelog_connect.errors import TOLERANCE_EXCEEDED, ErrorSettings, FailedRecord, verdict_on_failure
from tidelog_connect.metrics import ConnectorCounts
from tidelog_connect.records import CONNECT_EXCEPTION, Records
from tidelog_connect.server.persisting import persisted
from tidelog_foundation.errors import ErrorCode, error_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

logger = logging.getLogger(__name__)

_MAX_LOGGED = 1000
"""Each batch logs at most this many of its failed records, and the number of the others."""


class DeadLetters(Protocol):
    """The dead-letter topic of a sink."""

    def write(self, failed: DataFrame, number: int) -> None:
        """Write the failed records of a batch, once, however often this is called with the same batch."""
        ...


class FailedRecords:
    """The failed records of one connector's batches. A source has no dead letters."""

    def __init__(
        self, name: str, settings: ErrorSettings, counts: ConnectorCounts, dead_letters: DeadLetters | None = None
    ) -> None:
        self._name, self._settings, self._counts, self._dead_letters = name, settings, counts, dead_letters
        self._verdict = verdict_on_failure(settings)

    @contextmanager
    def good(self, records: Records, number: int) -> Iterator[DataFrame]:
        """Provide the rows of a batch without failures, after its failed ones are logged and in the dead-letter topic.

        Raises:
            TidelogError: a record has failed, and ``errors.tolerance`` is none.
        """
        if not records.can_fail:
            yield records.frame
            return
        with persisted(records.frame) as frame:
            failed = frame.where(sql.col("failure").isNotNull())
            if self._handle(failed, number, is_sink=records.is_sink):
                yield frame.where(sql.col("failure").isNull())
            else:
                yield frame

    def _handle(self, failed: DataFrame, number: int, *, is_sink: bool) -> bool:
        """Handle failed records, and tell whether there are any."""
        place = ("original.topic", "original.partition", "original.offset", "original.timestamp")
        columns = place if is_sink else ("topic", "partition", "offset", "timestamp")
        limit = _MAX_LOGGED if self._settings.logs_errors else 1
        rows = failed.select(*columns, "failure").limit(limit).collect()
        if not rows:
            return False
        count = len(rows) if len(rows) < limit else failed.count()
        self._counts.failed(count)
        if self._dead_letters is not None and self._verdict.to_dead_letters:
            self._dead_letters.write(failed, number)
            self._counts.dead_letters += count
        if self._settings.logs_errors:
            self._log(rows, count - len(rows))
            self._counts.logged += len(rows)
        if self._verdict.fails_task:
            first = _failed_record(rows[0])
            raise error_for(
                ErrorCode._FAIL,
                f"{CONNECT_EXCEPTION}: {TOLERANCE_EXCEEDED}. {_described(first)} {first.exception}: {first.message}",
            )
        self._counts.skipped += count
        return True

    def _log(self, rows: list[Row], others: int) -> None:
        for row in rows:
            record = _failed_record(row)
            logger.error(
                "Error encountered in task %s-0. %s %s: %s",
                self._name,
                _described(record, row["timestamp"], with_place=self._settings.logs_records),
                record.exception,
                record.message,
            )
        if others:
            logger.error("Error encountered in task %s-0 for %d more records of the batch", self._name, others)


def _failed_record(row: Row) -> FailedRecord:
    failure = row["failure"]
    return FailedRecord(
        topic=row["topic"],
        partition=row["partition"],
        offset=row["offset"],
        stage=failure["stage"],
        executing_class=failure["class"],
        exception=failure["exception"],
        message=failure["message"],
    )


def _described(record: FailedRecord, timestamp: object = None, *, with_place: bool = True) -> str:
    """Return where a record has failed, in the words of Kafka Connect's LogReporter."""
    text = f"Executing stage '{record.stage}' with class '{record.executing_class}'"
    if not with_place:
        return f"{text}."
    if record.offset is None:
        return f"{text}, where source record is = {{topic='{record.topic}'}}."
    place = f"topic='{record.topic}', partition={record.partition}, offset={record.offset}"
    at = "" if timestamp is None else f", timestamp={timestamp}"
    return f"{text}, where consumed record is {{{place}{at}}}."

"""Finds the records for which a whole batch is refused (Kafka's RecordError, KIP-467).

Runs only for a refused batch: it reads the records again and creates no object per record.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError
from tidelog_foundation.records import ProducedBatch, keyless_records, records_outside

MAX_NAMED = 100
"""The maximum number of records that an error names; a batch may have tens of thousands."""


class RecordError(NamedTuple):
    """The reason why a record makes its batch invalid; ``batch_index`` is the record's place in the batch, from 0."""

    batch_index: int
    message: str


class RefusedRecordsError(TidelogError):
    """A batch is refused because of some of its records; ``records`` has the first :data:`MAX_NAMED` of them."""

    def __init__(self, error: KafkaError, records: tuple[RecordError, ...] = ()) -> None:
        super().__init__(error)
        self.records = records


def keyless_error(produced: ProducedBatch) -> RefusedRecordsError:
    """Return the error for a batch of a compacted topic that has records without a key."""
    text = "a record without a key, which a compacted topic does not take"
    found = tuple(RecordError(index, text) for index in keyless_records(produced, MAX_NAMED))
    return RefusedRecordsError(KafkaError(ErrorCode.INVALID_RECORD, text), found)


def time_error(
    error: TidelogError, produced: ProducedBatch, now_ms: int, before_max_ms: int, after_max_ms: int
) -> RefusedRecordsError:
    """Return ``error``, for a batch with records that are too old or too new, together with those records."""
    outside = records_outside(produced, now_ms - before_max_ms, now_ms + after_max_ms, MAX_NAMED)
    limits = f"from {now_ms} - {before_max_ms} to {now_ms} + {after_max_ms}"
    found = tuple(RecordError(index, f"timestamp {time} is not {limits}") for index, time in outside)
    return RefusedRecordsError(error.error, found)

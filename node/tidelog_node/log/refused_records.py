"""Says which records are why a whole batch is refused (Kafka's RecordError, KIP-467).

Only where a batch is refused: its records are walked again to find them, and none becomes an object.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError
from tidelog_foundation.records import ProducedBatch, keyless_records, records_outside

MAX_NAMED = 100
"""How many records of a batch are named; a batch may have tens of thousands."""


class RecordError(NamedTuple):
    """Why a batch is refused for one of its records; ``batch_index`` is its place in the batch, from 0."""

    batch_index: int
    message: str


class RefusedRecordsError(TidelogError):
    """A batch is refused for some of its records; ``records`` are the first :data:`MAX_NAMED` of them."""

    def __init__(self, error: KafkaError, records: tuple[RecordError, ...] = ()) -> None:
        super().__init__(error)
        self.records = records


def keyless_error(produced: ProducedBatch) -> RefusedRecordsError:
    """Return the error of a batch that has records without a key, for a compacted topic."""
    text = "a record without a key, which a compacted topic does not take"
    found = tuple(RecordError(index, text) for index in keyless_records(produced, MAX_NAMED))
    return RefusedRecordsError(KafkaError(ErrorCode.INVALID_RECORD, text), found)


def time_error(
    error: TidelogError, produced: ProducedBatch, now_ms: int, before_max_ms: int, after_max_ms: int
) -> RefusedRecordsError:
    """Return ``error``, which says that a batch has records too old or too new, with the records that are."""
    outside = records_outside(produced, now_ms - before_max_ms, now_ms + after_max_ms, MAX_NAMED)
    limits = f"from {now_ms} - {before_max_ms} to {now_ms} + {after_max_ms}"
    found = tuple(RecordError(index, f"timestamp {time} is not {limits}") for index, time in outside)
    return RefusedRecordsError(error.error, found)

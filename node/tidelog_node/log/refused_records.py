"""Says which records are why a whole batch is refused (Kafka's RecordError, KIP-467).

Only where a batch is refused: its records are read again to find them.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.records import NO_TIMESTAMP, Record, read_records
from tidelog_node.log.files import Buffer

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


def keyless_records(records: Buffer) -> RefusedRecordsError:
    """Return the error of a batch that has records without a key, for a compacted topic."""
    text = "a record without a key, which a compacted topic does not take"
    found = [i for i, record in enumerate(_read(records)) if record.key is None][:MAX_NAMED]
    return RefusedRecordsError(
        KafkaError(ErrorCode.INVALID_RECORD, text), tuple(RecordError(index, text) for index in found)
    )


def records_out_of_time(
    error: TidelogError, records: Buffer, now_ms: int, before_max_ms: int, after_max_ms: int
) -> RefusedRecordsError:
    """Return ``error``, which says that a batch has records too old or too new, with the records that are."""
    found = [
        RecordError(index, f"timestamp {time} is not from {now_ms} - {before_max_ms} to {now_ms} + {after_max_ms}")
        for index, time in enumerate(record.timestamp_ms for record in _read(records))
        if time - now_ms > after_max_ms or (time != NO_TIMESTAMP and now_ms - time > before_max_ms)
    ]
    return RefusedRecordsError(error.error, tuple(found[:MAX_NAMED]))


def _read(records: Buffer) -> list[Record]:
    try:
        return read_records(records)
    except TidelogError:
        # Compressed records that nobody had to look at: the batch is refused for what its header says.
        return []

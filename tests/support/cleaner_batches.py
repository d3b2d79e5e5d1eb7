"""Batches in the form of a partition's log, and readers' views of them, for the tests of the cleaner."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog_foundation.records import (
    Record,
    RecordBatchBuilder,
    assign_offsets,
    iter_headers,
    read_records,
    validate_batch,
)
from tidelog_foundation.records.control import ControlType, control_batch
from tidelog_node.log.producers.entries import ProducerEntry

NOW_MS = 1_700_000_000_000

Pair = tuple[bytes | None, bytes | None]
"""The key and value of a record."""


def data_batch(
    base_offset: int,
    *pairs: Pair,
    timestamp_ms: int = NOW_MS,
    compression: str = "none",
    producer: tuple[int, int, int] | None = None,
    is_transactional: bool = False,
    leader_epoch: int = 3,
    append_time_ms: int | None = None,
) -> bytes:
    """Return a batch. Record i has the timestamp ``timestamp_ms + i``; ``producer`` is id, epoch and base sequence."""
    builder = RecordBatchBuilder(compression)
    for index, (key, value) in enumerate(pairs):
        builder.append(key, value, (), timestamp_ms + index)
    batch = bytearray(builder.build(*(producer or (-1, -1, -1)), is_transactional=is_transactional))
    assign_offsets(batch, base_offset, leader_epoch, append_time_ms)
    return bytes(batch)


def marker_batch(
    base_offset: int, kind: ControlType, producer_id: int, producer_epoch: int = 0, timestamp_ms: int = NOW_MS
) -> bytes:
    """Return the batch that ends a transaction."""
    batch = bytearray(control_batch(kind, producer_id, producer_epoch, 1, timestamp_ms))
    assign_offsets(batch, base_offset, 3)
    return bytes(batch)


def producer_entry(producer_id: int, last_offset: int, producer_epoch: int = 0) -> ProducerEntry:
    """Return an active producer whose last data batch ends at an offset, -1 for none."""
    return ProducerEntry(producer_id, producer_epoch, 0, last_offset, 0, NOW_MS, 1, -1)


def records_of(batches: bytes | Iterable[bytes]) -> list[Record]:
    """Return all records, after a check of each batch's CRC."""
    data = batches if isinstance(batches, bytes) else b"".join(batches)
    records: list[Record] = []
    for position, _ in iter_headers(data):
        validate_batch(data, position)
        records += read_records(data, position)
    return records

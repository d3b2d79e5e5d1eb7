"""The shell's notices of settled records."""

from __future__ import annotations

from tidelog.producer.core.batch import Batch, HeldRecord
from tidelog.producer.core.events import Settle
from tidelog.producer.core.faults import possibly_stored
from tidelog_foundation.errors import TidelogError


def settle_batch(batch: Batch) -> Settle:
    """Return the notice of a settled batch."""
    assert batch.outcome is not None
    error, base_offset, append_time_ms = batch.outcome
    may_be_stored = error is not None and batch.may_be_stored
    if error is not None and may_be_stored:
        error = possibly_stored(error)
    return Settle(
        batch.topic,
        batch.partition,
        batch.count,
        batch.deliveries,
        error,
        base_offset,
        append_time_ms,
        may_be_stored,
        batch.rows,
    )


def settle_held(topic: str, record: HeldRecord, error: TidelogError) -> Settle:
    """Return the notice of a failed record that was in no batch."""
    deliveries = [] if record.on_delivery is None else [record.delivery(0)]
    return Settle(topic, record.partition, 1, deliveries, error)

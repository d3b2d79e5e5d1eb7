"""Headers of batches as producers send them and as logs store them."""

from __future__ import annotations

from tidelog_foundation.records import RecordBatchHeader

TRANSACTIONAL, CONTROL = 0x10, 0x20


def header_of(
    producer_id: int,
    epoch: int,
    sequence: int,
    count: int = 1,
    *,
    offset: int = 0,
    attributes: int = 0,
    timestamp_ms: int = 1000,
) -> RecordBatchHeader:
    """Return the header of a batch of ``count`` records."""
    return RecordBatchHeader(
        base_offset=offset,
        batch_length=100,
        partition_leader_epoch=0,
        crc=0,
        attributes=attributes,
        last_offset_delta=count - 1,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )

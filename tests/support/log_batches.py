"""The batches that tests write to a log."""

from __future__ import annotations

from tidelog_foundation.records import RecordBatchBuilder, assign_offsets


def produced_batch(
    *values: bytes | None,
    timestamp_ms: int = 1000,
    keys: tuple[bytes | None, ...] = (),
    producer: tuple[int, int, int] = (-1, -1, -1),
    is_transactional: bool = False,
) -> bytes:
    """Return a batch as a producer sends it. Record i has the timestamp ``timestamp_ms + i`` and ``keys[i]``, if any.

    ``producer`` has its id, its epoch and the sequence number of the first record.
    """
    builder = RecordBatchBuilder()
    for index, value in enumerate(values):
        key = keys[index] if index < len(keys) else None
        builder.append(key, value, (), timestamp_ms + index)
    return builder.build(*producer, is_transactional=is_transactional)


def replicated_batch(
    base_offset: int,
    epoch: int,
    *values: bytes | None,
    timestamp_ms: int = 1000,
    keys: tuple[bytes | None, ...] = (),
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """Return a batch as a leader of that epoch stores it in its log."""
    batch = bytearray(produced_batch(*values, timestamp_ms=timestamp_ms, keys=keys, producer=producer))
    assign_offsets(batch, base_offset, epoch)
    return bytes(batch)

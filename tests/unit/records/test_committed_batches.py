"""The batches that a reader of committed records gets."""

from __future__ import annotations

from tidelog_foundation.records import (
    ControlType,
    RecordBatchBuilder,
    assign_offsets,
    control_batch,
    data_batches,
    iter_headers,
    without_aborted,
)


def data(offset: int, producer_id: int, value: bytes, *, is_transactional: bool = True) -> bytes:
    builder = RecordBatchBuilder()
    builder.append(None, value, (), 0)
    number = (producer_id, 0, 0) if producer_id >= 0 else (-1, -1, -1)
    return _at(offset, builder.build(*number, is_transactional))


def marker(offset: int, producer_id: int, kind: ControlType) -> bytes:
    return _at(offset, control_batch(kind, producer_id, 0, 0, 0))


def _at(offset: int, batch: bytes) -> bytes:
    moved = bytearray(batch)
    assign_offsets(moved, offset, 0)
    return bytes(moved)


LOG = b"".join(
    (
        data(0, 1, b"aborted"),
        data(1, 2, b"other"),
        data(2, -1, b"plain", is_transactional=False),
        marker(3, 1, ControlType.ABORT),
        data(4, 1, b"committed"),
        marker(5, 2, ControlType.COMMIT),
        marker(6, 1, ControlType.COMMIT),
        data(7, 1, b"again"),
        marker(8, 1, ControlType.ABORT),
    )
)


def test_batches_of_aborted_transactions_are_left_out_up_to_their_marker() -> None:
    kept = without_aborted(LOG, ((1, 7), (1, 0)))
    assert [header.base_offset for _, header in iter_headers(kept)] == [1, 2, 4]


def test_batches_without_aborted_transactions_are_all_that_have_records() -> None:
    assert [header.base_offset for _, header in data_batches(LOG)] == [0, 1, 2, 4, 7]


def test_transaction_that_began_before_the_fetched_records_is_left_out() -> None:
    later = LOG[len(data(0, 1, b"aborted")) :]
    assert [header.base_offset for _, header in data_batches(later, ((1, 0),))] == [1, 2, 4, 7]
    assert [header.base_offset for _, header in data_batches(LOG, ((2, 0),))] == [0, 2, 4, 7]

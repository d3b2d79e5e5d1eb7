"""A delivery as messages and as Arrow columns: what is returned, and where the next record is looked for."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from tidelog.consumer.core.events import Deliver
from tidelog.consumer.reading import Reading
from tidelog_foundation.errors import CorruptRecordError
from tidelog_foundation.records import ControlType, RecordBatchBuilder, assign_offsets, control_batch


def batch(base_offset: int, count: int = 3, producer_id: int = -1, epoch: int = 2) -> bytes:
    builder = RecordBatchBuilder()
    for n in range(base_offset, base_offset + count):
        builder.append(None, b"%d" % n, [("h", b"x")] if n % 2 else (), 1_000 + n)
    transactional = producer_id >= 0
    producer = (producer_id, 0, 0) if transactional else (-1, -1, -1)
    records = bytearray(builder.build(*producer, is_transactional=transactional))
    assign_offsets(records, base_offset, epoch)
    return bytes(records)


def marker(offset: int, producer_id: int, kind: ControlType) -> bytes:
    records = bytearray(control_batch(kind, producer_id, 0, 0, 1))
    assign_offsets(records, offset, 2)
    return bytes(records)


def delivery(*batches: bytes, offset: int = 0, aborted: tuple[tuple[int, int], ...] = ()) -> Deliver:
    return Deliver("t", 1, 1, offset, b"".join(batches), aborted)


def messages(reading: Reading, most: int) -> list[int]:
    seen: list[int] = []
    while found := reading.messages(most):
        assert len(found) <= most
        seen += [m.offset() or 0 for m in found]
    return seen


def one_by_one(reading: Reading, most: int) -> list[int]:
    seen: list[int] = []
    while found := reading.messages(most):
        seen.append(found[0].offset() or 0)
        reading.go_back(seen[-1] + 1)
    return seen


def rows(reading: Reading, most: int) -> list[int]:
    seen: list[int] = []
    while (found := reading.rows(most)) is not None:
        assert found.num_rows <= most
        seen += found.column("offset").to_pylist()
    return seen


EACH_WAY = pytest.mark.parametrize("read", [messages, one_by_one, rows])
Read = Callable[[Reading, int], list[int]]


@EACH_WAY
@pytest.mark.parametrize("most", [1, 2, 100])
def test_records_are_returned_from_the_offset_on(read: Read, most: int) -> None:
    reading = Reading(delivery(batch(0), batch(3), batch(8, 2), offset=4))
    assert read(reading, most) == [4, 5, 8, 9]
    assert reading.next_offset == 10


@EACH_WAY
def test_records_of_aborted_transactions_and_markers_are_left_out(read: Read) -> None:
    item = delivery(
        batch(0, 2, producer_id=7),
        batch(2, 2, producer_id=8),
        marker(4, 7, ControlType.ABORT),
        batch(5, 2, producer_id=7),
        marker(7, 8, ControlType.COMMIT),
        marker(8, 7, ControlType.COMMIT),
        batch(9, 1),
        marker(10, 9, ControlType.ABORT),
        aborted=((7, 0),),
    )
    reading = Reading(item)
    assert read(reading, 100) == [2, 3, 5, 6, 9]
    assert reading.next_offset == 11


@EACH_WAY
def test_a_delivery_that_is_aborted_whole_is_passed_over(read: Read) -> None:
    reading = Reading(delivery(batch(0, 2, producer_id=7), aborted=((7, 0),)))
    assert read(reading, 100) == []
    assert reading.next_offset == 2


def test_messages_and_rows_may_take_turns() -> None:
    reading = Reading(delivery(batch(0, 10), batch(10, 10)))
    seen = [m.offset() for m in reading.messages(3)]
    first = reading.rows(4)
    assert first is not None
    seen += first.column("offset").to_pylist()
    seen += [m.offset() for m in reading.messages(1)]
    seen += messages(reading, 5)
    assert seen == list(range(20))


def test_rows_have_what_messages_have() -> None:
    reading = Reading(delivery(batch(0, 2)))
    table = reading.rows(10)
    assert table is not None
    assert table.schema.names == ["key", "value", "topic", "partition", "offset", "timestamp", "headers"]
    first, second = table.to_pylist()
    assert (first["topic"], first["partition"], first["offset"], first["value"]) == ("t", 1, 0, b"0")
    assert second["timestamp"].microsecond == 1_000
    assert [first["headers"], second["headers"]] == [None, [{"key": "h", "value": b"x"}]]
    assert str(table.schema.field("timestamp").type) == "timestamp[ms, tz=UTC]"


def test_a_damaged_batch_is_told_after_the_records_before_it() -> None:
    damaged = bytearray(batch(3))
    damaged[-1] ^= 1
    item = delivery(batch(0), bytes(damaged))
    reading = Reading(item)
    assert [m.offset() for m in reading.messages(10)] == [0, 1, 2]
    with pytest.raises(CorruptRecordError):
        reading.messages(10)
    reading = Reading(item)
    found = reading.rows(10)
    assert found is not None
    assert found.column("offset").to_pylist() == [0, 1, 2]
    with pytest.raises(CorruptRecordError):
        reading.rows(10)


def test_messages_know_the_epoch_of_the_leader_that_took_them() -> None:
    reading = Reading(delivery(batch(0, 1, epoch=4), batch(1, 1, epoch=6)))
    assert [m.leader_epoch() for _ in range(2) for m in reading.messages(9)] == [4, 6]
    assert reading.leader_epoch == 6


@pytest.mark.costly
def test_batch_of_many_records_is_read_without_an_object_for_each() -> None:
    builder = RecordBatchBuilder("zstd")
    builder.extend([None] * 200_000, None, 1_000)
    reading, seen = Reading(delivery(builder.build(), offset=5)), 0
    tracemalloc.start()
    try:
        while found := reading.messages(500):
            seen += len(found)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seen == 200_000 - 5
    # As objects all records take 30 MB, decompressed and as one part of them less than six.
    assert peak < 8 * 1024 * 1024, peak


def test_rows_come_in_parts_when_a_delivery_decompresses_to_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.consumer.columns.MAX_DECODED_BYTES", 5_000)
    batches = []
    for first in range(0, 40, 4):
        builder = RecordBatchBuilder("zstd")
        for n in range(4):
            builder.append(None, bytes(1_000), (), 1_000 + n)
        records = bytearray(builder.build())
        assign_offsets(records, first, 2)
        batches.append(bytes(records))
    for aborted in ((), ((9, 10**6),)):
        reading = Reading(delivery(*batches, offset=2, aborted=aborted))
        offsets = []
        while (found := reading.rows(1_000)) is not None:
            assert found.num_rows <= 8, "more than was to be decompressed at once"
            offsets += found.column("offset").to_pylist()
        assert offsets == list(range(2, 40))

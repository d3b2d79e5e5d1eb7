"""The cleaning of one batch: each rule of retention, on both engines."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

import pytest
from cleaner_batches import NOW_MS, Pair, data_batch, marker_batch, producer_entry, records_of

from tidelog_foundation.errors import CorruptRecordError
from tidelog_foundation.records import LOG_APPEND_TIME, parse_header
from tidelog_foundation.records.control import ControlType, read_control
from tidelog_node.log.cleaner.batch_filter import BatchFilter
from tidelog_node.log.cleaner.transactions import CleanedTransactions
from tidelog_node.log.producers.entries import ProducerEntry
from tidelog_node.log.segments.transaction_index import AbortedTransaction

DAY_MS = 86_400_000
A, B, C = b"a", b"b", b"c"


def filtered(
    engine: ModuleType,
    batch: bytes,
    latest: dict[bytes, int],
    *,
    now_ms: int = NOW_MS,
    end_offset: int = 1000,
    producers: Iterable[ProducerEntry] = (),
    transactions: CleanedTransactions | None = None,
) -> bytes | None:
    """Return a batch after one cleaning; ``latest`` has the last offsets of all keys below 1000."""
    offset_map = engine.OffsetMap(1000 * 24, 0.9, 1)
    for key, offset in latest.items():
        offset_map.put(key, offset)
    offset_map.advance(999)
    batch_filter = BatchFilter(
        offset_map,
        transactions or CleanedTransactions([]),
        {producer.producer_id: producer for producer in producers},
        end_offset=end_offset,
        now_ms=now_ms,
        delete_retention_ms=DAY_MS,
    )
    kept = batch_filter.filter(b"before" + batch + b"behind", 6)
    if kept is None:
        return None
    header, data = kept
    assert header == parse_header(data)
    return bytes(data)


@pytest.mark.parametrize(
    ("pairs", "latest", "kept_offsets"),
    [
        ([(A, b"1"), (B, b"2")], {A: 10, B: 11}, [10, 11]),
        ([(A, b"1"), (B, b"2")], {}, [10, 11]),
        ([(A, b"1"), (B, b"2")], {A: 50, B: 11}, [11]),
        ([(A, b"1"), (B, b"2"), (C, b"3")], {A: 10, B: 50, C: 12}, [10, 12]),
        ([(A, b"1"), (A, b"2")], {A: 11}, [11]),
        ([(None, b"1"), (B, b"2")], {}, [11]),
        ([(A, b"1"), (B, None)], {A: 10, B: 11}, [10, 11]),
        ([(b"", b"1"), (B, b"")], {b"": 10}, [10, 11]),
    ],
)
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_filter_keeps_the_records_that_are_the_last_of_their_key(
    engine: ModuleType, pairs: list[Pair], latest: dict[bytes, int], kept_offsets: list[int], compression: str
) -> None:
    padded = [(key, value and value * 300) for key, value in pairs]
    batch = data_batch(10, *padded, compression=compression, producer=(7, 1, 20))
    kept = filtered(engine, batch, latest)
    assert kept is not None
    assert records_of(kept) == [record for record in records_of(batch) if record.offset in kept_offsets]
    before, after = parse_header(batch), parse_header(kept)
    for name in ("base_offset", "last_offset", "partition_leader_epoch", "producer_id", "producer_epoch"):
        assert getattr(before, name) == getattr(after, name), name
    assert (before.base_sequence, before.compression) == (after.base_sequence, after.compression)
    assert after.max_timestamp == max(record.timestamp_ms for record in records_of(kept))


def test_filter_returns_a_batch_of_which_all_stays_byte_for_byte(engine: ModuleType) -> None:
    batch = data_batch(10, (A, b"1"), (B, b"2"), compression="gzip", leader_epoch=9)
    assert filtered(engine, batch, {A: 10}) == batch


def test_filter_drops_a_batch_of_which_nothing_stays(engine: ModuleType) -> None:
    assert filtered(engine, data_batch(10, (A, b"1"), (None, b"2")), {A: 50}) is None


def test_filter_keeps_the_header_of_the_batch_at_the_end_of_the_range(engine: ModuleType) -> None:
    batch = data_batch(10, (A, b"1"), (A, b"2"), compression="gzip")
    kept = filtered(engine, batch, {A: 50}, end_offset=12)
    assert kept is not None
    header = parse_header(kept)
    assert (header.base_offset, header.last_offset, header.record_count, header.size_in_bytes) == (10, 11, 0, 61)
    assert header.compression == "none"
    assert header.max_timestamp == NOW_MS + 1
    assert filtered(engine, kept, {A: 50}, end_offset=12) == kept
    assert filtered(engine, kept, {A: 50}, end_offset=20) is None


def test_filter_keeps_the_header_of_a_producers_last_batch(engine: ModuleType) -> None:
    batch = data_batch(10, (A, b"1"), (A, b"2"), producer=(7, 1, 20))
    kept = filtered(engine, batch, {A: 50}, producers=[producer_entry(7, 11, 1)])
    assert kept is not None
    header = parse_header(kept)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 20)
    assert (header.last_offset, header.record_count) == (11, 0)
    assert filtered(engine, batch, {A: 50}, producers=[producer_entry(7, 40, 1)]) is None
    assert filtered(engine, batch, {A: 50}, producers=[producer_entry(8, 11, 1)]) is None


def test_filter_sets_the_delete_horizon_of_a_tombstone_once_and_keeps_the_timestamps(engine: ModuleType) -> None:
    batch = data_batch(10, (A, b"1"), (B, None), (C, b"3"), compression="lz4")
    kept = filtered(engine, batch, {A: 50})
    assert kept is not None
    header = parse_header(kept)
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW_MS + DAY_MS
    assert records_of(kept) == records_of(batch)[1:]
    assert filtered(engine, kept, {}, now_ms=NOW_MS + DAY_MS - 1) == kept


def test_filter_drops_a_tombstone_when_its_horizon_has_passed_and_keeps_the_rest(engine: ModuleType) -> None:
    batch = data_batch(10, (A, b"1"), (B, None))
    with_horizon = filtered(engine, batch, {})
    assert with_horizon is not None
    kept = filtered(engine, with_horizon, {}, now_ms=NOW_MS + DAY_MS)
    assert kept is not None
    assert records_of(kept) == records_of(batch)[:1]
    assert parse_header(kept).base_timestamp == NOW_MS + DAY_MS


def test_filter_drops_a_tombstone_at_once_when_a_later_record_replaces_it(engine: ModuleType) -> None:
    assert filtered(engine, data_batch(10, (A, None)), {A: 50}) is None


def test_filter_keeps_the_append_time_of_a_batch_of_log_append_time(engine: ModuleType) -> None:
    batch = data_batch(10, (A, b"1"), (B, None), append_time_ms=NOW_MS + 500)
    kept = filtered(engine, batch, {A: 50})
    assert kept is not None
    header = parse_header(kept)
    assert header.timestamp_type == LOG_APPEND_TIME
    assert header.max_timestamp == NOW_MS + 500
    assert [record.timestamp_ms for record in records_of(kept)] == [NOW_MS + 500]


@pytest.mark.parametrize("timestamp_ms", [-1, 0, NOW_MS, 2**63 - 100])
def test_filter_keeps_any_timestamp_beside_a_horizon(engine: ModuleType, timestamp_ms: int) -> None:
    batch = data_batch(10, (A, b"1"), (B, None), timestamp_ms=timestamp_ms)
    kept = filtered(engine, batch, {})
    assert kept is not None
    assert records_of(kept) == records_of(batch)


def test_filter_drops_aborted_data_and_keeps_its_marker_while_data_was_met(engine: ModuleType) -> None:
    transactions = CleanedTransactions([AbortedTransaction(7, 10, 20, 21)])
    data = data_batch(10, (A, b"1"), producer=(7, 0, 0), is_transactional=True)
    other = data_batch(12, (B, b"1"), producer=(8, 0, 0), is_transactional=True)
    abort = marker_batch(20, ControlType.ABORT, 7)
    assert filtered(engine, data, {A: 10}, transactions=transactions) is None
    assert filtered(engine, other, {B: 12}, transactions=transactions) == other
    assert filtered(engine, abort, {}, transactions=transactions) == abort
    assert transactions.take_retained() == [AbortedTransaction(7, 10, 20, 21)]


@pytest.mark.parametrize("kind", list(ControlType))
def test_filter_drops_a_marker_a_horizon_after_its_transaction_is_gone(engine: ModuleType, kind: ControlType) -> None:
    marker = marker_batch(20, kind, 7)
    kept = filtered(engine, marker, {})
    assert kept is not None
    assert parse_header(kept).base_timestamp == NOW_MS + DAY_MS
    assert parse_header(kept).is_control
    assert read_control(kept) == read_control(marker)
    assert filtered(engine, kept, {}, now_ms=NOW_MS + DAY_MS - 1) == kept
    assert filtered(engine, kept, {}, now_ms=NOW_MS + DAY_MS) is None


def test_filter_keeps_a_commit_marker_while_its_transaction_has_data(engine: ModuleType) -> None:
    transactions = CleanedTransactions([])
    data = data_batch(10, (A, b"1"), producer=(7, 0, 0), is_transactional=True)
    marker = marker_batch(20, ControlType.COMMIT, 7)
    assert filtered(engine, data, {A: 50}, transactions=transactions) is None
    assert filtered(engine, marker, {}, transactions=transactions) == marker
    assert transactions.take_retained() == []


def test_filter_keeps_the_header_of_a_marker_that_holds_a_producers_epoch(engine: ModuleType) -> None:
    marker = marker_batch(20, ControlType.COMMIT, 7, producer_epoch=4)
    with_horizon = filtered(engine, marker, {})
    assert with_horizon is not None
    producers = [producer_entry(7, -1, 4)]
    kept = filtered(engine, with_horizon, {}, now_ms=NOW_MS + DAY_MS, producers=producers)
    assert kept is not None
    header = parse_header(kept)
    assert (header.record_count, header.producer_id, header.producer_epoch, header.is_control) == (0, 7, 4, True)
    assert filtered(engine, kept, {}, producers=producers) == kept
    assert filtered(engine, kept, {}, producers=[producer_entry(7, -1, 5)]) is None


def test_filter_refuses_a_batch_whose_bytes_have_changed(engine: ModuleType) -> None:
    batch = bytearray(data_batch(10, (A, b"1"), (B, b"2")))
    batch[-3] ^= 1
    with pytest.raises(CorruptRecordError):
        filtered(engine, bytes(batch), {A: 50})

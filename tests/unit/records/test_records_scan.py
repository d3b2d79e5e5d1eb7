"""A window of batches in one pass: which batches, where the next window begins, what is wrong; both engines alike."""

from __future__ import annotations

import struct
from types import ModuleType
from typing import Any

import pytest
from batch_mutations import Mutator, corpus
from hypothesis import given
from hypothesis import strategies as st
from seeds import reproducible, seed_blocks

from tidelog_foundation.errors import CorruptRecordError
from tidelog_foundation.records import (
    HEADER_SIZE,
    BatchesSummary,
    BatchScan,
    RecordBatchBuilder,
    RecordBatchHeader,
    _pure,
    assign_offsets,
    header,
    iter_headers,
    scan_batches,
    summarize_batches,
)

_FIRST = 7_000


def log_of(*counts: int, first_offset: int = 50) -> list[bytes]:
    """Return batches of so many records, one behind the other in offsets."""
    batches, offset = [], first_offset
    for count in counts:
        builder = RecordBatchBuilder()
        builder.extend([b"v" * 40] * count, None, 1000)
        batch = bytearray(builder.build())
        assign_offsets(batch, offset, 3)
        batches.append(bytes(batch))
        offset += count
    return batches


def _expected(batches: list[bytes]) -> list[tuple[int, RecordBatchHeader]]:
    position, pairs = _FIRST, []
    for batch in batches:
        pairs.append((position, header.parse_header(batch)))
        position += len(batch)
    return pairs


def _plain(scan: BatchScan) -> tuple[Any, ...]:
    return scan.batches, scan.size, scan.wanted, None if scan.fault is None else scan.fault.message


def test_scan_gives_all_batches_when_the_window_ends_behind_the_last(engine: ModuleType) -> None:
    batches = log_of(1, 3, 2)
    window = b"".join(batches)
    scan = scan_batches(window, _FIRST, 50)
    assert scan == (_expected(batches), len(window), HEADER_SIZE, None)
    assert all(type(found) is RecordBatchHeader for _, found in scan.batches)
    assert scan_batches(memoryview(bytearray(window)), _FIRST) == scan
    assert scan_batches(b"") == ([], 0, HEADER_SIZE, None)


@pytest.mark.parametrize("cut", [1, 30, 61, 62, 90])
def test_scan_tells_what_the_torn_batch_needs(engine: ModuleType, cut: int) -> None:
    batches = log_of(1, 3, 2)
    window = b"".join(batches)[:-cut]
    there = len(batches[2]) - cut
    scan = scan_batches(window, _FIRST)
    assert scan.batches == _expected(batches[:2])
    assert (scan.size, scan.fault) == (len(window) - there, None)
    assert scan.wanted == (len(batches[2]) if there >= HEADER_SIZE else HEADER_SIZE)


@pytest.mark.parametrize(
    ("place", "layout", "value", "text"),
    [
        (16, ">b", 1, "at byte {position}: expected magic 2, found 1"),
        (8, ">i", 3, "at byte {position}: batch length 3"),
        (60, ">b", 9, "expected CRC"),
        (17, ">I", 9, "expected CRC 0x00000009"),
        (0, ">q", 50, "batch at byte {position} has base offset 50, the one before ends at 51"),
        (0, ">q", -5, "at byte {position}: the base offset is negative"),
    ],
)
def test_scan_stops_at_the_first_batch_that_is_not_good(
    engine: ModuleType, place: int, layout: str, value: int, text: str
) -> None:
    batches = log_of(1, 3, 2)
    window = bytearray(b"".join(batches))
    struct.pack_into(layout, window, len(batches[0]) + place, value)
    scan = scan_batches(window, _FIRST)
    assert scan.batches == _expected(batches[:1])
    assert (scan.size, scan.wanted) == (len(batches[0]), 0)
    assert isinstance(scan.fault, CorruptRecordError)
    assert text.format(position=_FIRST + len(batches[0])) in scan.fault.message


def test_scan_refuses_first_batch_when_below_the_least_offset(engine: ModuleType) -> None:
    (batch,) = log_of(4)
    assert scan_batches(batch, 0, 50).fault is None
    fault = scan_batches(batch, 0, 51).fault
    assert fault is not None
    assert fault.message == "batch at byte 0 has base offset 50, the one before ends at 51"


@pytest.mark.parametrize("position", [-1, 0, 1, 61, 10**9])
def test_engines_refuse_short_buffers_in_the_same_words(engine: ModuleType, position: int) -> None:
    data = log_of(1)[0][:HEADER_SIZE]
    for name in ("parse_header", "validate_batch"):
        assert _outcome(getattr(engine, name), data, position) == _outcome(getattr(_pure, name), data, position)


def test_readers_leave_the_buffer_free(engine: ModuleType) -> None:
    window = bytearray(b"".join(log_of(2, 2)))
    engine.parse_header(window)
    engine.validate_batch(window)
    scan_batches(window)
    window[17] ^= 1
    with pytest.raises(CorruptRecordError):
        engine.validate_batch(window)
    scan_batches(window)
    window.append(0)


@given(fields=st.binary(min_size=HEADER_SIZE, max_size=HEADER_SIZE), is_magic=st.booleans())
def test_engines_give_equal_headers(engine: ModuleType, fields: bytes, is_magic: bool) -> None:
    data = fields[:16] + b"\x02" + fields[17:] if is_magic else fields
    assert _outcome(engine.parse_header, data) == _outcome(_pure.parse_header, data)


@given(data=st.data())
def test_engines_give_equal_headers_near_the_limits(engine: ModuleType, data: st.DataObject) -> None:
    def number(bits: int) -> int:
        least, greatest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        return data.draw(st.sampled_from([0, 1, 49, greatest, greatest - 1, -1, least]))

    sizes = {"q": 64, "i": 32, "h": 16, "b": 8}
    values = [2 if code == "b" else number(sizes[code]) for code in "qiibihiqqqhii"]
    packed = struct.pack(">qiibihiqqqhii", *values)
    assert _outcome(engine.parse_header, packed) == _outcome(_pure.parse_header, packed)


@pytest.mark.sim
@pytest.mark.parametrize("block", seed_blocks(40, 20), ids=lambda block: f"{block[0]}-{block[-1]}")
def test_engines_scan_changed_windows_alike(engine: ModuleType, block: range) -> None:
    batches = corpus()
    for seed in block:
        with reproducible(seed):
            mutator = Mutator(batches, seed)
            for _ in range(25):
                changed = mutator.mutant()
                for window in (changed, batches[0] + changed + batches[1]):
                    assert _plain(engine.scan_batches(window, 5, 0)) == _plain(_pure.scan_batches(window, 5, 0))
                for name in ("parse_header", "validate_batch"):
                    assert _outcome(getattr(engine, name), changed) == _outcome(getattr(_pure, name), changed)


def _outcome(read: Any, *arguments: Any) -> Any:
    try:
        return read(*arguments)
    except CorruptRecordError as error:
        return error.message


@given(
    counts=st.lists(st.integers(1, 4), max_size=4),
    epochs=st.lists(st.integers(-1, 3), min_size=4, max_size=4),
    torn=st.integers(0, 130),
    damaged=st.none() | st.integers(0, 500),
)
def test_summary_is_that_of_the_headers(
    engine: ModuleType, counts: list[int], epochs: list[int], torn: int, damaged: int | None
) -> None:
    batches = [bytearray(batch) for batch in log_of(*counts)]
    for batch, epoch in zip(batches, epochs, strict=False):
        assign_offsets(batch, header.parse_header(batch).base_offset, epoch)
    window = bytearray(b"".join(batches))
    if damaged is not None and damaged < len(window):
        window[damaged] ^= 0x81
    whole = bytes(window[: max(0, len(window) - torn)])
    assert _outcome(summarize_batches, whole) == _outcome(_summed_headers, whole)


def _summed_headers(window: bytes) -> BatchesSummary:
    found = [each for _, each in iter_headers(window)]
    return BatchesSummary(
        sum(each.record_count for each in found),
        max((each.next_offset for each in found), default=-1),
        max((each.partition_leader_epoch for each in found), default=-1),
    )

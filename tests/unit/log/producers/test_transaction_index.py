"""The index of aborted transactions: Kafka's bytes, the search, truncation, damage."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_disk import MemoryFiles, failing

from tidelog_node.log.segments.transaction_index import AbortedTransaction, TransactionIndex

PATH = Path("/data/flights-0/00000000000000000100.txnindex")
FIRST = AbortedTransaction(1, 100, 110, 105)
SECOND = AbortedTransaction(2, 105, 120, 121)
THIRD = AbortedTransaction(1, 130, 140, 141)
FIRST_BYTES = bytes.fromhex("0000 0000000000000001 0000000000000064 000000000000006e 0000000000000069")


@pytest.fixture
def disk() -> MemoryFiles:
    files = MemoryFiles()
    files.mkdir(PATH.parent)
    files.fsync_directory(PATH.parent.parent)
    return files


@pytest.fixture
def index(disk: MemoryFiles) -> TransactionIndex:
    return TransactionIndex(disk, PATH)


@pytest.fixture
def filled(index: TransactionIndex) -> TransactionIndex:
    for entry in (FIRST, SECOND, THIRD):
        index.append(entry)
    return index


def test_transaction_index_has_no_file_until_the_first_entry(disk: MemoryFiles, index: TransactionIndex) -> None:
    assert index.aborted(0, 1000) == ([], False)
    index.truncate(0)
    index.flush()
    assert index.fault(0) is None
    assert disk.listdir(PATH.parent) == []


def test_transaction_index_writes_kafkas_34_bytes(disk: MemoryFiles, index: TransactionIndex) -> None:
    index.append(FIRST)
    assert disk.read_bytes(PATH) == FIRST_BYTES
    assert TransactionIndex(disk, PATH).entries == [FIRST]


def test_transaction_index_entries_must_ascend(filled: TransactionIndex) -> None:
    with pytest.raises(ValueError, match="not above"):
        filled.append(THIRD)
    assert filled.entries == [FIRST, SECOND, THIRD]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (100, 200, ([FIRST, SECOND, THIRD], False)),
        (110, 200, ([FIRST, SECOND, THIRD], False)),
        (111, 200, ([SECOND, THIRD], False)),
        (121, 130, ([], True)),
        (121, 131, ([THIRD], True)),
        (100, 105, ([FIRST], True)),
        (100, 106, ([FIRST, SECOND], True)),
        (141, 142, ([], False)),
    ],
)
def test_transaction_index_search_finds_what_touches_the_range_and_says_whether_to_go_on(
    filled: TransactionIndex, start: int, end: int, expected: tuple[list[AbortedTransaction], bool]
) -> None:
    assert filled.aborted(start, end) == expected


@pytest.mark.parametrize(("offset", "left"), [(141, 3), (140, 2), (121, 2), (120, 1), (111, 1), (110, 0), (0, 0)])
def test_transaction_index_truncation_removes_the_markers_from_an_offset_on_for_good(
    disk: MemoryFiles, filled: TransactionIndex, offset: int, left: int
) -> None:
    filled.flush()
    filled.truncate(offset)
    disk.crash(random.Random(offset))
    assert TransactionIndex(disk, PATH).entries == [FIRST, SECOND, THIRD][:left]
    assert (disk.listdir(PATH.parent) == []) == (left == 0)


def test_transaction_index_goes_on_after_a_truncation(disk: MemoryFiles, filled: TransactionIndex) -> None:
    filled.truncate(120)
    filled.append(THIRD)
    assert filled.entries == TransactionIndex(disk, PATH).entries == [FIRST, THIRD]
    filled.truncate(0)
    filled.append(SECOND)
    assert TransactionIndex(disk, PATH).entries == [SECOND]


def test_transaction_index_survives_a_crash_after_flush(disk: MemoryFiles, index: TransactionIndex) -> None:
    index.append(FIRST)
    index.flush()
    disk.crash(random.Random(5))
    assert TransactionIndex(disk, PATH).entries == [FIRST]


def test_transaction_index_overwrites_a_torn_entry(disk: MemoryFiles) -> None:
    disk.write_bytes(PATH, FIRST_BYTES + b"\0" * 20)
    index = TransactionIndex(disk, PATH)
    assert index.fault(100) is not None
    assert index.entries == [FIRST]
    index.append(SECOND)
    assert index.fault(100) is None
    assert TransactionIndex(disk, PATH).entries == [FIRST, SECOND]


def test_transaction_index_stays_as_it_was_when_the_disk_refuses(disk: MemoryFiles, filled: TransactionIndex) -> None:
    disk.fail = failing(28, "pwrite")
    entry = AbortedTransaction(9, 150, 160, 161)
    with pytest.raises(OSError, match="28"):
        filled.append(entry)
    disk.fail = lambda operation, path: None
    filled.append(entry)
    assert TransactionIndex(disk, PATH).entries == [FIRST, SECOND, THIRD, entry]


def test_transaction_index_removed_is_empty(disk: MemoryFiles, filled: TransactionIndex) -> None:
    filled.remove()
    filled.remove()
    assert filled.entries == []
    assert disk.listdir(PATH.parent) == []


@pytest.mark.parametrize(
    "data",
    [
        FIRST_BYTES[:-1],
        b"\0\1" + FIRST_BYTES[2:],
        FIRST_BYTES + FIRST_BYTES,
        FIRST_BYTES[:2] + b"\xff" * 8 + FIRST_BYTES[10:],
        FIRST_BYTES[:10] + (111).to_bytes(8, "big") + FIRST_BYTES[18:],
    ],
    ids=["torn", "version", "not ascending", "producer id", "first above last"],
)
def test_transaction_index_fault_is_named(disk: MemoryFiles, index: TransactionIndex, data: bytes) -> None:
    disk.write_bytes(PATH, data)
    assert index.fault(100) is not None


def test_transaction_index_fault_is_a_marker_before_the_segment(disk: MemoryFiles, index: TransactionIndex) -> None:
    disk.write_bytes(PATH, FIRST_BYTES)
    assert index.fault(110) is None
    assert index.fault(111) is not None


@st.composite
def histories(draw: st.DrawFn) -> list[AbortedTransaction]:
    """Transactions of several producers that overlap, as a log would index them when all of them abort."""
    ongoing: dict[int, int] = {}
    aborted = []
    for offset, producer_id in enumerate(draw(st.lists(st.integers(0, 3), max_size=40))):
        first_offset = ongoing.pop(producer_id, None)
        if first_offset is None:
            ongoing[producer_id] = offset
        else:
            stable = min(ongoing.values(), default=offset + 1)
            aborted.append(AbortedTransaction(producer_id, first_offset, offset, stable))
    return aborted


@given(histories(), st.integers(0, 40), st.integers(0, 40))
def test_transaction_index_search_agrees_with_a_look_at_every_entry(
    entries: list[AbortedTransaction], start: int, size: int
) -> None:
    disk = MemoryFiles()
    disk.mkdir(PATH.parent)
    index = TransactionIndex(disk, PATH)
    for entry in entries:
        index.append(entry)
    end = start + size
    found, is_complete = index.aborted(start, end)
    assert found == [entry for entry in entries if entry.last_offset >= start and entry.first_offset < end]
    if not is_complete:
        assert all(entry.last_stable_offset < end for entry in entries if entry.last_offset >= start)

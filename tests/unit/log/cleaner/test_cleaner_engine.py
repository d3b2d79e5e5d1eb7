"""The offset map and the choice of records: each engine by itself, and one against the other."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable
from types import ModuleType

import pytest
from cleaner_batches import NOW_MS, data_batch
from hypothesis import given
from hypothesis import strategies as st

from tidelog_foundation.errors import CorruptRecordError, ErrorCode, TidelogError
from tidelog_foundation.records import HEADER_SIZE, RecordBatchBuilder, RecordBatchHeader, parse_header
from tidelog_node.log.cleaner import _pure as pure

ENTRY = 24
KEYS = st.binary(max_size=3)
PAIRS = st.lists(st.tuples(st.none() | KEYS, st.none() | st.binary(max_size=200)), min_size=1, max_size=150)


def split(batch: bytes) -> tuple[bytes, RecordBatchHeader]:
    return batch[HEADER_SIZE:], parse_header(batch)


def compiled() -> ModuleType:
    try:
        return importlib.import_module("tidelog_node.log.cleaner._fast")
    except ImportError:
        pytest.skip("the compiled engine is not built")


def test_offset_map_gives_the_last_offset_of_each_key(engine: ModuleType) -> None:
    offset_map = engine.OffsetMap(1000 * ENTRY, 0.9, 7)
    for offset in range(1800):
        offset_map.put(b"%d" % (offset % 900), offset)
    assert offset_map.size == 900 == offset_map.capacity
    assert [offset_map.get(b"%d" % key) for key in range(900)] == list(range(900, 1800))
    assert offset_map.get(b"absent") == -1
    assert offset_map.latest_offset == 1799


def test_offset_map_refuses_a_new_key_when_full_but_takes_a_known_one(engine: ModuleType) -> None:
    offset_map = engine.OffsetMap(4 * ENTRY, 0.5, 7)
    offset_map.put(b"a", 0)
    offset_map.put(b"b", 1)
    with pytest.raises(OverflowError):
        offset_map.put(b"c", 2)
    offset_map.put(b"a", 3)
    assert [offset_map.get(key) for key in (b"a", b"b", b"c")] == [3, 1, -1]


def test_offset_map_keeps_an_empty_entry_at_any_load_factor(engine: ModuleType) -> None:
    offset_map = engine.OffsetMap(3 * ENTRY, 1.0, 7)
    assert offset_map.capacity == 2
    offset_map.put(b"a", 0)
    offset_map.put(b"b", 1)
    assert offset_map.get(b"absent") == -1


def test_offset_map_refuses_a_buffer_without_room_for_a_key(engine: ModuleType) -> None:
    with pytest.raises(TidelogError, match=r"log\.cleaner\.dedupe\.buffer\.size") as caught:
        engine.OffsetMap(2 * ENTRY - 1, 0.9, 7)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_offset_map_index_takes_keyed_records_from_the_start_offset_on(engine: ModuleType) -> None:
    offset_map = engine.OffsetMap(100 * ENTRY, 0.9, 7)
    assert offset_map.index(*split(data_batch(10, (b"a", b"1"), (None, b"2"), (b"b", b"3"), (b"", b""))), 11)
    assert [offset_map.get(key) for key in (b"a", b"b", b"")] == [-1, 12, 13]
    assert offset_map.latest_offset == 13


def test_offset_map_index_stops_in_the_batch_at_the_record_that_does_not_fit(engine: ModuleType) -> None:
    offset_map = engine.OffsetMap(100 * ENTRY, 0.8, 7)
    pairs = [(b"%d" % (offset // 2), b"") for offset in range(200)]
    assert not offset_map.index(*split(data_batch(50, *pairs)), 0)
    assert offset_map.size == 80
    assert offset_map.latest_offset == 50 + 159
    assert offset_map.get(b"79") == 50 + 159


def test_selector_keeps_the_last_record_of_each_key(engine: ModuleType) -> None:
    offset_map = engine.OffsetMap(100 * ENTRY, 0.9, 7)
    batch = data_batch(0, (b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (None, b"4"), (b"c", None), (b"b", b"6"))
    offset_map.index(*split(batch), 0)
    selector = engine.RecordSelector(offset_map)
    selector.select(*split(batch), False)
    found = (selector.count, selector.keyless, selector.has_tombstones, selector.max_timestamp)
    assert found == (3, 1, True, NOW_MS + 5)
    selector.select(*split(batch), True)
    found = (selector.count, selector.keyless, selector.has_tombstones, selector.max_timestamp)
    assert found == (2, 1, False, NOW_MS + 5)


def test_selector_keeps_what_lies_behind_the_map(engine: ModuleType) -> None:
    offset_map = engine.OffsetMap(100 * ENTRY, 0.9, 7)
    offset_map.put(b"a", 100)
    selector = engine.RecordSelector(offset_map)
    selector.select(*split(data_batch(99, (b"a", b"1"), (b"a", b"2"), (None, b"3"), (b"a", None))), True)
    assert selector.count == 3
    assert selector.keyless == 0


@given(pairs=PAIRS, shift=st.sampled_from([0, 1, -1, 10**6, -(2**62), 2**62]), expired=st.booleans(), data=st.data())
def test_engines_choose_and_copy_alike(
    pairs: list[tuple[bytes | None, bytes | None]], shift: int, expired: bool, data: st.DataObject
) -> None:
    fast = compiled()
    batch = data_batch(5, *pairs, timestamp_ms=data.draw(st.integers(-1, 10**13)))
    section, header = split(batch)
    start = data.draw(st.integers(0, 160))
    slots = data.draw(st.sampled_from([2, 5, 40, 300]))
    outcomes = []
    for chosen in (pure, fast):
        offset_map = chosen.OffsetMap(slots * ENTRY, 0.9, 99)
        is_complete = offset_map.index(section, header, start)
        selector = chosen.RecordSelector(offset_map)
        selector.select(section, header, expired)
        outcomes.append(
            (
                is_complete,
                offset_map.size,
                offset_map.latest_offset,
                [offset_map.get(key) for key, _ in pairs if key is not None],
                (selector.count, selector.keyless, selector.has_tombstones, selector.max_timestamp),
                selector.copy(header.base_timestamp),
                selector.copy(header.base_timestamp + shift),
            )
        )
    assert outcomes[0] == outcomes[1]


@given(pairs=PAIRS, data=st.data())
def test_engines_refuse_damaged_records_alike(
    pairs: list[tuple[bytes | None, bytes | None]], data: st.DataObject
) -> None:
    fast = compiled()
    section, header = split(data_batch(5, *pairs))
    damaged = bytearray(section)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(0, len(damaged))) :]
    header = header._replace(record_count=data.draw(st.sampled_from([0, 1, header.record_count, 2**31 - 1])))
    outcomes = []
    for chosen in (pure, fast):
        offset_map = chosen.OffsetMap(300 * ENTRY, 0.9, 99)
        selector = chosen.RecordSelector(offset_map)
        try:
            offset_map.index(damaged, header, 0)
            selector.select(damaged, header, False)
            outcomes.append((selector.count, selector.max_timestamp, selector.copy(0)))
        except CorruptRecordError as error:
            outcomes.append(error.message)
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("step", ["index", "select"])
def test_other_threads_go_on_while_a_batch_of_many_records_is_looked_at(step: str) -> None:
    """The event loop is one of them: a batch of some kilobytes can hold millions of records."""
    engine = compiled()
    builder = RecordBatchBuilder()
    builder.extend([b""] * 1_500_000, [b"k"] * 1_500_000, NOW_MS)
    section, header = split(builder.build())
    offset_map = engine.OffsetMap(1000 * ENTRY, 0.9, 7)
    offset_map.advance(header.last_offset)
    looks = {
        "index": lambda: offset_map.index(section, header, 0),
        "select": lambda: engine.RecordSelector(offset_map).select(section, header, False),
    }
    # On a busy machine a look can end before this thread gets a processor, whoever has the GIL.
    assert any(_turns_beside(looks[step]) > 5 for _ in range(30))


def _turns_beside(look: Callable[[], object]) -> int:
    """Return how often this thread runs while another one runs ``look``."""
    thread, turns = threading.Thread(target=look), 0
    thread.start()
    while thread.is_alive():
        time.sleep(0)
        turns += 1
    return turns

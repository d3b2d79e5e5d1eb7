"""Planning of ranges: nothing is lost or read twice, limits hold, and data loss is seen."""

from __future__ import annotations

import json

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_foundation.errors import ConfigError, ErrorCode, TidelogError
from tidelog_spark.offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    Offsets,
    advance_offsets,
    check_within_log,
    limit_offsets,
    match_timestamps,
    offsets_from_json,
    offsets_to_json,
    plan_ranges,
    resolve_offsets,
    split_ranges,
)

KEYS = st.tuples(st.sampled_from(["a", "b.c", "d-1"]), st.integers(0, 12))
OFFSETS = st.dictionaries(KEYS, st.integers(0, 1 << 40), max_size=8)
SMALL = st.dictionaries(KEYS, st.integers(0, 50), max_size=8)


def total(ranges: list[OffsetRange]) -> int:
    return sum(planned.size for planned in ranges)


@given(OFFSETS)
def test_json_round_trips_and_has_one_form(offsets: Offsets) -> None:
    tree = offsets_to_json(offsets)
    assert offsets_from_json(tree) == offsets
    backwards = dict(sorted(offsets.items(), reverse=True))
    assert json.dumps(offsets_to_json(backwards)) == json.dumps(tree)
    assert json.dumps(offsets_to_json(offsets_from_json(json.loads(json.dumps(tree))))) == json.dumps(tree)


def test_json_orders_partitions_by_number() -> None:
    tree = offsets_to_json({("t", 10): 1, ("t", 9): 2, ("s", 0): 3})
    assert json.dumps(tree) == '{"s": {"0": 3}, "t": {"9": 2, "10": 1}}'


@given(SMALL, SMALL)
def test_ranges_cover_exactly_what_lies_between(start: Offsets, end: Offsets) -> None:
    ranges = plan_ranges(start, end)
    covered = {(r.topic, r.partition, o) for r in ranges for o in range(r.start_offset, r.end_offset)}
    expected = {(*key, o) for key, last in end.items() for o in range(start.get(key, 0), last)}
    assert covered == expected
    assert all(planned.size > 0 for planned in ranges)


@given(SMALL, st.none() | st.integers(1, 40), st.none() | st.integers(1, 60))
def test_split_ranges_keep_every_offset_once(end: Offsets, min_partitions: int | None, most: int | None) -> None:
    ranges = plan_ranges({}, end)
    parts = split_ranges(ranges, min_partitions, most)
    assert all(part.size <= most for part in parts if most is not None)
    offsets = [(p.topic, p.partition, o) for p in parts for o in range(p.start_offset, p.end_offset)]
    assert offsets == [(r.topic, r.partition, o) for r in ranges for o in range(r.start_offset, r.end_offset)]
    assert all(part.size > 0 for part in parts)


def test_split_ranges_gives_large_partitions_more_parts() -> None:
    ranges = [OffsetRange("t", 0, 0, 900), OffsetRange("t", 1, 10, 110)]
    parts = split_ranges(ranges, 10)
    assert [p.partition for p in parts] == [0] * 9 + [1]
    assert {p.size for p in parts} == {100}


@given(SMALL, SMALL, st.integers(1, 300))
def test_limit_holds_and_makes_progress(start: Offsets, end: Offsets, max_rows: int) -> None:
    limited = limit_offsets(start, end, max_rows)
    pending = total(plan_ranges(start, end))
    assert total(plan_ranges(start, limited)) == min(pending, max_rows)
    assert limited.keys() == end.keys()
    for key, offset in limited.items():
        assert offset <= end[key]
        assert offset >= min(start.get(key, 0), end[key])


@given(SMALL, st.integers(8, 300))
def test_limit_starves_no_partition(end: Offsets, max_rows: int) -> None:
    limited = limit_offsets({}, end, max_rows)
    assert all(limited[key] > 0 for key, last in end.items() if last > 0)


@given(SMALL, st.integers(1, 20))
def test_limit_repeated_reaches_the_end(end: Offsets, max_rows: int) -> None:
    reached: Offsets = dict.fromkeys(end, 0)
    for _ in range(sum(end.values()) // max_rows + 1):
        reached = limit_offsets(reached, end, max_rows)
    assert reached == end


def test_resolve_replaces_words() -> None:
    keys = [("t", 0), ("t", 1), ("t", 2)]
    wanted = dict(zip(keys, [EARLIEST, LATEST, 7], strict=True))
    resolved = resolve_offsets(wanted, dict.fromkeys(keys, 3), dict.fromkeys(keys, 9))
    assert resolved == {("t", 0): 3, ("t", 1): 9, ("t", 2): 7}


@pytest.mark.parametrize(("offset", "inside"), [(2, 3), (10, 9)])
def test_offsets_outside_of_the_log_are_data_loss(offset: int, inside: int) -> None:
    key = ("t", 0)
    with pytest.raises(TidelogError, match=r"startingOffsets of t-0 is \d+, the partition has \[3, 9\)") as raised:
        check_within_log("startingOffsets", {key: offset}, {key: 3}, {key: 9}, fail_on_data_loss=True)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert 'failOnDataLoss to "false"' in raised.value.message
    moved = check_within_log("startingOffsets", {key: offset}, {key: 3}, {key: 9}, fail_on_data_loss=False)
    assert moved == {key: inside}


@settings(max_examples=examples(30))
@given(SMALL, st.data())
def test_timestamps_start_at_the_match_or_the_latest_offset(latest: Offsets, data: st.DataObject) -> None:
    found = {key: data.draw(st.integers(-1, 60)) for key in latest}
    wanted = dict.fromkeys(latest, 1_000)
    matched = match_timestamps("startingTimestamp", wanted, found, latest, takes_latest=True)
    assert matched == {key: min(found[key], end) if found[key] >= 0 else end for key, end in latest.items()}
    if -1 in found.values():
        with pytest.raises(ConfigError, match=r"startingTimestamp: .* has no record with a timestamp of 1000 or later"):
            match_timestamps("startingTimestamp", wanted, found, latest, takes_latest=False)


def test_advance_reads_new_partitions_from_zero() -> None:
    end = advance_offsets({("t", 0): 5}, {("t", 0): 8, ("t", 1): 4}, fail_on_data_loss=True)
    assert plan_ranges({("t", 0): 5}, end) == [OffsetRange("t", 0, 5, 8), OffsetRange("t", 1, 0, 4)]


@pytest.mark.parametrize(
    ("latest", "text", "end"),
    [
        ({("t", 0): 3}, "partition t-0 ends at 3, but it was read up to 5", {("t", 0): 3}),
        ({}, "partition t-0 is gone; it was read up to 5", {("t", 0): 5}),
    ],
)
def test_advance_sees_deleted_and_recreated_topics(latest: Offsets, text: str, end: Offsets) -> None:
    with pytest.raises(TidelogError, match=text):
        advance_offsets({("t", 0): 5}, latest, fail_on_data_loss=True)
    assert advance_offsets({("t", 0): 5}, latest, fail_on_data_loss=False) == end
    assert plan_ranges({("t", 0): 5}, end) == []

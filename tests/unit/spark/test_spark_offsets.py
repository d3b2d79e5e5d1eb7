"""Planning of ranges: nothing is lost or read twice, and limits hold."""

from __future__ import annotations

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_foundation.errors import ConfigError
from tidelog_spark.source.offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    Offsets,
    limit_offsets,
    match_timestamps,
    plan_ranges,
    resolve_offsets,
    split_ranges,
)

KEYS = st.tuples(st.sampled_from(["a", "b.c", "d-1"]), st.integers(0, 12))
SMALL = st.dictionaries(KEYS, st.integers(0, 50), max_size=8)


def total(ranges: list[OffsetRange]) -> int:
    return sum(planned.size for planned in ranges)


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

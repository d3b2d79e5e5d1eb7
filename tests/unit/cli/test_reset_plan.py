"""The offsets of a reset, by the rules of kafka-consumer-groups.sh."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_cli.groups.reset_plan import (
    LogBounds,
    ResetTarget,
    ShiftBy,
    ToCurrent,
    ToEarliest,
    ToGiven,
    ToLatest,
    ToOffset,
    ToTime,
    parse_csv,
    plan_reset,
    to_csv,
)
from tidelog_foundation.errors import ErrorCode, TidelogError

A, B = ("a", 0), ("b", 3)
BOUNDS = {A: LogBounds(10, 100, 40), B: LogBounds(0, 50)}
COMMITTED = {A: 30}


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        (ToEarliest(), 10),
        (ToLatest(), 100),
        (ToCurrent(), 30),
        (ToOffset(50), 50),
        (ToOffset(100), 100),
        (ToOffset(10), 10),
        (ShiftBy(5), 35),
        (ShiftBy(-20), 10),
        (ToTime(1), 40),
        (ToGiven({A: 77}), 77),
    ],
)
def test_reset_goes_where_it_is_told(target: ResetTarget, offset: int) -> None:
    plan = plan_reset(target, {A: BOUNDS[A]}, COMMITTED)
    assert (plan.offsets, plan.warnings) == ({A: offset}, [])


@pytest.mark.parametrize(
    ("target", "offset", "warning"),
    [
        (ToOffset(101), 100, "offset 101 is above the end of a-0; using 100"),
        (ToOffset(9), 10, "offset 9 is below the start of a-0; using 10"),
        (ShiftBy(-31), 10, "offset -1 is below the start of a-0; using 10"),
        (ShiftBy(1_000), 100, "offset 1030 is above the end of a-0; using 100"),
        (ToGiven({A: 5}), 10, "offset 5 is below the start of a-0; using 10"),
    ],
)
def test_reset_beyond_the_log_is_moved_into_it_with_a_warning(target: ResetTarget, offset: int, warning: str) -> None:
    plan = plan_reset(target, {A: BOUNDS[A]}, COMMITTED)
    assert (plan.offsets, plan.warnings) == ({A: offset}, [warning])


def test_reset_to_current_is_the_end_where_nothing_is_committed() -> None:
    assert plan_reset(ToCurrent(), BOUNDS, COMMITTED).offsets == {A: 30, B: 50}


def test_reset_to_current_keeps_an_offset_that_the_log_has_no_more() -> None:
    assert plan_reset(ToCurrent(), BOUNDS, {A: 3}).offsets[A] == 3


def test_reset_to_a_time_behind_the_last_record_is_the_end() -> None:
    plan = plan_reset(ToTime(1), BOUNDS, {})
    assert plan.offsets == {A: 40, B: 50}
    assert plan.warnings == ["b-3 has no record of that time or later; using its end, 50"]


def test_reset_shifts_nothing_where_nothing_is_committed() -> None:
    with pytest.raises(TidelogError, match="the offset of b-3 cannot be shifted: none is committed") as caught:
        plan_reset(ShiftBy(1), BOUNDS, COMMITTED)
    assert caught.value.code is ErrorCode._NO_OFFSET


OFFSETS = st.integers(0, 1_000)
TARGETS = st.one_of(
    st.sampled_from([ToEarliest(), ToLatest()]),
    st.builds(ToOffset, OFFSETS),
    st.builds(ShiftBy, st.integers(-1_000, 1_000)),
    st.builds(ToTime, OFFSETS),
)


@given(TARGETS, OFFSETS, OFFSETS, OFFSETS, st.booleans())
def test_reset_stays_within_the_log(
    target: ResetTarget, start: int, size: int, committed: int, has_record: bool
) -> None:
    bounds = LogBounds(start, start + size, start + size // 2 if has_record else None)
    [offset] = plan_reset(target, {A: bounds}, {A: committed}).offsets.values()
    assert start <= offset <= start + size


def test_csv_of_one_group_has_no_group_and_of_several_has_it() -> None:
    one = {"g": {B: 2, A: 1}}
    assert to_csv(one) == "a,0,1\nb,3,2\n"
    several = {"g": {A: 1}, "h, i": {B: 2}}
    assert to_csv(several) == 'g,a,0,1\n"h, i",b,3,2\n'
    assert parse_csv(to_csv(one), ["g"]) == one
    assert parse_csv(to_csv(several), ["g", "h, i"]) == several


@pytest.mark.parametrize(
    ("text", "groups", "problem"),
    [
        ("a,0\n", ["g"], 'line 1 is not topic,partition,offset: "a,0"'),
        ("a,0,1\n\na,x,1\n", ["g"], 'line 3 is not topic,partition,offset: "g,a,x,1"'),
        ("a,0,-1\n", ["g"], "line 1 is not"),
        ("a,0,1\n", ["g", "h"], 'line 1 is not group,topic,partition,offset: "a,0,1"'),
        ("a,0,1\na,0,2\n", ["g"], "line 2 names a-0 again"),
    ],
)
def test_csv_that_is_not_valid_is_refused_with_its_line(text: str, groups: list[str], problem: str) -> None:
    with pytest.raises(TidelogError) as caught:
        parse_csv(text, groups)
    assert problem in caught.value.message

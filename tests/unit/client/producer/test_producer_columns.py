"""Rows spread over partitions: both twins give what a simple loop gives, and say what is wrong with a column."""

from __future__ import annotations

import importlib
from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow
import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.producer.columns import slice_rows
from tidelog.producer.core.hashes import KeyHash
from tidelog_foundation.records.columns import BinaryColumn
from tidelog_foundation.records.sources import content_at, content_source, rows_of

CONTENTS = st.lists(st.none() | st.binary(max_size=20), max_size=40)
FORMS = {
    "list": list,
    "binary": lambda values: pyarrow.array([b"before", *values], pyarrow.binary())[1:],
    "large": lambda values: pyarrow.array(values, pyarrow.large_binary()),
}


@pytest.fixture(params=["_pure_columns", "_fast_columns"], ids=["pure", "compiled"], scope="module")
def columns(request: pytest.FixtureRequest) -> Any:
    try:
        return importlib.import_module(f"tidelog.producer.core.{request.param}")
    except ImportError as error:
        pytest.skip(f"the compiled engine is not built: {error}")


def contents_of(column: Any) -> list[bytes | None]:
    return [content_at(column, row, "value") for row in range(rows_of(column))]


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=examples(40))
@given(values=CONTENTS)
def test_largest_names_the_first_row_of_that_size(columns: Any, form: str, values: list[bytes | None]) -> None:
    size, row = columns.largest(content_source(FORMS[form](values), "value"), list(reversed(values)))
    sizes = [len(v or b"") + len(k or b"") for v, k in zip(values, reversed(values), strict=True)]
    assert (size, row) == ((max(sizes), sizes.index(max(sizes))) if sizes else (0, -1))


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=examples(40))
@given(values=CONTENTS, data=st.data())
def test_gather_takes_the_rows_that_it_is_given(columns: Any, form: str, values: list[bytes | None], data: Any) -> None:
    rows = array("q", data.draw(st.lists(st.integers(0, len(values) - 1), max_size=30) if values else st.just([])))
    start = data.draw(st.integers(0, len(rows)))
    limit = data.draw(st.integers(0, 100))
    column = columns.gather(content_source(FORMS[form](values), "value"), rows, start, len(rows), limit, "value")
    expected = [values[row] for row in rows[start:]]
    taken = contents_of(column)
    assert taken == expected[: len(taken)]
    assert sum(len(content or b"") for content in taken[1:]) <= limit
    if len(taken) < len(expected):
        assert taken
        assert sum(len(content or b"") for content in expected[: len(taken) + 1]) > limit


@settings(max_examples=examples(40))
@given(chosen=st.lists(st.integers(-1, 6), max_size=60))
def test_group_sorts_rows_by_partition_and_keeps_their_order(columns: Any, chosen: list[int]) -> None:
    rows, starts = columns.group(array("i", chosen), 7)
    assert list(rows) == sorted(range(len(chosen)), key=lambda row: chosen[row])
    sizes = [chosen.count(partition) for partition in range(-1, 7)]
    assert [end - start for start, end in pairwise(starts)] == sizes


@pytest.mark.parametrize("kind", [KeyHash.MURMUR2, KeyHash.CRC32, KeyHash.FNV1A])
@settings(max_examples=examples(40))
@given(keys=CONTENTS, empty_sticks=st.booleans(), keyless=st.sampled_from([-1, 12]), given_ones=st.randoms())
def test_choose_partitions_hashes_keys_where_no_partition_is_given(
    columns: Any, kind: KeyHash, keys: list[bytes | None], empty_sticks: bool, keyless: int, given_ones: Any
) -> None:
    chosen = array("i", [given_ones.choice([-1, 3]) for _ in keys])
    expected = list(chosen)
    for row, key in enumerate(keys):
        if expected[row] != -1:
            continue
        if key is None:
            expected[row] = keyless % 9 if keyless >= 0 else -1
        elif key or not empty_sticks:
            expected[row] = kind.of(key) % 9
    columns.choose_partitions(keys, int(kind), keyless, empty_sticks, 9, chosen)
    assert list(chosen) == expected


def test_fill_stamp_and_pick_go_by_rows_or_in_a_row(columns: Any) -> None:
    offsets, rows = array("q", [-1] * 6), array("q", [4, 0, 2])
    columns.fill(offsets, rows, 1, 2, 70)
    columns.fill(memoryview(offsets)[3:], None, 0, 1, 90)
    assert list(offsets) == [70, -1, 71, 90, -1, -1]
    partitions = array("i", [-1] * 6)
    columns.stamp(partitions, rows, 0, 2, 5)
    columns.stamp(memoryview(partitions)[1:], None, 0, 1, 3)
    assert list(partitions) == [5, 3, -1, -1, 5, -1]
    assert list(columns.pick(memoryview(array("q", [10, 11, 12, 13, 14])), rows, 0, 2)) == [14, 10]


def test_columns_of_other_things_are_refused(columns: Any) -> None:
    broken: Sequence[Any] = [b"a", "b"]
    rows = array("q", [0, 1])
    with pytest.raises(TypeError, match="value 1: expected bytes or None, got str"):
        columns.largest(broken, None)
    with pytest.raises(TypeError, match="key 1: expected bytes or None, got str"):
        columns.largest([b"a", b"b"], broken)
    with pytest.raises(TypeError, match="key 1"):
        columns.choose_partitions(broken, 1, -1, False, 3, array("i", [-1, -1]))
    with pytest.raises(TypeError, match="value 1"):
        columns.gather(broken, rows, 0, 2, 100, "value")


@pytest.mark.parametrize("form", [*FORMS, "fixed"])
def test_slice_rows_takes_rows_of_any_form(form: str) -> None:
    values = [b"ab", None, b"cd", b"ef", None]
    made = pyarrow.array(values, pyarrow.binary(2)) if form == "fixed" else FORMS[form](values)
    source = content_source(made, "value")
    assert isinstance(source, BinaryColumn | list)
    assert contents_of(slice_rows(source, 1, 4)) == values[1:4]
    assert contents_of(slice_rows(slice_rows(source, 1, 5), 1, 2)) == values[2:3]

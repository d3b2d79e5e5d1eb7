"""The minimum size of micro-batches: no batch is smaller, except the first one and those that come too late."""

from __future__ import annotations

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_spark.source.pacing import Pacing, parse_duration


@settings(max_examples=examples(30))
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20))), st.integers(1, 20), st.integers(0, 100))
def test_batch_waits_exactly_while_it_is_small_and_early(
    triggers: list[tuple[int, int]], least: int, delay: int
) -> None:
    pacing, last, now = Pacing(least, delay), None, 0
    for elapsed, pending in triggers:
        now += elapsed
        expected = last is not None and now - last < delay and pending < least
        assert pacing.must_wait(pending, now) == expected
        last = last if expected else now


@pytest.mark.parametrize(
    ("text", "ms"), [("15m", 900_000), ("15min", 900_000), ("500", 500), (" 2 S ", 2_000), ("1h", 3_600_000)]
)
def test_duration_has_sparks_units(text: str, ms: float) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize("text", ["", "soon", "-5s", "1.5h", "5 weeks"])
def test_duration_is_refused_in_another_form(text: str) -> None:
    with pytest.raises(ValueError, match="must be a number with one of the units"):
        parse_duration(text)

"""Deadlines against a plain dictionary of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog_node.shards.deadlines import Deadlines

changes = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 9)), max_size=20)


@given(changes)
def test_deadlines_know_the_next_and_what_is_due(steps: list[tuple[str, int | None]]) -> None:
    deadlines = Deadlines()
    expected: dict[str, int] = {}
    for key, deadline_ms in steps:
        if deadline_ms is None:
            deadlines.cancel(key)
            expected.pop(key, None)
        else:
            deadlines.set(key, deadline_ms)
            expected[key] = deadline_ms
        assert deadlines.next_ms() == min(expected.values(), default=None)
        assert all((key in deadlines) == (key in expected) for key in "abc")
        if key == "c":
            expired = sorted((at_ms, key) for key, at_ms in expected.items() if at_ms <= 5)
            assert deadlines.pop_expired(5) == [key for _, key in expired]
            expected = {key: at_ms for key, at_ms in expected.items() if at_ms > 5}

"""The time for which a known position has not been reached."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog_foundation.monitoring.backlog import Backlog


def test_backlog_has_not_caught_up_before_it_reaches_its_first_target() -> None:
    backlog = Backlog()
    backlog.observe(3, 10, 0)
    assert not backlog.has_caught_up
    assert backlog.age_ms(700) == 700
    backlog.observe(9, 20, 800)
    assert not backlog.has_caught_up
    backlog.observe(10, 30, 900)
    assert backlog.has_caught_up


def test_backlog_that_follows_a_moving_target_is_never_old() -> None:
    backlog = Backlog()
    for now in range(0, 100_000, 500):
        backlog.observe(now - 1_000, now, now)
    assert backlog.has_caught_up
    assert backlog.age_ms(100_000) <= 1_500


def test_backlog_that_stands_still_grows_old() -> None:
    backlog = Backlog()
    backlog.observe(5, 5, 0)
    for now in range(0, 10_000, 500):
        backlog.observe(5, 6 + now, now)
    assert backlog.age_ms(10_000) == 10_000


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=30))
def test_backlog_has_no_age_while_the_newest_target_is_reached(steps: list[tuple[int, int]]) -> None:
    backlog, reached, target = Backlog(), 0, 0
    for now, (progress, growth) in enumerate(steps):
        target += growth
        reached = min(target, reached + progress)
        backlog.observe(reached, target, now)
        if reached == target:
            assert backlog.has_caught_up
            assert backlog.age_ms(now + 50) == 0

"""The pauses before a process is started again."""

from __future__ import annotations

from tidelog_node.processes.restarts import LONG_LIFE_S, Restarts


def test_pauses_double_as_long_as_lives_are_short() -> None:
    restarts = Restarts()
    assert [restarts.pause_s(-9, 1) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert restarts.pause_s(-9, LONG_LIFE_S) == 1


def test_process_that_refuses_its_settings_at_once_does_not_start_again() -> None:
    assert Restarts().pause_s(2, 0.1) is None


def test_process_that_ran_before_starts_again_whatever_it_says() -> None:
    restarts = Restarts()
    assert restarts.pause_s(1, 1) == 1
    assert restarts.pause_s(2, 1) == 2, "its port may be in use for a moment"

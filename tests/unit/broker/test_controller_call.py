"""A node's call to the leading controller: order of attempts, deadlines, pauses and its end."""

from __future__ import annotations

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.broker.controller_call import Attempt, CallTimings, ControllerCall, ControllerChoice, GiveUp, Pause

TIMINGS = CallTimings(timeout_ms=1_000, attempt_timeout_ms=300, pause_ms=50, max_pause_ms=120)


def call(choice: ControllerChoice[str], *, repeats: bool = True) -> ControllerCall[str]:
    return ControllerCall(choice, TIMINGS, now_ms=0, repeats=repeats)


def not_leader() -> TidelogError:
    return error_for(ErrorCode.NOT_CONTROLLER, "not me")


def test_call_asks_the_hinted_leader_next_and_later_calls_ask_it_first() -> None:
    choice = ControllerChoice(["a", "b", "c"])
    first = call(choice)
    assert first.attempt(0) == Attempt("a", 300)
    assert first.fail(not_leader(), "z", 10) == Attempt("z", 300)
    assert call(choice).attempt(20) == Attempt("z", 300)


@pytest.mark.parametrize("hint", [None, "a"])
def test_call_asks_the_next_controller_without_a_hint_to_another_one(hint: str | None) -> None:
    asked = call(ControllerChoice(["a", "b"]))
    asked.attempt(0)
    assert asked.fail(not_leader(), hint, 10) == Attempt("b", 300)


def test_call_pauses_for_longer_each_time_that_all_controllers_have_failed() -> None:
    asked = call(ControllerChoice(["a"]))
    pauses = []
    for now_ms in (0, 100, 200):
        assert asked.attempt(now_ms) == Attempt("a", 300)
        pauses.append(asked.fail(error_for(ErrorCode._TRANSPORT, "down"), None, now_ms))
    assert pauses == [Pause(50), Pause(100), Pause(120)]


def test_call_gives_up_at_its_deadline_with_the_latest_failure() -> None:
    asked = call(ControllerChoice(["a", "b"]))
    asked.attempt(0)
    assert asked.fail(not_leader(), None, 900) == Attempt("b", 100)
    end = asked.fail(error_for(ErrorCode.REQUEST_TIMED_OUT, "silent"), "a", 1_000)
    assert isinstance(end, Pause)
    end = asked.attempt(1_050)
    assert isinstance(end, GiveUp)
    assert (end.error.code, end.error.message) == (
        ErrorCode.REQUEST_TIMED_OUT,
        "no controller answered within 1.0 s (b: silent)",
    )


def test_call_ends_with_the_leaders_own_error() -> None:
    choice = ControllerChoice(["a", "b"])
    asked = call(choice)
    asked.attempt(0)
    error = error_for(ErrorCode.STALE_BROKER_EPOCH, "old")
    assert asked.fail(error, None, 1) == GiveUp(error)
    assert choice.next == "a"


def test_call_that_does_not_repeat_ends_with_its_error_and_the_next_call_asks_another_controller() -> None:
    choice = ControllerChoice(["a", "b"])
    asked = call(choice, repeats=False)
    asked.attempt(0)
    error = not_leader()
    assert asked.fail(error, None, 1) == GiveUp(error)
    assert choice.next == "b"


def test_choice_keeps_configured_controllers_as_the_last_resort() -> None:
    choice = ControllerChoice(["a", "b"])
    choice.use_voters(["c", "b"])
    assert choice.addresses == ["c", "b", "a"]
    choice.turn("a", None)
    assert choice.next == "c"
    choice.turn("gone", None)
    assert choice.next == "c"

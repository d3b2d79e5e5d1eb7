"""A reader's fetch session against a model of the node: after each answer both know of the same partitions."""

from __future__ import annotations

import random

import pytest

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.fetch_session import FULL_EPOCH, MAX_EPOCH, FetchSessionHandler, SessionRequest

Handler = FetchSessionHandler[str, int]


def begun(**wanted: int) -> Handler:
    handler = Handler()
    for key, value in wanted.items():
        handler.want(key, value)
    assert handler.build() == SessionRequest(0, FULL_EPOCH, wanted, ())
    assert handler.take_answer(7, set(wanted))
    return handler


def test_handler_names_what_is_new_and_forgets_what_is_not_wanted() -> None:
    handler = begun(a=1, b=1, c=1)
    handler.want("a", 1)
    assert handler.build() == SessionRequest(7, 1, {}, ())
    assert handler.take_answer(7, set())
    handler.want("b", 2)
    handler.want("d", 1)
    handler.forget("c")
    handler.forget("x")
    assert handler.build() == SessionRequest(7, 2, {"b": 2, "d": 1}, ("c",))
    assert handler.take_answer(7, {"a", "b"}), "an answer may have what the request did not name"
    assert [handler.sent(key) for key in "abcd"] == [1, 2, None, 1]


def test_handler_names_again_what_was_forgotten_before_the_node_heard_of_it() -> None:
    handler = begun(a=1)
    handler.forget("a")
    handler.want("a", 1)
    assert handler.build() == SessionRequest(7, 1, {"a": 1}, ())


def test_handler_does_not_forget_what_the_node_never_heard_of() -> None:
    handler = begun(a=1)
    handler.want("b", 1)
    handler.forget("b")
    assert handler.build() == SessionRequest(7, 1, {}, ())


def test_handler_keeps_what_is_wanted_while_a_request_is_under_way() -> None:
    handler = begun(a=1, b=1)
    handler.build()
    handler.want("a", 2)
    handler.forget("b")
    assert handler.sent("a") == 1
    assert handler.take_answer(7, {"b"})
    assert handler.build() == SessionRequest(7, 2, {"a": 2}, ("b",))


def test_handler_begins_anew_after_a_failure_and_ends_the_session() -> None:
    handler = begun(a=1, b=1)
    handler.want("a", 2)
    handler.build()
    handler.take_failure()
    assert handler.build() == SessionRequest(7, FULL_EPOCH, {"b": 1, "a": 2}, ())
    assert handler.take_answer(8, {"a", "b"})
    assert handler.build() == SessionRequest(8, 1, {}, ())


@pytest.mark.parametrize(
    ("code", "session_id"), [(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7)]
)
def test_handler_begins_anew_after_an_error_of_the_session(code: ErrorCode, session_id: int) -> None:
    handler = begun(a=1)
    handler.build()
    handler.take_error(code)
    assert handler.build() == SessionRequest(session_id, FULL_EPOCH, {"a": 1}, ())


def test_handler_asks_in_full_while_the_node_keeps_no_session() -> None:
    handler = begun(a=1)
    handler.build()
    assert handler.take_answer(0, set())
    assert handler.was_refused
    for _ in range(2):
        assert handler.build() == SessionRequest(0, FULL_EPOCH, {"a": 1}, ())
        assert handler.take_answer(0, {"a"})


def test_handler_takes_no_answer_that_does_not_fit() -> None:
    handler = begun(a=1)
    handler.build()
    assert not handler.take_answer(7, {"x"})
    assert handler.build().epoch == FULL_EPOCH
    assert not handler.take_answer(7, set()), "an answer to a full request has all partitions"
    assert handler.build().epoch == FULL_EPOCH


def test_handler_goes_on_with_one_after_the_last_epoch() -> None:
    handler = begun(a=1)
    handler.epoch = MAX_EPOCH
    handler.build()
    assert handler.take_answer(7, set())
    assert handler.epoch == 1


@pytest.mark.parametrize("seed", range(40))
def test_handler_and_node_know_of_the_same_partitions_whatever_is_lost(seed: int) -> None:
    rng = random.Random(seed)
    handler = Handler()
    sessions: dict[int, tuple[int, dict[str, int]]] = {}
    wanted: dict[str, int] = {}
    for turn in range(300):
        key = rng.choice("abcdef")
        if rng.random() < 0.6:
            wanted[key] = rng.randint(0, 3)
            handler.want(key, wanted[key])
        else:
            wanted.pop(key, None)
            handler.forget(key)
        handler.check_invariants()
        if rng.random() < 0.5:
            continue
        request = handler.build()
        if rng.random() < 0.1:
            handler.take_failure()
            continue
        if request.is_full:
            sessions.pop(request.session_id, None)
            session_id, named = turn + 1, dict(request.wanted)
            if rng.random() < 0.9:
                sessions[session_id] = (1, named)
            else:
                session_id = 0
        else:
            session_id = request.session_id
            if rng.random() < 0.05:
                del sessions[session_id]
                handler.take_error(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
                continue
            epoch, named = sessions[session_id]
            assert epoch == request.epoch
            named.update(request.wanted)
            for forgotten in request.forgotten:
                del named[forgotten]
            sessions[session_id] = (epoch + 1, named)
        assert named == wanted, "the node fetches what is wanted, and nothing else"
        if rng.random() < 0.1:
            handler.take_failure()
        else:
            answered = set(named) if request.is_full else {k for k in named if rng.random() < 0.5}
            assert handler.take_answer(session_id, answered)
        handler.check_invariants()

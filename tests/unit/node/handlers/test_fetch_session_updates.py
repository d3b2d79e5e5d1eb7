"""A request that changes many partitions of a fetch session: it is taken in step by step, whole or not at all."""

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_node.fetching import FetchRequest, SessionStep
from tidelog_node.handlers.fetch_sessions import FetchSessions
from tidelog_node.replication import FetchSpec
from tidelog_node.replication.fetch_session import FULL_EPOCH

SPEC = FetchSpec(b"", 0, 1)
FULL = SessionStep(0, FULL_EPOCH)
MANY = 50


def keys(first, end):
    return [("t", index) for index in range(first, end)]


def request(session, named=(), forgotten=()):
    return FetchRequest(dict.fromkeys(named, SPEC), 1 << 20, session=session, forgotten=forgotten)


def open_sessions(named):
    """Return sessions of which one is open, and its id."""
    sessions = FetchSessions()
    session_id = sessions.finish(sessions.begin(request(FULL, named), 0), wants_slot=True, now_ms=0)
    assert session_id
    return sessions, session_id


def result_of(steps):
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


def test_session_update_takes_a_step_for_every_partition():
    sessions, session_id = open_sessions(keys(0, MANY))
    asked = request(SessionStep(session_id, 1), keys(MANY, 2 * MANY), keys(0, MANY))
    session, steps = result_of(sessions.begin_in_steps(asked, 1))
    assert list(session.state.partitions) == keys(MANY, 2 * MANY)
    assert steps >= 2 * MANY
    assert not session.is_changing
    sessions.cache.check_invariants()


def test_session_update_is_refused_to_others_until_it_is_whole():
    sessions, session_id = open_sessions(keys(0, 1))
    asked = sessions.begin_in_steps(request(SessionStep(session_id, 1), keys(0, MANY)), 1)
    next(asked)
    with pytest.raises(TidelogError, match=f"fetch session {session_id} still takes in") as refused:
        sessions.begin(request(SessionStep(session_id, 2)), 1)
    assert refused.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    session, _ = result_of(asked)
    assert len(session.state.partitions) == MANY
    assert sessions.begin(request(SessionStep(session_id, 2)), 1) is session


def test_session_update_lets_no_earlier_request_answer_meanwhile():
    sessions, session_id = open_sessions(keys(0, 1))
    session = sessions.begin(request(SessionStep(session_id, 1)), 1)
    turn = session.begin()
    asked = sessions.begin_in_steps(request(SessionStep(session_id, 2), keys(0, MANY)), 1)
    next(asked)
    assert not session.is_turn_of(turn)


def test_session_update_that_is_given_up_ends_the_session():
    sessions, session_id = open_sessions(keys(0, 1))
    asked = sessions.begin_in_steps(request(SessionStep(session_id, 1), keys(0, MANY)), 1)
    next(asked)
    asked.close()
    with pytest.raises(TidelogError) as ended:
        sessions.begin(request(SessionStep(session_id, 2)), 1)
    assert ended.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_session_update_of_a_session_that_ends_meanwhile_is_refused():
    sessions, session_id = open_sessions(keys(0, 1))
    asked = sessions.begin_in_steps(request(SessionStep(session_id, 1), keys(0, MANY)), 1)
    next(asked)
    sessions.begin(request(SessionStep(session_id, FULL_EPOCH), keys(0, 1)), 1)
    with pytest.raises(TidelogError) as ended:
        result_of(asked)
    assert ended.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH

"""The states of a client's telemetry: what it sends, when, and what the errors of nodes change (KIP-714)."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidelog.telemetry.session import (
    Accepted,
    Ask,
    Closing,
    Push,
    Refused,
    State,
    Subscribed,
    Subscription,
    TelemetrySession,
    TimePassed,
    Unanswered,
)
from tidelog_foundation.errors import ErrorCode, error_for

ID = bytes(range(16))
INTERVAL_MS = 10_000
DEFAULT_MS = 300_000
REFUSALS = (
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.TELEMETRY_TOO_LARGE,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.INVALID_RECORD,
)


def subscription(*metrics: str) -> Subscription:
    return Subscription(ID, 7, INTERVAL_MS, metrics)


def refused(code: ErrorCode) -> Refused:
    return Refused(error_for(code, "refused"))


def subscribed_session(random: float = 0.0) -> TelemetrySession:
    session = TelemetrySession(lambda: random)
    assert session.step(TimePassed(), 0) == Ask(b"")
    session.step(Subscribed(subscription("a.")), 0)
    return session


def pushing_session() -> TelemetrySession:
    session = subscribed_session()
    assert isinstance(session.step(TimePassed(), INTERVAL_MS), Push)
    return session


@pytest.mark.parametrize(("random", "first_ms"), [(0.0, 5_000), (0.5, 10_000), (1.0, 15_000)])
def test_first_push_follows_after_a_jittered_interval_and_the_next_after_a_whole_one(
    random: float, first_ms: int
) -> None:
    session = subscribed_session(random)
    assert session.next_deadline_ms == first_ms
    assert session.step(TimePassed(), first_ms - 1) is None
    assert session.step(TimePassed(), first_ms) == Push(subscription("a."))
    session.step(Accepted(), first_ms + 3)
    assert session.next_deadline_ms == first_ms + 3 + INTERVAL_MS


def test_client_without_subscription_asks_again_after_the_interval_with_its_id() -> None:
    session = TelemetrySession(lambda: 0.0)
    session.step(TimePassed(), 0)
    session.step(Subscribed(subscription()), 5)
    assert session.step(TimePassed(), 4 + INTERVAL_MS) is None
    assert session.step(TimePassed(), 5 + INTERVAL_MS) == Ask(ID)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE])
def test_client_asks_at_once_after_a_push_for_another_subscription(code: ErrorCode) -> None:
    session = pushing_session()
    session.step(refused(code), 20_000)
    assert session.step(TimePassed(), 20_000) == Ask(ID)


@pytest.mark.parametrize("code", [ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED])
def test_client_waits_for_an_interval_after_a_refusal_of_its_pace_or_size(code: ErrorCode) -> None:
    session = pushing_session()
    session.step(refused(code), 20_000)
    assert (session.state, session.next_deadline_ms) == (State.SUBSCRIPTION_NEEDED, 20_000 + INTERVAL_MS)
    new = TelemetrySession(lambda: 0.0)
    new.step(TimePassed(), 0)
    new.step(refused(code), 0)
    assert new.next_deadline_ms == DEFAULT_MS


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_VERSION, ErrorCode._FAIL]
)
def test_other_refusals_end_the_telemetry(code: ErrorCode) -> None:
    session = pushing_session()
    session.step(refused(code), 20_000)
    assert session.disabled_by is not None
    assert session.step(TimePassed(), 10**12) is None
    assert session.step(Closing(), 10**12) is None
    assert session.state is State.TERMINATED


def test_unanswered_push_is_repeated_with_the_same_subscription() -> None:
    session = pushing_session()
    session.step(Unanswered(), 20_000)
    assert session.step(TimePassed(), 20_000 + INTERVAL_MS) == Push(subscription("a."))


def test_closing_client_pushes_once_more_only_if_it_has_something_to_push() -> None:
    for session in (subscribed_session(), pushing_session()):
        assert session.step(Closing(), 0) == Push(subscription("a."), is_terminating=True)
        assert session.step(Closing(), 0) is None
        session.step(refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED), 1)
        assert session.state is State.TERMINATED
        assert session.step(TimePassed(), 10**12) is None
    new = TelemetrySession(lambda: 0.0)
    assert new.step(Closing(), 0) is None
    assert new.state is State.TERMINATED


def test_selection_is_by_prefix() -> None:
    chosen = subscription("a.b", "c.")
    assert [name for name in ("a.bc", "a.c", "c.d", "c") if chosen.selects(name)] == ["a.bc", "c.d"]
    assert all(subscription(everything).selects("any") for everything in ("*", ""))


class Histories(RuleBasedStateMachine):
    """Any order of answers, errors and times: at most one request at a time, none too early, none after the end."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.session = TelemetrySession(lambda: 0.0)
        self.in_flight: Ask | Push | None = None
        self.last_ms = -(10**9)
        self.may_hurry = False
        self.pushes_at_end = 0
        self.is_closed = False

    def send(self, request: Ask | Push | None) -> None:
        if request is None:
            return
        assert self.in_flight is None
        assert not self.is_closed
        if isinstance(request, Push):
            assert request.subscription.metrics
        # Half an interval is the least time between two requests, apart from one that a node's refusal asks for.
        assert self.now_ms - self.last_ms >= INTERVAL_MS / 2 or self.may_hurry
        self.may_hurry = False
        self.last_ms = self.now_ms
        self.in_flight = request

    @rule(passed_ms=st.sampled_from([0, 1, 4_999, 5_000, 10_000, 30_000, 300_000]))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.send(self.session.step(TimePassed(), self.now_ms))

    @precondition(lambda self: self.in_flight is not None)
    @rule(metrics=st.sampled_from([(), ("a.",)]))
    def succeeds(self, metrics: tuple[str, ...]) -> None:
        asked, self.in_flight = isinstance(self.in_flight, Ask), None
        self.session.step(Subscribed(subscription(*metrics)) if asked else Accepted(), self.now_ms)

    @precondition(lambda self: self.in_flight is not None)
    @rule(code=st.sampled_from(REFUSALS))
    def is_refused(self, code: ErrorCode) -> None:
        pushed, self.in_flight = isinstance(self.in_flight, Push), None
        error = error_for(code, "refused")
        self.may_hurry = pushed and error.code in (
            ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )
        self.session.step(Refused(error), self.now_ms)

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def has_no_answer(self) -> None:
        self.in_flight = None
        self.session.step(Unanswered(), self.now_ms)

    @rule()
    def closes(self) -> None:
        last = self.session.step(Closing(), self.now_ms)
        self.in_flight = None
        self.is_closed = True
        if last is not None:
            self.pushes_at_end += 1
            assert isinstance(last, Push)
            assert last.is_terminating

    @invariant()
    def is_sound(self) -> None:
        self.session.check_invariants()
        assert self.pushes_at_end <= 1


TestHistories = Histories.TestCase

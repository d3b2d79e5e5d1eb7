"""The table of sessions and the limit on logins, as state machines of random calls."""

from __future__ import annotations

from example_counts import examples, steps
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tidelog_foundation.sasl.logins import Login, Logins
from tidelog_foundation.sasl.sessions import Session, SessionLimits, SessionTable
from tidelog_foundation.security.principal import USER, Principal

LIMITS = SessionLimits(max_sessions=6, max_per_owner=3, max_idle_ms=100)
NAMES = st.sampled_from(["alice", "bob", "carol"])
HOSTS = st.sampled_from(["a", "b", "c", "d"])


def begin(table: SessionTable, n: int, name: str = "alice", host: str = "a", now_ms: float = 0) -> Session:
    return table.begin(n.to_bytes(4), Principal(USER, name), host, now_ms)


class Sessions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = SessionTable(LIMITS)
        self.now_ms = 0.0
        self.began: list[Session] = []

    @rule(name=NAMES, host=HOSTS, lifetime_ms=st.none() | st.integers(0, 200))
    def begin(self, name: str, host: str, lifetime_ms: int | None) -> None:
        expires_at_ms = None if lifetime_ms is None else self.now_ms + lifetime_ms
        digest = len(self.began).to_bytes(4)
        principal = Principal(USER, name)
        session = self.table.begin(digest, principal, host, self.now_ms, expires_at_ms=expires_at_ms)
        self.began.append(session)
        assert session.is_valid(self.now_ms) is (lifetime_ms != 0)

    @rule(data=st.data())
    def find(self, data: st.DataObject) -> None:
        if self.began:
            session = data.draw(st.sampled_from(self.began))
            found = self.table.find(session.digest, self.now_ms)
            assert found is (session if session.is_valid(self.now_ms) else None)

    @rule(passed_ms=st.integers(0, 2_000))
    def wait(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @rule(data=st.data())
    def stream(self, data: st.DataObject) -> None:
        if self.began:
            session = data.draw(st.sampled_from(self.began))
            session.streams = 1 - session.streams

    @invariant()
    def table_keeps_its_limits(self) -> None:
        self.table.check_invariants()


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=examples(25), stateful_step_count=steps(30), deadline=None)


def test_session_unused_for_longest_makes_room_for_one_of_its_owner() -> None:
    table = SessionTable(SessionLimits(max_per_owner=3))
    first, second, third = (begin(table, n) for n in range(3))
    assert table.find(first.digest, 5_000) is first
    begin(table, 3, now_ms=5_000)
    assert [each.has_ended for each in (first, second, third)] == [False, True, False]
    assert len(table) == 3


def test_idle_session_ends_unless_it_has_a_stream() -> None:
    table = SessionTable(LIMITS)
    idle, streaming = begin(table, 0), begin(table, 1)
    streaming.streams = 1
    begin(table, 2, now_ms=LIMITS.max_idle_ms + 1)
    assert (idle.has_ended, streaming.has_ended) == (True, False)


def test_login_storm_of_one_principal_ends_no_session_of_others() -> None:
    table = SessionTable(SessionLimits(max_sessions=50, max_per_owner=20))
    others = [begin(table, n, f"user-{n}", f"host-{n}") for n in range(20)]
    for n in range(20_000):
        begin(table, 100 + n, "mallory", f"bot-{n % 1_000}")
    assert not any(session.has_ended for session in others)
    table.check_invariants()


def test_logins_of_one_host_never_take_the_place_of_another_one() -> None:
    logins, aborted = Logins(4), []

    def login(host: str, name: str) -> Login:
        return Login(host, lambda: aborted.append(name))

    assert all(logins.begin(login("bad", f"bad-{n}")) for n in range(4))
    assert not logins.begin(login("bad", "bad-5")), "it has the most itself"
    assert logins.begin(login("good", "good"))
    assert aborted == ["bad-0"]
    assert len(logins) == 4

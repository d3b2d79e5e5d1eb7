"""The cache of fetch sessions: which requests it takes, and who makes room for whom (KIP-227)."""

import itertools
import random

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_node.replication import FetchSession, FetchSessionCache, FetchSpec
from tidelog_node.replication.fetch_session import EVICTION_MS, MAX_EPOCH, MAX_SESSION_PARTITIONS, next_epoch

SPEC = FetchSpec(b"", 0, 1)
FOLLOWER = (2, 7)


def cache_of(slots, **limits):
    return FetchSessionCache(slots, itertools.count(1).__next__, **limits)


def update(session, named, forgotten):
    """Take in a request; return the partitions that it took out."""
    for _ in session.add_in_steps(named):
        pass
    return [key for key in forgotten if session.remove(key)]


def session_of(partitions=1, replica=None, now_ms=0):
    session = FetchSession(replica, now_ms)
    update(session, {("t", index): SPEC for index in range(partitions)}, ())
    return session


def admitted(cache, *arguments, now_ms=0, **fields):
    session = session_of(*arguments, now_ms=now_ms, **fields)
    is_admitted, gone = cache.admit(session, now_ms)
    cache.check_invariants()
    return session if is_admitted else None, gone


def code_of(call):
    with pytest.raises(TidelogError) as raised:
        call()
    return raised.value.code


def test_session_expects_one_epoch_after_the_other():
    cache = cache_of(1)
    session, _ = admitted(cache)
    assert cache.resume(session.id, 1, None, 5) is session
    assert code_of(lambda: cache.resume(session.id, 1, None, 5)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert code_of(lambda: cache.resume(session.id, 3, None, 5)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert session.epoch == 2, "a refused request changes nothing"
    assert code_of(lambda: cache.resume(99, 1, None, 5)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert next_epoch(MAX_EPOCH) == 1


def test_session_is_its_readers_alone():
    cache = cache_of(2)
    session, _ = admitted(cache, replica=FOLLOWER)
    for other in (None, (3, 7), (2, 8)):
        assert code_of(lambda who=other: cache.resume(session.id, 1, who, 0)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_session_is_looked_at_where_it_was_named_or_marked():
    session = session_of(3)
    assert session.take_changed() == [("t", 0), ("t", 1), ("t", 2)]
    assert session.take_changed() == []
    session.mark(("t", 2))
    session.mark(("other", 0))
    removed = update(session, {("t", 2): SPEC, ("t", 9): SPEC}, [("t", 0), ("t", 77)])
    assert removed == [("t", 0)]
    assert session.take_changed() == [("t", 2), ("t", 9)]


def test_session_partition_is_news_when_it_was_named_or_is_different():
    session = session_of()
    partition = session.partitions["t", 0]
    partition.tell(5, 1)
    assert [partition.is_news(5, 1), partition.is_news(6, 1), partition.is_news(5, 2)] == [False, True, True]
    update(session, {("t", 0): SPEC}, ())
    assert partition.is_news(5, 1)
    partition.tell(5, 1)
    partition.tell_error()
    assert partition.is_news(5, 1), "what follows an error is news"


def test_cache_refuses_a_newcomer_that_is_worth_no_more_than_young_sessions():
    cache = cache_of(1)
    old, _ = admitted(cache, 1)
    assert admitted(cache, 100, now_ms=EVICTION_MS) == (None, [])
    assert len(cache) == 1
    assert cache.resume(old.id, 1, None, 0) is old


def test_cache_gives_the_place_of_a_session_that_nobody_used_for_two_minutes():
    cache = cache_of(2)
    stale, _ = admitted(cache, 50, replica=FOLLOWER)
    used, _ = admitted(cache, 1)
    cache.resume(used.id, 1, None, EVICTION_MS)
    newcomer, gone = admitted(cache, 1, now_ms=EVICTION_MS + 1)
    assert (newcomer is not None, gone) == (True, [stale])


def test_cache_prefers_followers_and_then_the_larger_of_settled_sessions():
    cache = cache_of(2)
    small, _ = admitted(cache, 2)
    large, _ = admitted(cache, 9)
    later = EVICTION_MS + 1
    for session in (small, large):
        cache.resume(session.id, 1, None, later)
    assert admitted(cache, 1, now_ms=later) == (None, [])
    medium, gone = admitted(cache, 5, now_ms=later)
    assert gone == [small]
    follower, gone = admitted(cache, 1, now_ms=later, replica=FOLLOWER)
    assert gone == [medium], "also a young one, when it is a consumer's"
    _, gone = admitted(cache, 1, now_ms=later, replica=(3, 1))
    assert gone == [large]
    assert admitted(cache, 1_000, now_ms=later) == (None, []), "no consumer takes a follower's place"
    assert follower in list(cache)


def test_cache_drops_the_sessions_of_a_followers_earlier_registration():
    cache = cache_of(9)
    first, _ = admitted(cache, replica=(2, 7))
    _, gone = admitted(cache, replica=(2, 7))
    assert gone == []
    _, gone = admitted(cache, replica=(2, 8))
    assert len(gone) == 2
    assert first in gone


def test_cache_bounds_the_partitions_of_all_sessions_together():
    cache = cache_of(9, max_partitions=10)
    large, _ = admitted(cache, 7)
    assert admitted(cache, 4, now_ms=1) == (None, []), "a young session keeps its place"
    follower, gone = admitted(cache, 9, now_ms=1, replica=FOLLOWER)
    assert (follower is not None, gone) == (True, [large])
    assert admitted(cache, 2, now_ms=2) == (None, []), "no consumer takes a follower's place"
    newcomer, gone = admitted(cache, 2, now_ms=EVICTION_MS + 2)
    assert (newcomer is not None, gone) == (True, [follower]), "unless nobody uses it"
    assert admitted(cache, 11, replica=FOLLOWER, now_ms=9 * EVICTION_MS) == (None, []), "none makes room for as many"


@pytest.mark.costly
@pytest.mark.parametrize(("sessions", "each"), [(1, MAX_SESSION_PARTITIONS + 1), (6, MAX_SESSION_PARTITIONS - 1)])
def test_session_that_grows_without_bound_ends(sessions, each):
    cache = cache_of(9)
    begun = [admitted(cache)[0] for _ in range(sessions)]
    for session in begun:
        cache.check_size(session)
        update(session, {("t", index): SPEC for index in range(each)}, ())
    assert code_of(lambda: cache.check_size(begun[-1])) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_cache_without_slots_keeps_nothing():
    assert admitted(cache_of(0), 5, replica=FOLLOWER) == (None, [])


def test_cache_never_holds_more_than_its_slots_and_never_an_evicted_session():
    rng = random.Random(7)
    for _ in range(50):
        cache, now_ms, alive = cache_of(rng.randint(1, 4)), 0, {}
        for _ in range(100):
            now_ms += rng.choice((1, 1_000, EVICTION_MS // 2))
            if alive and rng.random() < 0.5:
                session = rng.choice(list(alive.values()))
                assert cache.resume(session.id, session.epoch, session.replica, now_ms) is session
            else:
                replica = (rng.randint(1, 3), 1) if rng.random() < 0.3 else None
                session, gone = admitted(cache, rng.randint(1, 9), now_ms=now_ms, replica=replica)
                for old in gone:
                    del alive[old.id]
                if session is not None:
                    alive[session.id] = session
            assert set(alive) == {session.id for session in cache}

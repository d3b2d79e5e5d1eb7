"""The progress of replicas that are not in sync."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog_node.replication.catch_up import CatchUp

WINDOW_MS = 30_000
KEY = ("orders", 0)


def test_replica_catches_up_while_it_comes_nearer() -> None:
    catch_up = CatchUp(WINDOW_MS)
    for now in range(0, 100_000, 10_000):
        catch_up.observe({KEY: 1_000_000 - now}, now)
        assert catch_up.catching_up(now) == [KEY]
    assert catch_up.lag([KEY]) == 910_000


def test_replica_that_comes_no_nearer_for_the_window_is_stuck() -> None:
    catch_up = CatchUp(WINDOW_MS)
    for now in range(0, WINDOW_MS, 500):
        catch_up.observe({KEY: 50 + now}, now)
        assert catch_up.catching_up(now) == [KEY]
    catch_up.observe({KEY: 51}, WINDOW_MS)
    assert (catch_up.catching_up(WINDOW_MS), catch_up.stuck(WINDOW_MS)) == ([], [KEY])
    catch_up.observe({KEY: 49}, WINDOW_MS + 1)
    assert catch_up.catching_up(WINDOW_MS + 1) == [KEY]


def test_replica_without_a_leader_gets_the_window_to_find_one() -> None:
    catch_up = CatchUp(WINDOW_MS)
    catch_up.observe({KEY: None}, 0)
    assert catch_up.catching_up(WINDOW_MS - 1) == [KEY]
    assert catch_up.stuck(WINDOW_MS) == [KEY]
    assert catch_up.lag([KEY]) == 0


def test_replica_in_sync_is_forgotten() -> None:
    catch_up = CatchUp(WINDOW_MS)
    assert not catch_up.has_observed
    catch_up.observe({KEY: 5}, 0)
    catch_up.observe({}, 1)
    assert catch_up.has_observed
    assert (catch_up.catching_up(1), catch_up.stuck(WINDOW_MS)) == ([], [])


@given(st.lists(st.one_of(st.none(), st.integers(0, 100)), min_size=1, max_size=40))
def test_replica_is_either_catching_up_or_stuck(lags: list[int | None]) -> None:
    catch_up, best, best_at = CatchUp(WINDOW_MS), float("inf"), 0
    for step, lag in enumerate(lags):
        now = step * 7_000
        catch_up.observe({KEY: lag}, now)
        if lag is not None and lag < best:
            best, best_at = lag, now
        moves = now - best_at < WINDOW_MS
        assert (catch_up.catching_up(now), catch_up.stuck(now)) == (([KEY], []) if moves else ([], [KEY]))

"""A majority of a stale minority and of one whose disk forgot: for the replicas of a partition, and the controllers."""

from __future__ import annotations

import pytest
from sim.cluster.planted_bugs import BY_NAME
from sim.cluster.runs import run
from sim.cluster.scripted import ORDERS, stale_controllers, stale_replicas
from sim.outcome import NEVER
from sim.planting import planted

Order = tuple[int, int, int]


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_stale_replica_and_one_that_forgot_lose_nothing_together(order: Order) -> None:
    outcome = run(stale_replicas(order, uses_elr=True))
    assert outcome.violated is None, outcome.detail
    assert outcome.counts["acknowledged"] >= 390
    assert outcome.counts["logs cut by a crash"] == 1
    assert outcome.counts["void promises"] == 0


@pytest.mark.parametrize("order", ORDERS[::4], ids=str)
def test_stale_replica_and_one_that_forgot_lose_nothing_that_is_promised_without_elr(order: Order) -> None:
    # There the last one in sync may be the one that forgot: when it is fenced later than the other one.
    outcome = run(stale_replicas(order, uses_elr=False))
    assert outcome.violated is None, outcome.detail
    assert outcome.counts["logs cut by a crash"] == 1


@pytest.mark.parametrize("order", ORDERS[::2], ids=str)
def test_stale_controller_and_one_that_forgot_lose_nothing_together(order: Order) -> None:
    outcome = run(stale_controllers(order))
    assert outcome.violated is None, outcome.detail
    assert outcome.counts["metadata entries"] > 100
    assert outcome.counts["acknowledged"] >= 390


@pytest.mark.parametrize("order", ORDERS[:2], ids=str)
def test_stale_replica_would_lead_if_a_crash_were_taken_for_a_clean_stop(order: Order) -> None:
    with planted(BY_NAME["takes a crash for a clean stop"]):
        outcome = run(stale_replicas(order, uses_elr=True), check_every=NEVER)
    assert outcome.violated in ("LeaderCompleteness", "LeaderCandidateCompleteness"), outcome


@pytest.mark.parametrize("order", ORDERS[:2], ids=str)
def test_stale_controller_would_lead_if_promises_were_given_before_the_disk_has_them(order: Order) -> None:
    with planted(BY_NAME["metadata log sends before it persists"]):
        outcome = run(stale_controllers(order), check_every=NEVER)
    assert outcome.violated is not None

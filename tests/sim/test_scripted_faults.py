"""Scripts of faults that no draw reaches.

A majority of a stale minority and of one whose disk forgot, for the replicas of a partition and for the controllers.
A change of the ISR that is stored after it was refused. And one that comes with a higher min.insync.replicas.
"""

from __future__ import annotations

import os

import pytest
from sim.cluster.bugs_of_hosting import SETTINGS_AFTER_ISRS
from sim.cluster.bugs_of_replicas import FORGETS_A_REFUSED_EXPAND
from sim.cluster.cluster import Cluster
from sim.cluster.late_expands import LateExpand
from sim.cluster.planted_bugs import BY_NAME
from sim.cluster.runs import run
from sim.cluster.scripted import ORDERS, late_expand, raised_min_isr, stale_controllers, stale_replicas
from sim.outcome import NEVER, Outcome
from sim.planting import planted

Order = tuple[int, int, int]
SHARE = 1 if "TIDELOG_SIM_SEEDS" in os.environ else 2
"""`make sim` plays every script, `make test` a share."""

pytestmark = pytest.mark.sim


@pytest.mark.parametrize("order", ORDERS[::SHARE], ids=str)
def test_stale_replica_and_one_that_forgot_lose_nothing_together(order: Order) -> None:
    outcome = run(stale_replicas(order, uses_elr=True))
    assert outcome.violated is None, outcome.detail
    assert outcome.counts["acknowledged"] >= 390
    assert outcome.counts["logs cut by a crash"] == 1
    assert outcome.counts["void promises"] == 0


@pytest.mark.parametrize("order", ORDERS[:: 4 * SHARE], ids=str)
def test_stale_replica_and_one_that_forgot_lose_nothing_that_is_promised_without_elr(order: Order) -> None:
    # There the last one in sync may be the one that forgot: when it is fenced later than the other one.
    outcome = run(stale_replicas(order, uses_elr=False))
    assert outcome.violated is None, outcome.detail
    assert outcome.counts["logs cut by a crash"] == 1


@pytest.mark.parametrize("order", ORDERS[:: 2 * SHARE], ids=str)
def test_stale_controller_and_one_that_forgot_lose_nothing_together(order: Order) -> None:
    outcome = run(stale_controllers(order))
    assert outcome.violated is None, outcome.detail
    assert outcome.counts["metadata entries"] > 100
    assert outcome.counts["acknowledged"] >= 390


@pytest.mark.parametrize("order", ORDERS[: 2 // SHARE], ids=str)
def test_stale_replica_would_lead_if_a_crash_were_taken_for_a_clean_stop(order: Order) -> None:
    with planted(BY_NAME["takes a crash for a clean stop"]):
        outcome = run(stale_replicas(order, uses_elr=True), check_every=NEVER)
    assert outcome.violated in ("LeaderCompleteness", "LeaderCandidateCompleteness"), outcome


@pytest.mark.parametrize("order", ORDERS[: 2 // SHARE], ids=str)
def test_stale_controller_would_lead_if_promises_were_given_before_the_disk_has_them(order: Order) -> None:
    with planted(BY_NAME["metadata log sends before it persists"]):
        outcome = run(stale_controllers(order), check_every=NEVER)
    assert outcome.violated is not None


def test_leader_commits_nothing_alone_when_the_minimum_rises_as_its_isr_shrinks() -> None:
    outcome = run(raised_min_isr())
    assert outcome.violated is None, outcome.detail
    assert outcome.counts["elections"] >= 2
    assert outcome.counts["truncated"] >= 1, "the leader had records that the other one had not"


def test_leader_would_commit_alone_if_it_took_over_the_settings_after_the_isr() -> None:
    with planted(SETTINGS_AFTER_ISRS):
        outcome = run(raised_min_isr(), check_every=NEVER)
    assert outcome.violated == "LeaderCompleteness", outcome


@pytest.mark.parametrize("seed", range(3 // SHARE))
def test_expand_that_is_stored_after_its_refusal_loses_nothing(seed: int) -> None:
    outcome, script = run_late_expand(seed)
    assert outcome.violated is None, outcome.detail
    assert script.is_over
    assert outcome.counts["acknowledged"] > 100


@pytest.mark.parametrize("seed", range(3 // SHARE))
def test_expand_that_is_stored_after_its_refusal_would_be_unknown_to_a_leader_that_forgot_it(seed: int) -> None:
    with planted(FORGETS_A_REFUSED_EXPAND):
        outcome, _ = run_late_expand(seed, check_every=NEVER)
    assert outcome.violated in ("MaximalIsr", "LeaderCandidateCompleteness"), outcome


def run_late_expand(seed: int, check_every: int = 1) -> tuple[Outcome, LateExpand]:
    scripts: list[LateExpand] = []

    def play(cluster: Cluster) -> None:
        scripts.append(LateExpand(cluster))

    outcome = run(late_expand(seed), check_every=check_every, on_cluster=play)
    return outcome, scripts[0]

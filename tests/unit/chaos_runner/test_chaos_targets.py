from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from tidelog_chaos.drivers import CLIENTS, Member
from tidelog_chaos.faults.plan import KINDS
from tidelog_chaos.faults.strikes import draw_cut, pick
from tidelog_chaos.metrics import ClusterView

CONTROLLERS = [Member("controller", i) for i in (1, 2, 3)]
NODES = [Member("node", i) for i in (1, 2, 3)]
MEMBERS = [*CONTROLLERS, *NODES]
VIEW = ClusterView({"t-0": 2, "t-1": 2, "t-2": None}, controller=3)
SEEDS = st.integers(0, 2**32).map(random.Random)


@given(SEEDS)
def test_targets_are_those_that_lead_when_leaders_are_asked_for(dice: random.Random) -> None:
    assert pick("leader", MEMBERS, VIEW, dice) == [Member("node", 2)]
    assert pick("controller-leader", MEMBERS, VIEW, dice) == [Member("controller", 3)]
    assert pick("leader-and-controller-leader", MEMBERS, VIEW, dice) == [Member("controller", 3), Member("node", 2)]
    assert pick("all", MEMBERS, VIEW, dice) == MEMBERS


@given(SEEDS)
def test_targets_are_any_of_their_sort_while_nobody_knows_who_leads(dice: random.Random) -> None:
    [node] = pick("leader", MEMBERS, ClusterView(), dice)
    [controller] = pick("controller-leader", MEMBERS, ClusterView(), dice)
    assert (node.kind, controller.kind) == ("node", "controller")
    assert pick("node", CONTROLLERS, VIEW, dice) == []


@given(SEEDS, st.sampled_from(sorted(set(KINDS["partition"]))))
def test_cut_separates_somebody_and_nobody_from_itself(dice: random.Random, kind: str) -> None:
    cut, text = draw_cut(kind, MEMBERS, VIEW, dice)
    assert cut
    assert text
    assert all(a != b for a, b in cut)


@given(SEEDS)
def test_cut_in_halves_keeps_a_majority_together_in_both_directions(dice: random.Random) -> None:
    cut, _ = draw_cut("halves", MEMBERS, VIEW, dice)
    assert all((b, a) in cut for a, b in cut)
    apart = {member: sum((member, other) in cut for other in MEMBERS) for member in MEMBERS}
    assert sorted(apart.values()) == [2, 2, 2, 2, 4, 4]


@given(SEEDS)
def test_cut_to_a_ring_leaves_everybody_two_neighbours(dice: random.Random) -> None:
    cut, _ = draw_cut("ring", MEMBERS, VIEW, dice)
    assert all((b, a) in cut for a, b in cut)
    assert all(sum((member, other) in cut for other in MEMBERS) == len(MEMBERS) - 3 for member in MEMBERS)


@given(SEEDS)
def test_cut_in_one_direction_leaves_the_other(dice: random.Random) -> None:
    out, _ = draw_cut("isolate-out", MEMBERS, VIEW, dice)
    into, _ = draw_cut("isolate-in", MEMBERS, VIEW, dice)
    assert len({a for a, _ in out}) == 1
    assert len({b for _, b in into}) == 1
    assert len(out) == len(into) == len(MEMBERS) - 1


@given(SEEDS)
def test_cut_from_the_clients_leaves_the_servers_together(dice: random.Random) -> None:
    cut, _ = draw_cut("clients", MEMBERS, VIEW, dice)
    assert all(CLIENTS in pair for pair in cut)
    assert len(cut) == 2

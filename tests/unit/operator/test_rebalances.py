"""The state machine of rebalances: nothing moves without approval, and an approved plan ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.message import TopicPartition
from tidelog_cli.balance.goals import Goal
from tidelog_cli.balance.planner import Move
from tidelog_operator.rebalances import (
    Action,
    State,
    next_action,
    parse_plan,
    parse_rebalance,
    plan_document,
    remaining_moves,
)


def act(state: State, order: str | None = None, *, is_changed: bool = False, approves: bool = False) -> Action | str:
    return next_action(state, order, is_changed=is_changed, approves_itself=approves)


def test_plan_waits_for_approval() -> None:
    assert act(State.NEW) is Action.PLAN
    assert act(State.PROPOSAL_READY) is Action.WAIT
    assert act(State.PROPOSAL_READY, "approve") is Action.MOVE
    assert act(State.PROPOSAL_READY, approves=True) is Action.MOVE


def test_moves_go_on_until_they_are_stopped() -> None:
    assert act(State.REBALANCING) is Action.MOVE
    assert act(State.REBALANCING, is_changed=True) is Action.MOVE
    assert act(State.REBALANCING, "stop") is Action.CANCEL


def test_plan_is_made_anew_on_order_and_when_the_spec_has_changed() -> None:
    for state in (State.PROPOSAL_READY, State.STOPPED, State.READY, State.NOT_READY):
        assert act(state, "refresh") is Action.PLAN
        assert act(state, is_changed=True) is Action.PLAN


def test_changed_spec_cannot_be_approved_before_its_plan() -> None:
    assert isinstance(act(State.PROPOSAL_READY, "approve", is_changed=True), str)


@given(st.sampled_from(State), st.sampled_from([None, "approve", "stop", "refresh", "go"]), st.booleans())
def test_nothing_moves_but_an_approved_plan(state: State, order: str | None, is_changed: bool) -> None:
    action = act(state, order, is_changed=is_changed)
    if action is Action.MOVE:
        assert state is State.REBALANCING or (state, order, is_changed) == (State.PROPOSAL_READY, "approve", False)
    if action is Action.CANCEL:
        assert (state, order) == (State.REBALANCING, "stop")
    if state in (State.READY, State.STOPPED, State.NOT_READY) and order is None and not is_changed:
        assert action is Action.WAIT


def test_plan_survives_its_document_and_ends_where_the_partitions_are() -> None:
    a, b, gone = (TopicPartition("orders", number) for number in range(3))
    plan = [Move(a, (1, 2), (4, 2), 10), Move(b, (1, 2), (2, 1), 0), Move(gone, (1,), (2,), 5)]
    assert parse_plan(plan_document(plan)) == plan
    assert [move.key for move in remaining_moves(plan, {a: (1, 2), b: (1, 2)}, ())] == [a, b]
    assert [move.key for move in remaining_moves(plan, {a: (4, 2), b: (2, 1)}, {a})] == [a]
    assert remaining_moves(plan, {a: (4, 2), b: (2, 1)}, ()) == []


def test_goals_have_the_order_of_the_resource() -> None:
    spec = parse_rebalance({"spec": {"cluster": "tidelog", "goals": ["leaders", "disk"], "maxBytes": 7}})
    assert spec.policy.goals == (Goal.LEADERS, Goal.DISK)
    assert spec.policy.max_bytes == 7

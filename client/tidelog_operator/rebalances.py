"""The state machine of the resource ``TidelogRebalance``, after Strimzi's. Pure.

    New ──plan──► ProposalReady ──approve──► Rebalancing ──all moves done──► Ready
                        ▲                        │ stop
                        └──────refresh──── Stopped, Ready, NotReady ◄── the plan or a move was refused

The annotation ``tidelog.dev/rebalance`` gives the orders ``approve``, ``stop`` and ``refresh``. An order is obeyed in
the states above and refused in others; it is removed when it has been read. With ``autoApprove``, a plan needs no
order. An empty plan is Ready at once. Each turn of ``Rebalancing`` begins a few moves and keeps nothing but the plan,
so a restart of the operator continues it.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.message import TopicPartition
from tidelog_cli.balance.goals import Goal, Policy
from tidelog_cli.balance.planner import Move

ORDER: Final = "tidelog.dev/rebalance"
MAX_PLAN_BYTES: Final = 900_000
"""A ConfigMap holds 1 MiB."""


class State(enum.Enum):
    """The state of a rebalance."""

    NEW = "New"
    PROPOSAL_READY = "ProposalReady"
    REBALANCING = "Rebalancing"
    STOPPED = "Stopped"
    NOT_READY = "NotReady"
    READY = "Ready"


class Action(enum.Enum):
    """The work of a turn."""

    PLAN = "plan"
    MOVE = "move"
    CANCEL = "cancel"
    WAIT = "wait"


_RESTING = (State.STOPPED, State.NOT_READY, State.READY)


@dataclass(frozen=True, slots=True)
class RebalanceSpec:
    """A wanted rebalance."""

    cluster: str
    policy: Policy
    moves_per_node: int
    approves_itself: bool


def parse_rebalance(resource: Mapping[str, Any]) -> RebalanceSpec:
    """Return the rebalance that a resource describes. The API server has checked it against the schema."""
    spec, defaults = resource["spec"], Policy()
    goals = tuple(Goal[name.upper()] for name in spec["goals"]) if "goals" in spec else defaults.goals[:3]
    policy = Policy(
        goals,
        spec.get("thresholdPercent", defaults.threshold_percent),
        spec.get("capacityPercent", defaults.capacity_percent),
        max_bytes=spec.get("maxBytes"),
    )
    return RebalanceSpec(spec["cluster"], policy, spec.get("concurrency", 5), bool(spec.get("autoApprove")))


def next_action(state: State, order: str | None, *, is_changed: bool, approves_itself: bool) -> Action | str:
    """Return what to do in a state, or a text that refuses the order.

    ``is_changed`` says whether the spec has changed since the plan was made. The plan is then made again, but not in
    the middle of the moves: those are of the plan that was approved.
    """
    match order:
        case None:
            pass
        case "approve":
            return Action.MOVE if state is State.PROPOSAL_READY and not is_changed else _refused(order, state)
        case "stop":
            return Action.CANCEL if state is State.REBALANCING else _refused(order, state)
        case "refresh":
            return Action.PLAN if state in (*_RESTING, State.PROPOSAL_READY) else _refused(order, state)
        case _:
            return f"{ORDER} is {order}; it must be approve, stop or refresh"
    if state is State.REBALANCING:
        return Action.MOVE
    if state is State.NEW or is_changed:
        return Action.PLAN
    if state is State.PROPOSAL_READY and approves_itself:
        return Action.MOVE
    return Action.WAIT


def remaining_moves(
    plan: Sequence[Move], current: Mapping[TopicPartition, tuple[int, ...]], ongoing: Collection[TopicPartition]
) -> list[Move]:
    """Return the moves that have not ended, from where the partitions are now. Deleted partitions need none."""
    return [
        Move(move.key, current[move.key], move.after, move.bytes)
        for move in plan
        if move.key in current and (move.key in ongoing or current[move.key] != move.after)
    ]


def plan_document(moves: Sequence[Move]) -> list[list[Any]]:
    """Return a plan as JSON: topic, partition, replicas before and after, and bytes."""
    return [[m.key.topic, m.key.partition, list(m.before), list(m.after), m.bytes] for m in moves]


def parse_plan(document: Sequence[Sequence[Any]]) -> list[Move]:
    """Return the plan of a document of :func:`plan_document`."""
    return [Move(TopicPartition(t, p), tuple(before), tuple(after), size) for t, p, before, after, size in document]


def _refused(order: str, state: State) -> str:
    return f"the order {order} has no effect in the state {state.value}"

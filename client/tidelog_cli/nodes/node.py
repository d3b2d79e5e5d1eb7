"""``tidelog node``: tells whether a process can stop, empties a node, and removes it from the cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from tidelog.admin import AdminClient, NewPartitionReassignment
from tidelog_cli.balance import report
from tidelog_cli.balance.execution import DEFAULT_MOVES_PER_NODE, Execution, Pace
from tidelog_cli.balance.measurement import take_snapshot
from tidelog_cli.balance.planner import Plan, make_plan
from tidelog_cli.balance.rebalance import MovesPerNode, Throttle
from tidelog_cli.balance.snapshot import ClusterSnapshot, NodeState
from tidelog_cli.nodes.cordon import cancel_drain, cordon, lift_cordon
from tidelog_cli.nodes.stop_safety import safe_to_stop
from tidelog_cli.options.connection import Session, Yes, connected
from tidelog_cli.output.printing import UsageError, command_group, confirm, counted, counted_names, fail, settle
from tidelog_foundation.errors import ErrorCode, error_for

app = command_group("Tell whether a process can stop, empty a node, and remove it from the cluster.")
app.command("safe-to-stop")(safe_to_stop)

_NodeId = Annotated[int, typer.Argument(min=0, metavar="ID", help="The id of the node.")]
_MAX_NAMES = 20


@app.command()
@connected
def drain(
    session: Session,
    node: _NodeId,
    wait: Annotated[
        bool, typer.Option("--wait", help="Move a few partitions at a time, and wait until the node is empty.")
    ] = False,
    concurrency: MovesPerNode = DEFAULT_MOVES_PER_NODE,
    throttle: Throttle = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Let the node get replicas again, and cancel moves that take some away.")
    ] = False,
) -> None:
    """Move all replicas and leaders away from a node, running or not, and let it get no new ones.

    Refused without any change if a replica has nowhere to go. Without --wait, all moves begin at once, and "tidelog
    cluster rebalance --watch" shows their progress. The node is cordoned (cordoned.log.dirs=*, KIP-1066) until
    --cancel or "tidelog node unregister".

    \b
    Examples:
      tidelog node drain 4 --wait --throttle 50000000
      tidelog node drain 4 --cancel
    """
    if throttle is not None and not wait:
        raise UsageError("--throttle needs --wait, which removes the throttle at the end.")
    if cancel and wait:
        raise UsageError("--cancel and --wait exclude each other.")
    with session.admin() as admin:
        if cancel:
            cancelled = cancel_drain(session, admin, node)
            text = f"node {node} gets replicas again; cancelled {counted(cancelled, 'move')}"
            session.done({"node": node, "cordoned": False, "cancelled": cancelled}, text)
            return
        _plan(session, admin, node)
        cordon(session, admin, node)
        # This plan has the topics that were created before the cordon.
        snapshot, plan = _plan(session, admin, node)
        replicas = _replicas_on(snapshot, node)
        if not wait:
            _begin(session, admin, plan)
            text = f"began {counted(len(plan.moves), 'move')} ({plan.bytes:,} bytes) away from node {node}"
            session.done({"node": node, "moves": len(plan.moves), "bytes": plan.bytes, "empty": not replicas}, text)
            return
        # Moves that began before the cordon can make another round.
        moves = 0
        while replicas:
            moves += len(plan.moves)
            session.say(f"node {node} has {counted(len(replicas), 'replica')}: {report.summary(plan)}")
            Execution(session, admin, plan, Pace(concurrency, throttle)).run()
            snapshot, plan = _plan(session, admin, node)
            replicas = _replicas_on(snapshot, node)
    session.done({"node": node, "moves": moves, "empty": True}, f"node {node} has no replicas; it can be stopped")


@app.command()
@connected
def unregister(session: Session, node: _NodeId, yes: Yes = False) -> None:
    """Remove an empty node that is stopped for good from the list of nodes.

    Refused while the node runs, and while partitions have replicas on it: "tidelog node drain" moves them away.
    ("tidelog cluster unregister" has no such checks, as Kafka's tool.)

    Example: tidelog node unregister 4 --yes
    """
    with session.admin() as admin:
        snapshot = take_snapshot(admin, session.timeout_s)
        known = snapshot.nodes.get(node)
        if known is None or known.state is NodeState.UNREGISTERED:
            raise error_for(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {node} is not currently registered")
        if known.state is NodeState.AVAILABLE:
            raise error_for(ErrorCode._INVALID_ARG, f"node {node} is running: stop it first")
        held = _replicas_on(snapshot, node)
        if held:
            text = f"node {node} has replicas of {_listed(held)}: move them away with tidelog node drain {node} --wait"
            raise error_for(ErrorCode._INVALID_ARG, text)
        confirm(f"unregister node {node}", yes)
        # A new node of this id is not to be cordoned.
        lift_cordon(session, admin, node)
        admin.unregister_broker(node, request_timeout=session.timeout_s).result()
    session.done({"node": node, "registered": False}, f"unregistered node {node}")


def _plan(session: Session, admin: AdminClient, node: int) -> tuple[ClusterSnapshot, Plan]:
    """Return the plan that empties a node.

    Raises:
        TidelogError: there is no such node, or a replica has nowhere to go.
    """
    snapshot = take_snapshot(admin, session.timeout_s, draining=(node,))
    if node not in snapshot.nodes:
        known = ", ".join(map(str, sorted(snapshot.nodes)))
        raise error_for(ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no node {node}, only {known}")
    plan = make_plan(snapshot, only_leaving=True)
    reasons: dict[str, list[str]] = {}
    for obstacle in plan.obstacles:
        if obstacle.node == node:
            reasons.setdefault(obstacle.reason, []).append(report.name(obstacle.key))
    if reasons:
        text = "; ".join(f"{_listed(names)}: {reason}" for reason, names in reasons.items())
        raise error_for(ErrorCode._INVALID_ARG, f"node {node} cannot be drained. {text}")
    # Replicas on other nodes that are gone are left to a rebalance.
    moves = tuple(move for move in plan.moves if node in move.removing)
    return snapshot, replace(plan, moves=moves, elections=())


def _begin(session: Session, admin: AdminClient, plan: Plan) -> None:
    targets = {move.key: NewPartitionReassignment(move.after) for move in plan.moves}
    if targets:
        _, errors = settle(admin.alter_partition_reassignments(targets, request_timeout=session.timeout_s))
        fail(errors.values())


def _replicas_on(snapshot: ClusterSnapshot, node: int) -> list[str]:
    return [report.name(key) for key, p in sorted(snapshot.partitions.items()) if node in p.replicas]


def _listed(names: list[str]) -> str:
    more = len(names) - _MAX_NAMES
    text = counted_names("partition", names[:_MAX_NAMES])
    return f"{text} and {more:,} more" if more > 0 else text

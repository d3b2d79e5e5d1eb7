"""Calls for a rebalance. Every function blocks, so the event loop calls it in a thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelog.admin import AdminClient, ElectionType, NewPartitionReassignment
from tidelog.message import TopicPartition
from tidelog_cli.balance.execution import replicas_of
from tidelog_cli.balance.measurement import take_snapshot
from tidelog_cli.balance.planner import Move, Plan, make_plan
from tidelog_cli.balance.report import name
from tidelog_cli.balance.schedule import next_moves
from tidelog_cli.output.printing import settle
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_operator.cluster_client import TIMEOUT_S
from tidelog_operator.rebalances import RebalanceSpec, remaining_moves

_GONE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_FINE = (ErrorCode.ELECTION_NOT_NEEDED, _GONE)


def propose(admin: AdminClient, spec: RebalanceSpec) -> Plan:
    """Return a plan for the cluster as it is."""
    return make_plan(take_snapshot(admin, TIMEOUT_S), spec.policy)


def advance(admin: AdminClient, plan: Sequence[Move], moves_per_node: int) -> int:
    """Begin the next moves of a plan, and return the number of those that have not ended.

    Raises:
        TidelogError: a move was refused.
    """
    keys = [move.key for move in plan]
    ongoing = admin.list_partition_reassignments(request_timeout=TIMEOUT_S).result()
    left = remaining_moves(plan, replicas_of(admin, keys, TIMEOUT_S), ongoing)
    pending = [move for move in left if move.key not in ongoing]
    targets = {move.key: NewPartitionReassignment(move.after) for move in next_moves(pending, ongoing, moves_per_node)}
    if targets:
        _, errors = settle(admin.alter_partition_reassignments(targets, request_timeout=TIMEOUT_S))
        for key, error in errors.items():
            if error.code is not _GONE:
                raise error_for(error.code, f"{name(key)}: {error.message}")
    return len(left)


def elect(admin: AdminClient, keys: Iterable[TopicPartition]) -> None:
    """Elect the preferred leaders of partitions.

    Raises:
        TidelogError: one could not be elected.
    """
    wanted = sorted(keys)
    if not wanted:
        return
    outcomes = admin.elect_leaders(
        ElectionType.PREFERRED, wanted, operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S
    ).result()
    for key, error in outcomes.items():
        if error is not None and error.code not in _FINE:
            raise error_for(error.code, f"{name(key)}: {error.message}")


def cancel(admin: AdminClient, plan: Sequence[Move]) -> int:
    """Cancel the moves of a plan that are in progress, and return their number."""
    keys = {move.key for move in plan}
    ongoing = admin.list_partition_reassignments(request_timeout=TIMEOUT_S).result()
    mine = {key: None for key in ongoing if key in keys}
    if mine:
        _, errors = settle(admin.alter_partition_reassignments(mine, request_timeout=TIMEOUT_S))
        for error in errors.values():
            if error.code is not ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
                raise error
    return len(mine)

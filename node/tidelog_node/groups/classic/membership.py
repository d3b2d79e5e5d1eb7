"""Heartbeat and LeaveGroup of the classic protocol, and the permission to commit offsets."""

from __future__ import annotations

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.groups.classic.group import ClassicGroup, ClassicState
from tidelog_node.groups.classic.rebalance import rebalance_without, remove_member, reset_session
from tidelog_node.groups.events import GroupCall
from tidelog_node.groups.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    LeftMember,
    OffsetCommitRequest,
)
from tidelog_node.groups.step import Step


def heartbeat(group: ClassicGroup, call: GroupCall, request: HeartbeatRequest, step: Step) -> None:
    """Keep a member alive.

    Raises:
        TidelogError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, or REBALANCE_IN_PROGRESS if the member
            must join again, which also keeps it alive.
    """
    member = group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise _illegal_generation(group, request.generation_id)
    reset_session(group, member, step)
    if group.state is ClassicState.PREPARING_REBALANCE:
        raise error_for(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group.group_id} rebalances")
    step.respond(call.call_id, HeartbeatResponse())


def leave(group: ClassicGroup, call: GroupCall, request: LeaveGroupRequest, step: Step) -> None:
    """Remove members. Each has a result of its own (KIP-345)."""
    results = tuple(_leave_one(group, leaving, step) for leaving in request.members)
    if any(result.error is None for result in results):
        rebalance_without(group, step, "a member left")
    step.respond(call.call_id, LeaveGroupResponse(members=results))


def check_commit(group: ClassicGroup, request: OffsetCommitRequest) -> None:
    """Refuse a commit that is not from a member of this generation. An empty group accepts commits without a
    generation.

    Raises:
        TidelogError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, or REBALANCE_IN_PROGRESS while the
            generation has no assignment yet.
    """
    generation = request.generation_id_or_member_epoch
    if generation < 0 and group.is_empty:
        return
    if generation < 0 and not request.member_id and request.group_instance_id is None:
        raise error_for(
            ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.group_id} has members: only they can commit offsets"
        )
    check_generation(group, request.member_id, request.group_instance_id, generation)
    if group.state is ClassicState.COMPLETING_REBALANCE:
        raise error_for(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group.group_id} awaits its assignment")


def check_generation(group: ClassicGroup, member_id: str, instance_id: str | None, generation: int) -> None:
    """Refuse a commit that is not from a member of this generation.

    Raises:
        TidelogError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    group.check_member(member_id, instance_id)
    if generation != group.generation:
        raise _illegal_generation(group, generation)


def keep_alive(group: ClassicGroup, member_id: str, step: Step) -> None:
    """Treat a commit as a heartbeat."""
    member = group.members.get(member_id)
    if member is not None and group.state in (ClassicState.STABLE, ClassicState.PREPARING_REBALANCE):
        reset_session(group, member, step)


def abandon(group: ClassicGroup, call_id: int, step: Step) -> None:
    """Record that nobody waits for a call's answer. A new member is removed unless it joins again in time."""
    for member in group.members.values():
        if member.join_call == call_id and member.is_new:
            reset_session(group, member, step)


def _illegal_generation(group: ClassicGroup, generation: int) -> TidelogError:
    return error_for(
        ErrorCode.ILLEGAL_GENERATION, f"group {group.group_id} has generation {group.generation}, not {generation}"
    )


def _leave_one(group: ClassicGroup, leaving: LeavingMember, step: Step) -> LeftMember:
    instance_id = leaving.group_instance_id
    error = None
    if leaving.member_id in group.pending_joins:
        group.remove(leaving.member_id)
    else:
        # An administrator removes the member that has the instance id.
        holder = group.static_members.get(instance_id or "") if not leaving.member_id else None
        try:
            member = group.check_member(holder or leaving.member_id, instance_id)
            remove_member(group, member, step, leaving.reason or "it sent LeaveGroup")
        except TidelogError as failure:
            error = failure.detached()
    return LeftMember(leaving.member_id, instance_id, error)

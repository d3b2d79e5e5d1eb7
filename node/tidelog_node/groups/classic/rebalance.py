"""The phases of a rebalance (Kafka's GroupMetadataManager, from ``prepareRebalance`` on).

In the join phase all members must send JoinGroup within the rebalance timeout. Members that do not are removed, except
static members, which may come back. Then a generation begins and the leader assigns. A group that was empty first waits
``group.initial.rebalance.delay.ms``, and longer while members join. :mod:`.expiration` ends a phase at its deadline.
"""

from __future__ import annotations

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_node.groups.classic.group import ClassicGroup, ClassicMember, ClassicState
from tidelog_node.groups.classic.persistence import group_record
from tidelog_node.groups.classic.timers import InitialDelay
from tidelog_node.groups.messages import JoinGroupMember, JoinGroupResponse, SyncGroupResponse
from tidelog_node.groups.step import Step


def rebalance(group: ClassicGroup, step: Step, reason: str) -> None:
    """Begin a rebalance, or continue the current one."""
    if group.can_rebalance:
        prepare_rebalance(group, step, reason)
    else:
        maybe_complete_join(group, step)


def prepare_rebalance(group: ClassicGroup, step: Step, reason: str) -> None:
    """Begin the join phase. Members that wait for an assignment must join again."""
    text = "Group %s: a rebalance begins in generation %d with %d members: %s"
    step.report(text, group.group_id, group.generation, len(group.members), reason)
    if group.state is ClassicState.COMPLETING_REBALANCE:
        propagate_error(group, step, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_syncs.clear()
    group.timers.cancel_sync()
    is_initial = group.is_empty
    group.transition_to(ClassicState.PREPARING_REBALANCE, step.wall_ms)
    if is_initial:
        delay_ms = step.settings.group_initial_rebalance_delay_ms
        remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        group.timers.set_join(step.now_ms + delay_ms, InitialDelay(delay_ms, remaining_ms))
    elif group.has_all_joined:
        complete_join(group, step)
    else:
        group.timers.set_join(step.now_ms + group.rebalance_timeout_ms)


def maybe_complete_join(group: ClassicGroup, step: Step) -> None:
    """End the join phase if no member is missing. The join phase of an empty group lasts as long as its delay."""
    is_initial = group.previous_state is ClassicState.EMPTY
    if group.state is ClassicState.PREPARING_REBALANCE and not is_initial and group.has_all_joined:
        complete_join(group, step)


def complete_join(group: ClassicGroup, step: Step) -> None:
    """End the join phase: answer all members with the next generation, or record that the group is empty."""
    group.timers.cancel_join()
    for member in [m for m in group.members.values() if not m.awaits_join and m.instance_id is None]:
        remove_member(group, member, step, "it has not joined again within the rebalance timeout")
    if not group.elect_joined_leader() and group.members:
        # Only static members are left and none has come back. They are removed when their sessions expire.
        group.timers.set_join(step.now_ms + group.rebalance_timeout_ms)
        return
    group.new_member_added = False
    group.begin_generation(step.wall_ms)
    if group.is_empty:
        step.report("Group %s: the rebalance ended in generation %d without members", group.group_id, group.generation)
        # If this write fails, an older generation returns at the next failover and its members time out.
        step.write(group.group_id, (group_record(group, {}),))
        return
    text = "Group %s: generation %d begins with %d members, protocol %s and leader %s"
    leader, protocol = group.leader or "", group.protocol_name or ""
    step.report(text, group.group_id, group.generation, len(group.members), protocol, leader)
    group.timers.set_sync(step.now_ms + group.rebalance_timeout_ms)
    for member in group.members.values():
        answer_join(group, member, step)
        reset_session(group, member, step)
        member.is_new = False
        group.pending_syncs.add(member.member_id)


def answer_join(group: ClassicGroup, member: ClassicMember, step: Step) -> None:
    """Answer a member's waiting JoinGroup with the generation. Only the leader receives the list of members."""
    if member.join_call is not None:
        step.respond(member.join_call, joined(group, member))
        member.join_call = None


def joined(group: ClassicGroup, member: ClassicMember, *, skip_assignment: bool = False) -> JoinGroupResponse:
    """Return the JoinGroup response of the current generation."""
    leads = group.leader == member.member_id
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type or "",
        protocol_name=group.protocol_name or "",
        leader=group.leader or "",
        skip_assignment=leads and skip_assignment,
        member_id=member.member_id,
        members=tuple(
            JoinGroupMember(other.member_id, other.instance_id, other.metadata(group.protocol_name))
            for other in (group.members.values() if leads else ())
        ),
    )


def refuse_join(member: ClassicMember, step: Step, code: ErrorCode, *, member_id: str = "") -> None:
    """Answer a member's waiting JoinGroup with an error."""
    if member.join_call is not None:
        step.respond(member.join_call, JoinGroupResponse(error=error_for(code), member_id=member_id))
        member.join_call = None


def refuse_sync(member: ClassicMember, step: Step, code: ErrorCode) -> None:
    """Answer a member's waiting SyncGroup with an error."""
    if member.sync_call is not None:
        step.respond(member.sync_call, SyncGroupResponse(error=error_for(code)))
        member.sync_call = None


def propagate_error(group: ClassicGroup, step: Step, code: ErrorCode) -> None:
    """Clear all assignments and answer the members that wait for one with an error."""
    for member in group.members.values():
        member.assignment = b""
        if member.sync_call is not None:
            refuse_sync(member, step, code)
            reset_session(group, member, step)


def reset_session(group: ClassicGroup, member: ClassicMember, step: Step, timeout_ms: int | None = None) -> None:
    """Restart a member's session with its session timeout or with ``timeout_ms``."""
    timeout_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
    group.timers.set_session(member.member_id, step.now_ms + timeout_ms)


def remove_member(group: ClassicGroup, member: ClassicMember, step: Step, reason: str) -> None:
    """Remove a member. Its waiting calls are answered with UNKNOWN_MEMBER_ID, so that a live member joins again."""
    refuse_join(member, step, ErrorCode.UNKNOWN_MEMBER_ID)
    refuse_sync(member, step, ErrorCode.UNKNOWN_MEMBER_ID)
    group.remove(member.member_id)
    text = "Group %s: member %s left in generation %d, %d members remain: %s"
    step.report(text, group.group_id, member.member_id, group.generation, len(group.members), reason)


def rebalance_without(group: ClassicGroup, step: Step, reason: str) -> None:
    """Rebalance after members have left."""
    if group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
        prepare_rebalance(group, step, reason)
    else:
        maybe_complete_join(group, step)


def begin_loaded(group: ClassicGroup, step: Step) -> None:
    """Start the sessions of the members of a loaded group.

    The group rebalances if it has become too large, or if the rebalance after its downgrade was lost.
    """
    for member in group.members.values():
        reset_session(group, member, step)
    if group.must_rebalance or len(group.members) > step.settings.group_max_size:
        reason = "the group was loaded" if group.must_rebalance else "it has more than group.max.size members"
        prepare_rebalance(group, step, reason)

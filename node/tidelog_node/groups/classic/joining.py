"""JoinGroup (Kafka's ``classicGroupJoinToClassicGroup`` and the methods that it calls; KIP-394, KIP-389)."""

from __future__ import annotations

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_node.groups.classic.group import ClassicGroup, ClassicMember, ClassicState
from tidelog_node.groups.classic.rebalance import joined, rebalance, refuse_join, reset_session
from tidelog_node.groups.classic.static_members import replace_static_member
from tidelog_node.groups.events import GroupCall
from tidelog_node.groups.messages import JoinGroupRequest, JoinGroupResponse
from tidelog_node.groups.step import Step

MAX_PENDING_JOINS = 1_000
"""The maximum number of assigned but unused member ids per group.

Each may be as long as a client id and stays in memory for a session timeout, whereas a live member uses its id at once.
"""


def join(group: ClassicGroup, call: GroupCall, request: JoinGroupRequest, step: Step) -> None:
    """Add a member to the group, or to its next generation. The answer follows when the join phase ends.

    Raises:
        TidelogError: GROUP_MAX_SIZE_REACHED, INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    if not _accepts(group, request.member_id, step.settings.group_max_size):
        group.remove(request.member_id)
        raise error_for(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {group.group_id} has group.max.size {step.settings.group_max_size} members",
        )
    if not group.supports(request.protocol_type, (protocol.name for protocol in request.protocols)):
        raise error_for(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, _unsupported(group, request))
    if request.member_id:
        _join_known(group, call, request, step)
    else:
        _join_unknown(group, call, request, step)


def _accepts(group: ClassicGroup, member_id: str, max_size: int) -> bool:
    # During a rebalance the first members to join are accepted, since the maximum size may have been lowered (KIP-389).
    if group.is_empty:
        return True
    member = group.members.get(member_id)
    if group.state is ClassicState.PREPARING_REBALANCE:
        awaiting = sum(member.awaits_join for member in group.members.values())
        return (member is not None and member.awaits_join) or awaiting < max_size
    return member is not None or len(group.members) < max_size


def _unsupported(group: ClassicGroup, request: JoinGroupRequest) -> str:
    names = [protocol.name for protocol in request.protocols]
    if group.is_empty:
        return f"a member of group {group.group_id} must name a protocol type and protocols, not {names}"
    return (
        f"group {group.group_id} has the protocol type {group.protocol_type!r}; no protocol of {names} of the type "
        f"{request.protocol_type!r} is one that all its members can use"
    )


def _join_unknown(group: ClassicGroup, call: GroupCall, request: JoinGroupRequest, step: Step) -> None:
    instance_id = request.group_instance_id
    if instance_id is not None:
        new_id = step.new_member_id(instance_id)
        holder = group.static_members.get(instance_id)
        if holder is None:
            _add(group, call, request, new_id, step)
        else:
            replace_static_member(group, group.members[holder], new_id, call, request, step)
        return
    new_id = step.new_member_id(call.client.client_id)
    if request.joins_at_once:
        _add(group, call, request, new_id, step)
        return
    _make_room(group)
    group.pending_joins[new_id] = None
    group.timers.set_session(new_id, step.now_ms + request.session_timeout_ms)
    step.respond(call.call_id, JoinGroupResponse(error=error_for(ErrorCode.MEMBER_ID_REQUIRED), member_id=new_id))


def _make_room(group: ClassicGroup) -> None:
    """Withdraw the oldest unused member ids. A client that still uses one must request another."""
    while len(group.pending_joins) >= MAX_PENDING_JOINS:
        group.remove(next(iter(group.pending_joins)))


def _join_known(group: ClassicGroup, call: GroupCall, request: JoinGroupRequest, step: Step) -> None:
    instance_id = request.group_instance_id
    if request.member_id in group.pending_joins and instance_id is None:
        _add(group, call, request, request.member_id, step)
        return
    member = group.check_member(request.member_id, instance_id)
    is_unchanged = member.protocols == request.metadata_by_protocol
    leads_stable = group.state is ClassicState.STABLE and group.leader == member.member_id
    if group.state is ClassicState.PREPARING_REBALANCE or not is_unchanged or leads_stable:
        # The leader joins again when its subscription has changed, which its metadata need not show.
        update_member(group, member, call, request, step)
        rebalance(group, step, request.reason or "a member joined again")
    else:
        # The answer may have been lost.
        step.respond(call.call_id, joined(group, member))


def _add(group: ClassicGroup, call: GroupCall, request: JoinGroupRequest, member_id: str, step: Step) -> None:
    if group.state is ClassicState.PREPARING_REBALANCE and group.previous_state is ClassicState.EMPTY:
        group.new_member_added = True
    member = ClassicMember(
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=call.client.client_id,
        client_host=call.client.host,
        rebalance_timeout_ms=request.join_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=request.metadata_by_protocol,
        is_new=True,
        join_call=call.call_id,
    )
    group.add(member, request.protocol_type)
    # The member sends no heartbeats before it has its answer. The timeout removes it if the rebalance never ends.
    reset_session(group, member, step, step.settings.new_member_join_timeout_ms)
    text = "Group %s: member %s with instance id %s joined from %s, client id %s: %d members"
    who = member_id, member.instance_id, member.client_host, member.client_id
    step.report(text, group.group_id, *who, len(group.members))
    rebalance(group, step, request.reason or "a member joined")


def update_member(
    group: ClassicGroup, member: ClassicMember, call: GroupCall, request: JoinGroupRequest, step: Step
) -> None:
    """Update a member from its repeated JoinGroup and let it wait."""
    refuse_join(member, step, ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
    group.update_protocols(member, request.metadata_by_protocol)
    member.rebalance_timeout_ms = request.join_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    member.join_call = call.call_id
    if member.is_new:
        reset_session(group, member, step, step.settings.new_member_join_timeout_ms)

"""SyncGroup (Kafka's ``classicGroupSyncToClassicGroup``): write the leader's assignment, then answer all members."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.groups.answers import write_error
from tidelog_node.groups.classic.group import ClassicGroup, ClassicMember, ClassicState
from tidelog_node.groups.classic.persistence import group_record
from tidelog_node.groups.classic.rebalance import prepare_rebalance, propagate_error, refuse_sync, reset_session
from tidelog_node.groups.events import GroupCall
from tidelog_node.groups.messages import SyncGroupRequest, SyncGroupResponse
from tidelog_node.groups.step import Effect, Step


def sync(group: ClassicGroup, call: GroupCall, request: SyncGroupRequest, step: Step) -> None:
    """Accept the leader's assignment, or let a member wait for its own.

    Raises:
        TidelogError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL, or
            REBALANCE_IN_PROGRESS if the member must join again.
    """
    member = _check(group, request)
    if group.state is ClassicState.PREPARING_REBALANCE:
        raise error_for(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group.group_id} rebalances")
    _note_sync(group, member)
    if group.state is ClassicState.STABLE:
        step.respond(call.call_id, _response(group, member))
        return
    refuse_sync(member, step, ErrorCode.REBALANCE_IN_PROGRESS)
    member.sync_call = call.call_id
    if group.leader == member.member_id and group.assigned_generation != group.generation:
        # Write only once. A second assignment would differ from the one that the log ends with.
        group.assigned_generation = group.generation
        given = {assignment.member_id: assignment.assignment for assignment in request.assignments}
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        effect = _Assigned(group, group.generation, assignments)
        step.write(group.group_id, (group_record(group, assignments),), effect)


def _check(group: ClassicGroup, request: SyncGroupRequest) -> ClassicMember:
    member = group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise error_for(
            ErrorCode.ILLEGAL_GENERATION,
            f"group {group.group_id} has generation {group.generation}, not {request.generation_id}",
        )
    _check_protocol(request.protocol_type, group.protocol_type)
    _check_protocol(request.protocol_name, group.protocol_name)
    return member


def _check_protocol(said: str, actual: str | None) -> None:
    if said and actual is not None and said != actual:
        raise error_for(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group's protocol is {actual}, not {said}")


def _note_sync(group: ClassicGroup, member: ClassicMember) -> None:
    group.pending_syncs.discard(member.member_id)
    if not group.pending_syncs:
        group.timers.cancel_sync()


@dataclass(frozen=True, slots=True)
class _Assigned(Effect):
    """The leader's assignment of a generation. It is obsolete once members have joined or left."""

    group: ClassicGroup
    generation: int
    assignments: Mapping[str, bytes]

    def committed(self, step: Step) -> None:
        if self._is_current:
            _propagate(self.group, self.assignments, step)

    def failed(self, step: Step, error: TidelogError) -> None:
        if self._is_current:
            propagate_error(self.group, step, write_error(error).code)
            prepare_rebalance(self.group, step, "the assignment could not be written")

    @property
    def _is_current(self) -> bool:
        return self.group.state is ClassicState.COMPLETING_REBALANCE and self.group.generation == self.generation


def _propagate(group: ClassicGroup, assignments: Mapping[str, bytes], step: Step) -> None:
    group.transition_to(ClassicState.STABLE, step.wall_ms)
    text = "Group %s: the rebalance ended in generation %d with %d members"
    step.report(text, group.group_id, group.generation, len(group.members))
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
        if member.sync_call is not None:
            step.respond(member.sync_call, _response(group, member))
            member.sync_call = None
            reset_session(group, member, step)


def _response(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type or "",
        protocol_name=group.protocol_name or "",
        assignment=member.assignment,
    )

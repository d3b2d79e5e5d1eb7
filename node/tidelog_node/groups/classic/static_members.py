"""The return of a static member with a new member id (KIP-345; KIP-814 for the leader)."""

from __future__ import annotations

from dataclasses import replace

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_node.groups.answers import write_error
from tidelog_node.groups.classic.group import ClassicGroup, ClassicMember, ClassicState
from tidelog_node.groups.classic.persistence import group_record
from tidelog_node.groups.classic.rebalance import (
    joined,
    maybe_complete_join,
    prepare_rebalance,
    refuse_join,
    refuse_sync,
    reset_session,
)
from tidelog_node.groups.events import GroupCall
from tidelog_node.groups.messages import JoinGroupRequest, JoinGroupResponse
from tidelog_node.groups.step import Effect, Step


def replace_static_member(
    group: ClassicGroup,
    member: ClassicMember,
    new_id: str,
    call: GroupCall,
    request: JoinGroupRequest,
    step: Step,
) -> None:
    """Give the instance id to the joining member and fence the waiting calls of its previous owner.

    In a stable group the member keeps its assignment without a rebalance, unless the group would choose another
    protocol.
    """
    before, leader = replace(member), group.leader
    refuse_join(member, step, ErrorCode.FENCED_INSTANCE_ID, member_id=member.member_id)
    refuse_sync(member, step, ErrorCode.FENCED_INSTANCE_ID)
    group.rename(member, new_id)
    text = "Group %s: member %s replaces %s, which is fenced, with instance id %s"
    step.report(text, group.group_id, new_id, before.member_id, member.instance_id)
    group.update_protocols(member, request.metadata_by_protocol)
    member.rebalance_timeout_ms = request.join_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    member.join_call = call.call_id
    reset_session(group, member, step)
    if group.state is ClassicState.STABLE and group.select_protocol() == group.protocol_name:
        assignments = {other.member_id: other.assignment for other in group.members.values()}
        may_skip = not request.never_skips_assignment
        effect = _Returned(group, member, before, leader, group.generation, new_id, call.call_id, may_skip)
        step.write(group.group_id, (group_record(group, assignments),), effect)
    elif group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
        # The leader's pending assignment contains the old member id.
        prepare_rebalance(group, step, "a static member returned")
    else:
        maybe_complete_join(group, step)


@dataclass(frozen=True, slots=True)
class _Returned(Effect):
    """A static member that has returned to a stable group and keeps its assignment. ``before`` is its previous state.

    A client that does not know ``skip_assignment`` is told the previous leader, even if that is the member itself, so
    that it does not assign.
    """

    group: ClassicGroup
    member: ClassicMember
    before: ClassicMember
    leader: str | None
    generation: int
    member_id: str
    call_id: int
    may_skip: bool

    def committed(self, step: Step) -> None:
        if self._is_current:
            response = joined(self.group, self.member, skip_assignment=self.may_skip)
            if not self.may_skip:
                response = replace(response, leader=self.leader or "", members=())
            self._answer(response, step)

    def failed(self, step: Step, error: TidelogError) -> None:
        if self._is_current:
            self.group.rename(self.member, self.before.member_id)
            self.group.update_protocols(self.member, self.before.protocols)
            self.member.rebalance_timeout_ms = self.before.rebalance_timeout_ms
            self.member.session_timeout_ms = self.before.session_timeout_ms
            self._answer(JoinGroupResponse(error=write_error(error)), step)

    @property
    def _is_current(self) -> bool:
        """False if the member waits for a rebalance that has begun, or if another one has taken its instance id."""
        in_place = self.group.state is ClassicState.STABLE and self.group.generation == self.generation
        is_member = self.group.members.get(self.member_id) is self.member
        return in_place and is_member and self.member.join_call == self.call_id

    def _answer(self, response: JoinGroupResponse, step: Step) -> None:
        step.respond(self.call_id, response)
        self.member.join_call = None
        reset_session(self.group, self.member, step)

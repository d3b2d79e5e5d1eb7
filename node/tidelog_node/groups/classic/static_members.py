"""The return of a static member with a new member id (KIP-345; KIP-814 for the leader)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_node.groups.answers import write_error
from tidelog_node.groups.classic.group import ClassicGroup, ClassicMember, ClassicState
from tidelog_node.groups.classic.persistence import group_record
from tidelog_node.groups.classic.rebalance import (
    answer_join,
    joined,
    maybe_complete_join,
    prepare_rebalance,
    refuse_join,
    refuse_sync,
    reset_session,
)
from tidelog_node.groups.events import RequestReceived
from tidelog_node.groups.messages import JoinGroupRequest, JoinGroupResponse
from tidelog_node.groups.step import Step


@dataclass(frozen=True, slots=True)
class _Before:
    """A member's previous state, restored if the change cannot be written."""

    member_id: str
    leader: str | None
    protocols: tuple[tuple[str, bytes], ...]
    rebalance_timeout_ms: int
    session_timeout_ms: int


def replace_static_member(
    group: ClassicGroup,
    member: ClassicMember,
    new_id: str,
    call: RequestReceived,
    request: JoinGroupRequest,
    step: Step,
) -> None:
    """Give the instance id to the joining member and fence the waiting calls of its previous owner.

    In a stable group the member keeps its assignment without a rebalance, unless the group would choose another
    protocol.
    """
    before = _Before(
        member.member_id, group.leader, member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms
    )
    refuse_join(member, step, ErrorCode.FENCED_INSTANCE_ID, member_id=member.member_id)
    refuse_sync(member, step, ErrorCode.FENCED_INSTANCE_ID)
    group.rename(member, new_id)
    group.update_protocols(member, request.metadata_by_protocol)
    member.rebalance_timeout_ms = request.join_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    member.join_call = call.call_id
    reset_session(group, member, step)
    if group.state is ClassicState.STABLE and group.select_protocol() == group.protocol_name:
        _keep_assignment(group, member, before, step, may_skip=not request.never_skips_assignment)
    elif group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
        # The leader's pending assignment contains the old member id.
        prepare_rebalance(group, step)
    else:
        maybe_complete_join(group, step)


def _keep_assignment(
    group: ClassicGroup, member: ClassicMember, before: _Before, step: Step, *, may_skip: bool
) -> None:
    generation, new_id, call_id = group.generation, member.member_id, member.join_call

    def is_current() -> bool:
        # If not, the member waits for a rebalance that has begun, or another member has taken its instance id.
        in_place = group.state is ClassicState.STABLE and group.generation == generation
        return in_place and group.members.get(new_id) is member and member.join_call == call_id

    def committed(step: Step) -> None:
        if is_current():
            if may_skip:
                answer_join(group, member, step, skip_assignment=True)
            else:
                _answer_as_follower(group, member, before.leader, step)
            reset_session(group, member, step)

    def failed(step: Step, error: TidelogError) -> None:
        if is_current():
            _revert(group, member, before, error, step)

    assignments = {other.member_id: other.assignment for other in group.members.values()}
    record = group_record(group, assignments)
    step.write(group.group_id, (record,), on_committed=committed, on_failed=failed)


def _answer_as_follower(group: ClassicGroup, member: ClassicMember, leader: str | None, step: Step) -> None:
    """Answer a client that does not know ``skip_assignment``.

    The answer names the previous leader, even if that is the member itself, so that the client does not assign.
    """
    assert member.join_call is not None
    step.respond(member.join_call, replace(joined(group, member), leader=leader or "", members=()))
    member.join_call = None


def _revert(group: ClassicGroup, member: ClassicMember, before: _Before, error: TidelogError, step: Step) -> None:
    assert member.join_call is not None
    step.respond(member.join_call, JoinGroupResponse(error=write_error(error)))
    member.join_call = None
    group.rename(member, before.member_id)
    group.update_protocols(member, before.protocols)
    member.rebalance_timeout_ms = before.rebalance_timeout_ms
    member.session_timeout_ms = before.session_timeout_ms
    reset_session(group, member, step)

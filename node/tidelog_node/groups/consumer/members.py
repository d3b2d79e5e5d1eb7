"""The member that a heartbeat belongs to: joins, epochs and returning static members (KIP-848, KIP-345)."""

from __future__ import annotations

from dataclasses import replace

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.groups.consumer.assignors import Assignment
from tidelog_node.groups.consumer.draft import Draft
from tidelog_node.groups.consumer.member import JOINING_EPOCH, LEAVE_GROUP_STATIC_EPOCH, ConsumerGroupMember
from tidelog_node.groups.consumer.state import GroupState
from tidelog_node.groups.consumer.validation import owned_partitions
from tidelog_node.groups.messages import (
    ConsumerGroupHeartbeatRequest,
    JoinGroupRequest,
)
from tidelog_node.groups.records import ConsumerGroupMemberMetadataValue
from tidelog_node.shards.events import ClientIdentity


def heartbeating_member(
    state: GroupState, draft: Draft, request: ConsumerGroupHeartbeatRequest, max_size: int
) -> ConsumerGroupMember:
    """Return the member that a heartbeat belongs to, a new one if it joins.

    If a static member comes back, the draft contains the records that replace its previous member id.

    Raises:
        TidelogError: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID; UNRELEASED_INSTANCE_ID if another
            member has the instance id and has not left; GROUP_MAX_SIZE_REACHED.
    """
    if request.member_epoch == JOINING_EPOCH:
        return _joining_member(state, draft, request, max_size)
    member = known_member(state, request)
    _check_epoch(member, request.member_epoch, owned_partitions(request))
    return member


def known_member(state: GroupState, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupMember:
    """Return the member that a request belongs to, checked by its instance id if the request has one.

    Raises:
        TidelogError: For the same reasons as :func:`member_of`.
    """
    return member_of(state, request.member_id, request.group_instance_id)


def member_of(state: GroupState, member_id: str, instance_id: str | None) -> ConsumerGroupMember:
    """Return a member by its id, checked by its instance id if there is one.

    Raises:
        TidelogError: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if the instance id belongs to another member.
    """
    if instance_id is not None:
        check_instance(state, instance_id, member_id)
        if instance_id not in state.static_members:
            raise error_for(ErrorCode.UNKNOWN_MEMBER_ID, f"the instance id {instance_id} is not known")
    if (member := state.members.get(member_id)) is None:
        raise unknown_member(state, member_id)
    return member


def check_instance(state: GroupState, instance_id: str, member_id: str) -> None:
    """Raise an error if an instance id belongs to another member.

    Raises:
        TidelogError: FENCED_INSTANCE_ID.
    """
    owner = state.static_members.get(instance_id, member_id)
    if owner != member_id:
        raise error_for(
            ErrorCode.FENCED_INSTANCE_ID,
            f"member {owner} has taken the instance id {instance_id} of member {member_id}",
        )


def unknown_member(state: GroupState, member_id: str) -> TidelogError:
    """Return the error for a member id that the group does not have."""
    return error_for(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is no member of group {state.group_id}")


def _joining_member(
    state: GroupState, draft: Draft, request: ConsumerGroupHeartbeatRequest, max_size: int
) -> ConsumerGroupMember:
    member_id = request.member_id
    known = state.members.get(member_id)
    former = _former(state, member_id, request.group_instance_id)
    if former is not None:
        if former.member_epoch != LEAVE_GROUP_STATIC_EPOCH and not former.uses_classic:
            raise error_for(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"member {member_id} cannot join with the instance id {request.group_instance_id}: "
                f"member {former.member_id} has it",
            )
        return _replace(state, draft, former, member_id)
    if known is not None:
        # The member joins again under the id that it keeps for life, and has revoked all its partitions (KAFKA-19233).
        was_away = known.member_epoch == LEAVE_GROUP_STATIC_EPOCH
        return _begin_anew(known, member_id) if was_away else known
    if len(state.members) >= max_size:
        raise error_for(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {state.group_id} has {len(state.members)} members, the most it may",
        )
    return ConsumerGroupMember(member_id)


def joining_classic_member(
    state: GroupState, draft: Draft, request: JoinGroupRequest, member_id: str
) -> ConsumerGroupMember:
    """Return the member that JoinGroup belongs to, a new one if unknown. A static member replaces its predecessor.

    ``member_id`` is the request's, or a new one if it has none. Unlike with the consumer protocol, the predecessor need
    not have left: JoinGroup without a member id fences the owner of the instance id (KIP-345).

    Raises:
        TidelogError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    instance_id = request.group_instance_id
    if instance_id is None:
        return state.members.get(member_id) or ConsumerGroupMember(member_id)
    if request.member_id:
        return member_of(state, member_id, instance_id)
    former = _former(state, member_id, instance_id)
    return ConsumerGroupMember(member_id) if former is None else _replace(state, draft, former, member_id)


def _former(state: GroupState, member_id: str, instance_id: str | None) -> ConsumerGroupMember | None:
    """Return another member that has the instance id."""
    former_id = state.static_members.get(instance_id or "")
    return None if former_id is None or former_id == member_id else state.members[former_id]


def _replace(state: GroupState, draft: Draft, former: ConsumerGroupMember, member_id: str) -> ConsumerGroupMember:
    """Replace a static member's previous id and keep everything that it owned."""
    if member_id in state.members:
        raise error_for(
            ErrorCode.INVALID_REQUEST,
            f"member {member_id} is in the group already, and cannot take the instance id of {former.member_id}",
        )
    target = draft.target_of(former.member_id)
    draft.remove(former.member_id)
    member = _begin_anew(former, member_id)
    draft.put_metadata(member)
    draft.put_target(member_id, target)
    draft.put_current(member)
    return member


def _begin_anew(former: ConsumerGroupMember, member_id: str) -> ConsumerGroupMember:
    return replace(former, member_id=member_id, member_epoch=JOINING_EPOCH, previous_member_epoch=JOINING_EPOCH)


def _check_epoch(member: ConsumerGroupMember, received: int, owned: Assignment | None) -> None:
    """Raise an error unless the epoch is the member's, or the previous one after a possibly lost answer."""
    if received == member.member_epoch:
        return
    has_missed_answer = received < member.member_epoch and received == member.previous_member_epoch
    if not has_missed_answer or owned is None or not owned <= member.assigned:
        raise error_for(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"member {member.member_id} has epoch {member.member_epoch}, not {received}: it must give up all its "
            "partitions and join again",
        )


def described_metadata(
    member: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest, client: ClientIdentity
) -> ConsumerGroupMemberMetadataValue:
    """Return a member's metadata after a heartbeat. Fields that the heartbeat omits stay unchanged."""
    before = member.metadata
    names, pattern = before.subscribed_topic_names, before.subscribed_topic_regex
    if request.subscribed_topic_names is not None:
        names = tuple(sorted(set(request.subscribed_topic_names)))
    if request.subscribed_topic_regex is not None:
        pattern = request.subscribed_topic_regex or None
    return ConsumerGroupMemberMetadataValue(
        instance_id=before.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=client.client_id,
        client_host=client.host,
        subscribed_topic_names=names,
        subscribed_topic_regex=pattern,
        rebalance_timeout_ms=(
            before.rebalance_timeout_ms if request.rebalance_timeout_ms is None else request.rebalance_timeout_ms
        ),
        server_assignor=before.server_assignor if request.server_assignor is None else request.server_assignor,
    )

"""Members of a consumer group that use the classic protocol (KIP-848, "Online Migration").

The coordinator assigns partitions to them as to all other members, and they use the classic requests. The generation of
such a member is its member epoch, so generations differ between members, and no member leads. Heartbeat tells the
member to join again when it must revoke partitions, when a new epoch begins, and when partitions that it waits for
become free. JoinGroup is its step towards the target assignment; SyncGroup returns its assignment.

The rules are those of Kafka's GroupMetadataManager: ``classicGroupJoinToConsumerGroup`` and related methods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.groups.consumer.assignors import Assignment
from tidelog_node.groups.consumer.member import ConsumerGroupMember, MemberState
from tidelog_node.groups.consumer.members import member_of
from tidelog_node.groups.consumer.state import GroupState
from tidelog_node.groups.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    NamedPartition,
    Subscription,
    encode_assignment,
    read_subscription,
)
from tidelog_node.groups.consumer_value_formats import ClassicMemberMetadata
from tidelog_node.groups.events import TopicInfo
from tidelog_node.groups.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeavingMember,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tidelog_node.groups.records import ConsumerGroupMemberMetadataValue
from tidelog_node.shards.events import ClientIdentity


def check_join(state: GroupState, request: JoinGroupRequest, max_size: int) -> None:
    """Raise an error if a classic member may not join.

    Raises:
        TidelogError: GROUP_MAX_SIZE_REACHED, or INCONSISTENT_GROUP_PROTOCOL if the member is not a consumer or names no
            protocol that all classic members of the group support.
    """
    if len(state.members) >= max_size and request.member_id not in state.members:
        text = f"group {state.group_id} has {len(state.members)} members, the most it may"
        raise error_for(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
    names = {protocol.name for protocol in request.protocols}
    of_others = [{name for name, _ in classic.supported_protocols} for classic in _classic_parts(state)]
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not names.intersection(*of_others):
        raise error_for(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"consumer group {state.group_id} takes members of the protocol type {CONSUMER_PROTOCOL_TYPE!r} that share "
            f"a protocol, not {sorted(names)} of the type {request.protocol_type!r}",
        )


def _classic_parts(state: GroupState) -> Iterable[ClassicMemberMetadata]:
    return (member.metadata.classic for member in state.members.values() if member.metadata.classic is not None)


def must_ask_for_id(request: JoinGroupRequest) -> bool:
    """Return whether a member must join again with an assigned id (KIP-394)."""
    return not request.member_id and request.group_instance_id is None and not request.joins_at_once


def member_id_required(member_id: str) -> JoinGroupResponse:
    """Return the response that assigns an id to a member."""
    return JoinGroupResponse(error=error_for(ErrorCode.MEMBER_ID_REQUIRED), member_id=member_id)


def subscription_of(request: JoinGroupRequest) -> Subscription:
    """Return the subscription of a joining member, which all its protocols share.

    Raises:
        TidelogError: INVALID_REQUEST: the subscription cannot be read.
    """
    name, metadata = request.protocols[0].name, request.protocols[0].metadata
    try:
        return read_subscription(metadata)
    except ValueError as error:
        text = f"the metadata of protocol {name!r} is not a consumer's subscription: {error}"
        raise error_for(ErrorCode.INVALID_REQUEST, text) from error


def joined_metadata(
    member: ConsumerGroupMember, request: JoinGroupRequest, subscription: Subscription, client: ClientIdentity
) -> ConsumerGroupMemberMetadataValue:
    """Return a classic member's metadata when it joins."""
    return ConsumerGroupMemberMetadataValue(
        instance_id=request.group_instance_id or member.metadata.instance_id,
        rack_id=subscription.rack_id or member.metadata.rack_id,
        client_id=client.client_id,
        client_host=client.host,
        subscribed_topic_names=subscription.topics,
        subscribed_topic_regex=None,
        rebalance_timeout_ms=request.join_timeout_ms,
        server_assignor=None,
        classic=ClassicMemberMetadata(request.session_timeout_ms, request.metadata_by_protocol),
    )


def with_ids(partitions: Iterable[NamedPartition], topics: Mapping[str, TopicInfo]) -> Assignment:
    """Return partitions by topic id, without those of topics that do not exist."""
    return frozenset((topics[name].topic_id, index) for name, index in partitions if name in topics)


def with_names(partitions: Assignment, topics: Mapping[str, TopicInfo]) -> set[NamedPartition]:
    """Return partitions by topic name, without those of topics that do not exist."""
    names = {topic.topic_id: topic.name for topic in topics.values()}
    return {(names[topic_id], index) for topic_id, index in partitions if topic_id in names}


def join_response(member: ConsumerGroupMember) -> JoinGroupResponse:
    """Return the JoinGroup response. It names no leader, so no member assigns."""
    return JoinGroupResponse(
        generation_id=member.member_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=_protocol(member)[0],
        member_id=member.member_id,
    )


def sync_response(member: ConsumerGroupMember, topics: Mapping[str, TopicInfo]) -> SyncGroupResponse:
    """Return the SyncGroup response with the member's assignment, in the version of its subscription."""
    name, metadata = _protocol(member)
    version = read_subscription(metadata).version
    return SyncGroupResponse(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=name,
        assignment=encode_assignment(with_names(member.assigned, topics), version),
    )


def _protocol(member: ConsumerGroupMember) -> tuple[str, bytes]:
    assert member.metadata.classic is not None
    return member.metadata.classic.supported_protocols[0]


def classic_member(state: GroupState, request: SyncGroupRequest | HeartbeatRequest) -> ConsumerGroupMember:
    """Return the classic member that a request belongs to.

    Raises:
        TidelogError: UNKNOWN_MEMBER_ID, also for a member of the consumer protocol; FENCED_INSTANCE_ID,
            ILLEGAL_GENERATION.
    """
    member = member_of(state, request.member_id, request.group_instance_id)
    if not member.uses_classic:
        text = f"member {member.member_id} of group {state.group_id} does not use the classic protocol"
        raise error_for(ErrorCode.UNKNOWN_MEMBER_ID, text)
    if request.generation_id != member.member_epoch:
        raise illegal_generation(state, member, request.generation_id)
    return member


def check_protocol(member: ConsumerGroupMember, request: SyncGroupRequest) -> None:
    """Raise an error if SyncGroup names a different protocol than the answer to JoinGroup.

    Raises:
        TidelogError: INCONSISTENT_GROUP_PROTOCOL.
    """
    for said, actual in (
        (request.protocol_type, CONSUMER_PROTOCOL_TYPE),
        (request.protocol_name, _protocol(member)[0]),
    ):
        if said and said != actual:
            text = f"the protocol of member {member.member_id} is {actual}, not {said}"
            raise error_for(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text)


def must_rejoin(state: GroupState, member: ConsumerGroupMember) -> bool:
    """Return whether Heartbeat must tell a member to join again."""
    if member.member_epoch < state.group_epoch:
        return True
    match member.state:
        case MemberState.UNREVOKED_PARTITIONS:
            return True
        case MemberState.UNRELEASED_PARTITIONS:
            missing = state.targets.get(member.member_id, frozenset()) - member.assigned
            return all(state.owner_of(partition) is None for partition in missing)
        case _:
            return False


def rebalance_in_progress(state: GroupState) -> TidelogError:
    """Return the error that tells a member to join again."""
    return error_for(ErrorCode.REBALANCE_IN_PROGRESS, f"group {state.group_id} rebalances")


def illegal_generation(state: GroupState, member: ConsumerGroupMember, generation: int) -> TidelogError:
    """Return the error for a generation that is not the member's epoch."""
    return error_for(
        ErrorCode.ILLEGAL_GENERATION,
        f"member {member.member_id} of group {state.group_id} has generation {member.member_epoch}, not {generation}",
    )


def leaving_member(state: GroupState, leaving: LeavingMember) -> ConsumerGroupMember:
    """Return the member that LeaveGroup removes. An administrator names it by its instance id alone (KIP-345).

    Raises:
        TidelogError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    instance_id = leaving.group_instance_id
    holder = state.static_members.get(instance_id or "") if not leaving.member_id else None
    return member_of(state, holder or leaving.member_id, instance_id)

"""The APIs of group members: JoinGroup, SyncGroup, Heartbeat, LeaveGroup and ConsumerGroupHeartbeat."""

from __future__ import annotations

import uuid

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.groups import messages
from tidelog_node.handlers import group_members
from tidelog_node.kafka.apis.errors import code_of, text_of
from tidelog_node.kafka.protocol.messages import group_members as wire
from tidelog_node.kafka.served import Api, Caller, KafkaNode, MessageApi

_KNOWS_MEMBER_ID_REQUIRED = 4
_NULL_PROTOCOL_NAME = 7
_KNOWS_SKIP_ASSIGNMENT = 9
_SYNC_NAMES_PROTOCOL = 5
_LEAVE_NAMES_MEMBERS = 3
_OWN_MEMBER_ID = 1
_JOINING_EPOCH = 0
_AS_BEFORE = -1


async def join_group(node: KafkaNode, request: wire.JoinGroupRequest, caller: Caller) -> wire.JoinGroupResponse:
    """Join a group. The answer follows when the group is complete."""
    asked = messages.JoinGroupRequest(
        group_id=request.group_id,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocols=tuple(
            [messages.GroupProtocol(p.name, bytes(p.metadata)) async for p in TimeSlices().of(request.protocols)]
        ),
        reason=request.reason or "",
        joins_at_once=caller.version < _KNOWS_MEMBER_ID_REQUIRED,
        never_skips_assignment=caller.version < _KNOWS_SKIP_ASSIGNMENT,
        may_describe=_may_describe(node, caller),
    )
    answer = await group_members.join_group(node.groups, asked, caller.client)
    no_protocol = None if caller.version >= _NULL_PROTOCOL_NAME else ""
    return wire.JoinGroupResponse(
        error_code=code_of(answer.error),
        generation_id=answer.generation_id,
        protocol_type=answer.protocol_type or None,
        protocol_name=answer.protocol_name or no_protocol,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            wire.JoinGroupResponseMember(member.member_id, member.group_instance_id, member.metadata)
            for member in answer.members
        ],
    )


async def sync_group(node: KafkaNode, request: wire.SyncGroupRequest, caller: Caller) -> wire.SyncGroupResponse:
    """Return a member's assignment. The answer follows when the group's leader has assigned."""
    if caller.version >= _SYNC_NAMES_PROTOCOL and not (request.protocol_type and request.protocol_name):
        return wire.SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL.code)
    asked = messages.SyncGroupRequest(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type or "",
        protocol_name=request.protocol_name or "",
        assignments=tuple(
            [
                messages.MemberAssignment(a.member_id, bytes(a.assignment))
                async for a in TimeSlices().of(request.assignments)
            ]
        ),
    )
    answer = await group_members.sync_group(node.groups, asked, caller.client)
    return wire.SyncGroupResponse(
        error_code=code_of(answer.error),
        protocol_type=answer.protocol_type or None,
        protocol_name=answer.protocol_name or None,
        assignment=answer.assignment,
    )


async def heartbeat(node: KafkaNode, request: wire.HeartbeatRequest, caller: Caller) -> wire.HeartbeatResponse:
    """Keep a member alive."""
    asked = messages.HeartbeatRequest(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
    )
    answer = await group_members.heartbeat(node.groups, asked, caller.client)
    return wire.HeartbeatResponse(error_code=code_of(answer.error))


async def leave_group(node: KafkaNode, request: wire.LeaveGroupRequest, caller: Caller) -> wire.LeaveGroupResponse:
    """Remove members from a group. Up to version 2 there is one member, and its error is that of the response."""
    names_members = caller.version >= _LEAVE_NAMES_MEMBERS
    leaving = request.members if names_members else [wire.MemberIdentity(member_id=request.member_id)]
    asked = messages.LeaveGroupRequest(
        group_id=request.group_id,
        members=tuple(
            [
                messages.LeavingMember(member.member_id, member.group_instance_id, member.reason or "")
                async for member in TimeSlices().of(leaving)
            ]
        ),
    )
    answer = await group_members.leave_group(node.groups, asked, caller.client)
    response = await _left(leaving, answer)
    if names_members:
        return response
    return wire.LeaveGroupResponse(error_code=response.error_code or response.members[0].error_code)


async def _left(leaving: list[wire.MemberIdentity], answer: messages.LeaveGroupResponse) -> wire.LeaveGroupResponse:
    if answer.error is None:
        codes = [code_of(member.error) for member in answer.members]
    elif answer.error.code is ErrorCode.UNKNOWN_MEMBER_ID:
        # The group does not exist, which Kafka reports for each member.
        codes = [code_of(answer.error)] * len(leaving)
    else:
        return wire.LeaveGroupResponse(error_code=code_of(answer.error))
    members = [
        wire.MemberResponse(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code)
        async for member, code in TimeSlices().of(zip(leaving, codes, strict=True))
    ]
    return wire.LeaveGroupResponse(members=members)


async def consumer_group_heartbeat(
    node: KafkaNode, request: wire.ConsumerGroupHeartbeatRequest, caller: Caller
) -> wire.ConsumerGroupHeartbeatResponse:
    """Join, stay in, or leave a group by KIP-848's protocol."""
    is_nameless = caller.version < _OWN_MEMBER_ID and not request.member_id and request.member_epoch == _JOINING_EPOCH
    names, owned = request.subscribed_topic_names, request.topic_partitions
    asked = messages.ConsumerGroupHeartbeatRequest(
        group_id=request.group_id,
        member_id=str(uuid.uuid4()) if is_nameless else request.member_id,
        member_epoch=request.member_epoch,
        group_instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=None if request.rebalance_timeout_ms == _AS_BEFORE else request.rebalance_timeout_ms,
        subscribed_topic_names=None if names is None else tuple(names),
        subscribed_topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        topic_partitions=None
        if owned is None
        else tuple(messages.MemberTopicPartitions(t.topic_id, tuple(t.partitions)) for t in owned),
        may_describe=_may_describe(node, caller),
    )
    return _beaten(await group_members.consumer_group_heartbeat(node.groups, asked, caller.client))


def _may_describe(node: KafkaNode, caller: Caller) -> messages.MayDescribe | None:
    return None if node.guard is None else node.guard.access("CONSUMER_GROUP_HEARTBEAT", caller).may_describe_topic


def _beaten(answer: messages.ConsumerGroupHeartbeatResponse) -> wire.ConsumerGroupHeartbeatResponse:
    response = wire.ConsumerGroupHeartbeatResponse(
        error_code=code_of(answer.error),
        error_message=text_of(answer.error),
        member_id=answer.member_id or None,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
    )
    if answer.assignment is not None:
        topics = [wire.HeartbeatTopicPartitions(topic.topic_id, list(topic.partitions)) for topic in answer.assignment]
        response.assignment = wire.HeartbeatAssignment(topics)
    return response


APIS: tuple[Api, ...] = (
    MessageApi(wire.JoinGroupRequest, join_group),
    MessageApi(wire.SyncGroupRequest, sync_group),
    MessageApi(wire.HeartbeatRequest, heartbeat),
    MessageApi(wire.LeaveGroupRequest, leave_group),
    MessageApi(wire.ConsumerGroupHeartbeatRequest, consumer_group_heartbeat),
)

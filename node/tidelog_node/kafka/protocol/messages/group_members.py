"""Requests of group members, of the classic protocol and KIP-848's (KIP-345, KIP-394, KIP-559, KIP-814, KIP-1082)."""

from __future__ import annotations

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import (
    INT32,
    STRING,
    Message,
    Structure,
    array,
    boolean,
    data,
    int16,
    int32,
    string,
    structure,
    uuid,
)


class JoinGroupRequestProtocol(Structure):
    """A protocol that a member supports, with the member's metadata for it."""

    name: str = string()
    metadata: bytes = data()


class JoinGroupRequest(Message, api=ApiKey.JOIN_GROUP, versions=(0, 9), flexible=6):
    """A request to join a group. In version 0 the session timeout is also the rebalance timeout."""

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(since=1, default=-1)
    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable=5, default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string(since=8, nullable=8, default=None)


class JoinGroupResponseMember(Structure):
    """A member as the group's leader sees it."""

    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable=5, default=None)
    metadata: bytes = data()


class JoinGroupResponse(Message, answers=JoinGroupRequest):
    """The generation that the member has joined. Only the leader receives ``members``."""

    throttle_time_ms: int = int32(since=2)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string(since=7, nullable=7, default=None)
    protocol_name: str | None = string(nullable=7)
    leader: str = string()
    skip_assignment: bool = boolean(since=9)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)


class SyncGroupRequestAssignment(Structure):
    """The leader's assignment for a member."""

    member_id: str = string()
    assignment: bytes = data()


class SyncGroupRequest(Message, api=ApiKey.SYNC_GROUP, versions=(0, 5), flexible=4):
    """A request for the member's assignment. Only the leader sends ``assignments``."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=3, default=None)
    protocol_type: str | None = string(since=5, nullable=5, default=None)
    protocol_name: str | None = string(since=5, nullable=5, default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Message, answers=SyncGroupRequest):
    """The member's assignment."""

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    protocol_type: str | None = string(since=5, nullable=5, default=None)
    protocol_name: str | None = string(since=5, nullable=5, default=None)
    assignment: bytes = data()


class HeartbeatRequest(Message, api=ApiKey.HEARTBEAT, versions=(0, 4), flexible=4):
    """A sign of life from a member."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=3, default=None)


class HeartbeatResponse(Message, answers=HeartbeatRequest):
    """The answer to a heartbeat. An error tells the member to join again."""

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()


class MemberIdentity(Structure):
    """A leaving member. If the id is empty, the instance id names it."""

    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable=3, default=None)
    reason: str | None = string(since=5, nullable=5, default=None)


class LeaveGroupRequest(Message, api=ApiKey.LEAVE_GROUP, versions=(0, 5), flexible=4):
    """A request to remove members: one up to version 2, several from version 3 on."""

    group_id: str = string()
    member_id: str = string(until=2)
    members: list[MemberIdentity] = array(MemberIdentity, since=3)


class MemberResponse(Structure):
    """The result of one member."""

    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable=3)
    error_code: int = int16(since=3)


class LeaveGroupResponse(Message, answers=LeaveGroupRequest):
    """The results in the order of the request."""

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, since=3)


class HeartbeatTopicPartitions(Structure):
    """Partitions of a topic."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(INT32)


class ConsumerGroupHeartbeatRequest(Message, api=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1), flexible=0):
    """A member's heartbeat. Null means unchanged. From version 1 on the member chooses ``member_id`` (KIP-1082)."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable=0, default=None)
    rack_id: str | None = string(nullable=0, default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(STRING, nullable=0, default_null=True)
    subscribed_topic_regex: str | None = string(since=1, nullable=1, default=None)
    server_assignor: str | None = string(nullable=0, default=None)
    topic_partitions: list[HeartbeatTopicPartitions] | None = array(
        HeartbeatTopicPartitions, nullable=0, default_null=True
    )


class HeartbeatAssignment(Structure):
    """A member's assignment."""

    topic_partitions: list[HeartbeatTopicPartitions] = array(HeartbeatTopicPartitions)


class ConsumerGroupHeartbeatResponse(Message, answers=ConsumerGroupHeartbeatRequest):
    """The answer to a heartbeat. A null ``assignment`` means unchanged."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    member_id: str | None = string(nullable=0, default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: HeartbeatAssignment | None = structure(HeartbeatAssignment, nullable=0)

"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup (KIP-345, KIP-394, KIP-559, KIP-814)."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import Message, Structure, array, boolean, data, int16, int32, string


@dataclass(slots=True)
class JoinGroupRequestProtocol(Structure):
    """A protocol that a member supports, with the member's metadata for it."""

    name: str = string()
    metadata: bytes = data()


@dataclass(slots=True)
class JoinGroupRequest(Message):
    """A request to join a group. In version 0 the session timeout is also the rebalance timeout."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.JOIN_GROUP, (0, 9), 6

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(since=1, default=-1)
    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable=5, default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string(since=8, nullable=8, default=None)


@dataclass(slots=True)
class JoinGroupResponseMember(Structure):
    """A member as the group's leader sees it."""

    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable=5, default=None)
    metadata: bytes = data()


@dataclass(slots=True)
class JoinGroupResponse(Message):
    """The generation that the member has joined. Only the leader receives ``members``."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.JOIN_GROUP, (0, 9), 6

    throttle_time_ms: int = int32(since=2)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string(since=7, nullable=7, default=None)
    protocol_name: str | None = string(nullable=7)
    leader: str = string()
    skip_assignment: bool = boolean(since=9)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)


@dataclass(slots=True)
class SyncGroupRequestAssignment(Structure):
    """The leader's assignment for a member."""

    member_id: str = string()
    assignment: bytes = data()


@dataclass(slots=True)
class SyncGroupRequest(Message):
    """A request for the member's assignment. Only the leader sends ``assignments``."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.SYNC_GROUP, (0, 5), 4

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=3, default=None)
    protocol_type: str | None = string(since=5, nullable=5, default=None)
    protocol_name: str | None = string(since=5, nullable=5, default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@dataclass(slots=True)
class SyncGroupResponse(Message):
    """The member's assignment."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.SYNC_GROUP, (0, 5), 4

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    protocol_type: str | None = string(since=5, nullable=5, default=None)
    protocol_name: str | None = string(since=5, nullable=5, default=None)
    assignment: bytes = data()


@dataclass(slots=True)
class HeartbeatRequest(Message):
    """A sign of life from a member."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.HEARTBEAT, (0, 4), 4

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=3, default=None)


@dataclass(slots=True)
class HeartbeatResponse(Message):
    """The answer to a heartbeat. An error tells the member to join again."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.HEARTBEAT, (0, 4), 4

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()


@dataclass(slots=True)
class MemberIdentity(Structure):
    """A leaving member. If the id is empty, the instance id names it."""

    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable=3, default=None)
    reason: str | None = string(since=5, nullable=5, default=None)


@dataclass(slots=True)
class LeaveGroupRequest(Message):
    """A request to remove members: one up to version 2, several from version 3 on."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.LEAVE_GROUP, (0, 5), 4

    group_id: str = string()
    member_id: str = string(until=2)
    members: list[MemberIdentity] = array(MemberIdentity, since=3)


@dataclass(slots=True)
class MemberResponse(Structure):
    """The result of one member."""

    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable=3)
    error_code: int = int16(since=3)


@dataclass(slots=True)
class LeaveGroupResponse(Message):
    """The results in the order of the request."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.LEAVE_GROUP, (0, 5), 4

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, since=3)

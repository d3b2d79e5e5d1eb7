"""The requests of a member of a classic group."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.consumer.assignors import PROTOCOL_TYPE
from tidelog.consumer.membership.events import MembershipSettings
from tidelog.v1 import group_service_pb2 as pb

_MAX_REASON = 255
"""The longest reason of a request, as in Kafka's ``JoinGroupRequest.maybeTruncateReason``."""


def join_group(
    settings: MembershipSettings, member_id: str, protocols: Iterable[tuple[str, bytes]], reason: str
) -> pb.JoinGroupRequest:
    """Return a JoinGroup with the name and the metadata of each assignor."""
    return pb.JoinGroupRequest(
        group_id=settings.group_id,
        session_timeout_ms=settings.session_timeout_ms,
        rebalance_timeout_ms=settings.max_poll_interval_ms,
        member_id=member_id,
        group_instance_id=settings.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[pb.GroupProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        reason=reason[:_MAX_REASON],
    )


def sync_group(
    settings: MembershipSettings,
    joined: pb.JoinGroupResponse,
    assignments: Iterable[pb.MemberAssignment],
) -> pb.SyncGroupRequest:
    """Return the SyncGroup after a JoinGroup; only an assigning leader has assignments."""
    return pb.SyncGroupRequest(
        group_id=settings.group_id,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=settings.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=joined.protocol_name,
        assignments=assignments,
    )


def heartbeat(settings: MembershipSettings, generation_id: int, member_id: str) -> pb.HeartbeatRequest:
    """Return a Heartbeat."""
    return pb.HeartbeatRequest(
        group_id=settings.group_id,
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=settings.group_instance_id,
    )


def leave_group(settings: MembershipSettings, member_id: str, reason: str) -> pb.LeaveGroupRequest:
    """Return the LeaveGroup of a dynamic member."""
    member = pb.LeavingMember(member_id=member_id, reason=reason[:_MAX_REASON])
    return pb.LeaveGroupRequest(group_id=settings.group_id, members=[member])

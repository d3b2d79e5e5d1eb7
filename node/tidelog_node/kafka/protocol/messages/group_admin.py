"""Administrative requests for groups: DescribeGroups, ListGroups, DeleteGroups (KIP-518, KIP-848, KIP-1043)."""

from __future__ import annotations

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import STRING, Message, Structure, array, boolean, data, int16, int32, string
from tidelog_node.kafka.protocol.messages.group_consumers import NO_OPERATIONS


class DescribeGroupsRequest(Message, api=ApiKey.DESCRIBE_GROUPS, versions=(0, 6), flexible=5):
    """The groups to describe."""

    groups: list[str] = array(STRING)
    include_authorized_operations: bool = boolean(since=3)


class DescribedGroupMember(Structure):
    """A member of a classic group."""

    member_id: str = string()
    group_instance_id: str | None = string(since=4, nullable=4, default=None)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = data()
    member_assignment: bytes = data()


class DescribedGroup(Structure):
    """A classic group. ``protocol_data`` is its assignor."""

    error_code: int = int16()
    error_message: str | None = string(since=6, nullable=6, default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(since=3, default=NO_OPERATIONS)


class DescribeGroupsResponse(Message, answers=DescribeGroupsRequest):
    """The groups, each once."""

    throttle_time_ms: int = int32(since=1)
    groups: list[DescribedGroup] = array(DescribedGroup)


class ListGroupsRequest(Message, api=ApiKey.LIST_GROUPS, versions=(0, 5), flexible=3):
    """A request for all groups that pass the filters. Empty filters pass every group."""

    states_filter: list[str] = array(STRING, since=4)
    types_filter: list[str] = array(STRING, since=5)


class ListedGroup(Structure):
    """A group's entry."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4)
    group_type: str = string(since=5)


class ListGroupsResponse(Message, answers=ListGroupsRequest):
    """The groups that the node coordinates."""

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)


class DeleteGroupsRequest(Message, api=ApiKey.DELETE_GROUPS, versions=(0, 2), flexible=2):
    """The groups to delete."""

    groups_names: list[str] = array(STRING)


class DeletableGroupResult(Structure):
    """The result of one group."""

    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(Message, answers=DeleteGroupsRequest):
    """The groups, each once."""

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)

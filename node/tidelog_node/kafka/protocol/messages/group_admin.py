"""Administrative requests for groups: DescribeGroups, ListGroups, DeleteGroups (KIP-518, KIP-848, KIP-1043)."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import STRING, Message, Structure, array, boolean, data, int16, int32, string
from tidelog_node.kafka.protocol.messages.group_consumers import NO_OPERATIONS


@dataclass(slots=True)
class DescribeGroupsRequest(Message):
    """The groups to describe."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.DESCRIBE_GROUPS, (0, 6), 5

    groups: list[str] = array(STRING)
    include_authorized_operations: bool = boolean(since=3)


@dataclass(slots=True)
class DescribedGroupMember(Structure):
    """A member of a classic group."""

    member_id: str = string()
    group_instance_id: str | None = string(since=4, nullable=4, default=None)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = data()
    member_assignment: bytes = data()


@dataclass(slots=True)
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


@dataclass(slots=True)
class DescribeGroupsResponse(Message):
    """The groups, each once."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.DESCRIBE_GROUPS, (0, 6), 5

    throttle_time_ms: int = int32(since=1)
    groups: list[DescribedGroup] = array(DescribedGroup)


@dataclass(slots=True)
class ListGroupsRequest(Message):
    """A request for all groups that pass the filters. Empty filters pass every group."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.LIST_GROUPS, (0, 5), 3

    states_filter: list[str] = array(STRING, since=4)
    types_filter: list[str] = array(STRING, since=5)


@dataclass(slots=True)
class ListedGroup(Structure):
    """A group's entry."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4)
    group_type: str = string(since=5)


@dataclass(slots=True)
class ListGroupsResponse(Message):
    """The groups that the node coordinates."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.LIST_GROUPS, (0, 5), 3

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)


@dataclass(slots=True)
class DeleteGroupsRequest(Message):
    """The groups to delete."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.DELETE_GROUPS, (0, 2), 2

    groups_names: list[str] = array(STRING)


@dataclass(slots=True)
class DeletableGroupResult(Structure):
    """The result of one group."""

    group_id: str = string()
    error_code: int = int16()


@dataclass(slots=True)
class DeleteGroupsResponse(Message):
    """The groups, each once."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.DELETE_GROUPS, (0, 2), 2

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)

"""FindCoordinator and the administration of groups (KIP-98, KIP-518, KIP-699, KIP-848, KIP-1043)."""

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
    int8,
    int16,
    int32,
    string,
    structure,
    uuid,
)
from tidelog_node.kafka.protocol.messages.metadata import NO_OPERATIONS


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


class FindCoordinatorRequest(Message, api=ApiKey.FIND_COORDINATOR, versions=(0, 6), flexible=3):
    """A request for coordinators: one key up to version 3, several from version 4 on.

    ``key_type`` is 0 for a group, 1 for a transactional id and 2 for a share group.
    """

    key: str = string(until=3)
    key_type: int = int8(since=1)
    coordinator_keys: list[str] = array(STRING, since=4)


class Coordinator(Structure):
    """The coordinator of one key. On error the node is -1, the host is empty and the port is -1."""

    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=4)


class FindCoordinatorResponse(Message, answers=FindCoordinatorRequest):
    """The coordinators in the order of the request."""

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16(until=3)
    error_message: str | None = string(since=1, until=3, nullable=1)
    node_id: int = int32(until=3)
    host: str = string(until=3)
    port: int = int32(until=3)
    coordinators: list[Coordinator] = array(Coordinator, since=4)


class ConsumerGroupDescribeRequest(Message, api=ApiKey.CONSUMER_GROUP_DESCRIBE, versions=(0, 1), flexible=0):
    """The groups to describe."""

    group_ids: list[str] = array(STRING)
    include_authorized_operations: bool = boolean()


class DescribedTopicPartitions(Structure):
    """Partitions of a topic, with its name."""

    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(INT32)


class DescribedAssignment(Structure):
    """A member's current or target assignment."""

    topic_partitions: list[DescribedTopicPartitions] = array(DescribedTopicPartitions)


class DescribedConsumerGroupMember(Structure):
    """A member. ``member_type`` is 0 for the classic protocol, 1 for the consumer protocol, -1 if unknown."""

    member_id: str = string()
    instance_id: str | None = string(nullable=0, default=None)
    rack_id: str | None = string(nullable=0, default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(STRING)
    subscribed_topic_regex: str | None = string(nullable=0, default=None)
    assignment: DescribedAssignment = structure(DescribedAssignment)
    target_assignment: DescribedAssignment = structure(DescribedAssignment)
    member_type: int = int8(since=1, default=-1)


class DescribedConsumerGroup(Structure):
    """A consumer group."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[DescribedConsumerGroupMember] = array(DescribedConsumerGroupMember)
    authorized_operations: int = int32(default=NO_OPERATIONS)


class ConsumerGroupDescribeResponse(Message, answers=ConsumerGroupDescribeRequest):
    """The groups, each once."""

    throttle_time_ms: int = int32()
    groups: list[DescribedConsumerGroup] = array(DescribedConsumerGroup)

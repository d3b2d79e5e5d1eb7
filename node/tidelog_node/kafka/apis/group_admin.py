"""FindCoordinator and the administration of groups: ListGroups, DescribeGroups, ConsumerGroupDescribe, DeleteGroups."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.groups import messages
from tidelog_node.handlers import groups
from tidelog_node.kafka.apis.errors import code_of, text_of
from tidelog_node.kafka.apis.operations import GROUP_OPERATIONS
from tidelog_node.kafka.protocol.messages import group_admin as wire
from tidelog_node.kafka.protocol.messages.metadata import NO_OPERATIONS
from tidelog_node.kafka.served import Api, Caller, KafkaNode, MessageApi

_SEVERAL_KEYS = 4
_SAYS_NOT_FOUND = 6
_NO_NODE = -1
_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


class CoordinatorType(IntEnum):
    """The type of a key in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


async def find_coordinator(
    node: KafkaNode, request: wire.FindCoordinatorRequest, caller: Caller
) -> wire.FindCoordinatorResponse:
    """Return the coordinators of groups or transactional ids, with their addresses on the caller's listener."""
    several = caller.version >= _SEVERAL_KEYS
    keys = request.coordinator_keys if several else [request.key]
    if request.key_type == CoordinatorType.GROUP:
        found = await _coordinators(node, messages.FindCoordinatorRequest(tuple(keys)), caller)
    elif request.key_type == CoordinatorType.TRANSACTION:
        found = await _coordinators(node, messages.FindCoordinatorRequest((), tuple(keys)), caller)
    else:
        found = [_no_coordinator(request.key_type, key) async for key in TimeSlices().of(keys)]
    if several:
        return wire.FindCoordinatorResponse(coordinators=found)
    only = found[0]
    return wire.FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


async def _coordinators(
    node: KafkaNode, asked: messages.FindCoordinatorRequest, caller: Caller
) -> list[wire.Coordinator]:
    answer = await groups.find_coordinator(node.groups, node.context.transactions, asked, caller.listener)
    return [
        wire.Coordinator(
            key=found.group_id or found.transactional_id,
            node_id=found.node_id,
            host="" if found.endpoint is None else found.endpoint.host,
            port=_NO_NODE if found.endpoint is None else found.endpoint.port,
            error_code=code_of(found.error),
            error_message=text_of(found.error),
        )
        async for found in TimeSlices().of(answer.coordinators)
    ]


def _no_coordinator(key_type: int, key: str) -> wire.Coordinator:
    text = f"unknown coordinator type {key_type}, expected 0 (group) or 1 (transaction)"
    error = error_for(ErrorCode.INVALID_REQUEST, text)
    return wire.Coordinator(key, _NO_NODE, "", _NO_NODE, error.code.code, error.message)


async def list_groups(node: KafkaNode, request: wire.ListGroupsRequest, caller: Caller) -> wire.ListGroupsResponse:
    """List the groups that this node coordinates."""
    asked = messages.ListGroupsRequest(tuple(request.states_filter), tuple(request.types_filter))
    answer = await groups.list_groups(node.groups, asked, caller.client)
    return wire.ListGroupsResponse(
        error_code=code_of(answer.error),
        groups=[
            wire.ListedGroup(g.group_id, g.protocol_type, g.group_state, g.group_type)
            async for g in TimeSlices().of(answer.groups)
        ],
    )


async def describe_groups(
    node: KafkaNode, request: wire.DescribeGroupsRequest, caller: Caller
) -> wire.DescribeGroupsResponse:
    """Describe groups of the classic protocol, each once."""
    asked = messages.DescribeGroupsRequest(tuple(request.groups))
    answer = await groups.describe_groups(node.groups, asked, caller.client)
    with_operations = request.include_authorized_operations
    described = [_described(group, caller, asked=with_operations) async for group in TimeSlices().of(answer.groups)]
    return wire.DescribeGroupsResponse(groups=described)


def _described(group: messages.DescribedGroup, caller: Caller, *, asked: bool) -> wire.DescribedGroup:
    # A group that does not exist is Dead. Before KIP-1043 it has no error.
    code = code_of(group.error)
    if code == ErrorCode.GROUP_ID_NOT_FOUND.code and caller.version < _SAYS_NOT_FOUND:
        code = 0
    return wire.DescribedGroup(
        error_code=code,
        error_message=text_of(group.error),
        group_id=group.group_id,
        group_state=group.group_state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_data,
        members=[_described_member(member) for member in group.members],
        authorized_operations=_operations(code, asked=asked),
    )


def _described_member(member: messages.DescribedGroupMember) -> wire.DescribedGroupMember:
    return wire.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.member_metadata,
        member_assignment=member.member_assignment,
    )


def _operations(error_code: int, *, asked: bool) -> int:
    return GROUP_OPERATIONS if asked and not error_code else NO_OPERATIONS


async def consumer_group_describe(
    node: KafkaNode, request: wire.ConsumerGroupDescribeRequest, caller: Caller
) -> wire.ConsumerGroupDescribeResponse:
    """Describe groups of KIP-848's protocol, each once."""
    asked = messages.ConsumerGroupDescribeRequest(tuple(request.group_ids))
    answer = await groups.consumer_group_describe(node.groups, asked, caller.client)
    described = [
        wire.DescribedConsumerGroup(
            error_code=code_of(group.error),
            error_message=text_of(group.error),
            group_id=group.group_id,
            group_state=group.group_state,
            group_epoch=group.group_epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=group.assignor_name,
            members=[_described_consumer(member) for member in group.members],
            authorized_operations=_operations(code_of(group.error), asked=request.include_authorized_operations),
        )
        async for group in TimeSlices().of(answer.groups)
    ]
    return wire.ConsumerGroupDescribeResponse(groups=described)


def _described_consumer(member: messages.DescribedConsumerGroupMember) -> wire.DescribedConsumerGroupMember:
    return wire.DescribedConsumerGroupMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=member.rack_id or None,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex or None,
        assignment=_described_assignment(member.assignment),
        target_assignment=_described_assignment(member.target_assignment),
        member_type=_CLASSIC_MEMBER if member.uses_classic_protocol else _CONSUMER_MEMBER,
    )


def _described_assignment(topics: Sequence[messages.MemberTopicPartitions] | None) -> wire.DescribedAssignment:
    return wire.DescribedAssignment(
        [wire.DescribedTopicPartitions(t.topic_id, t.topic_name, list(t.partitions)) for t in topics or ()]
    )


async def delete_groups(
    node: KafkaNode, request: wire.DeleteGroupsRequest, caller: Caller
) -> wire.DeleteGroupsResponse:
    """Delete groups that have no members, with their offsets."""
    asked = messages.DeleteGroupsRequest(tuple(request.groups_names))
    answer = await groups.delete_groups(node.groups, asked, caller.client)
    results = [wire.DeletableGroupResult(g.group_id, code_of(g.error)) async for g in TimeSlices().of(answer.groups)]
    return wire.DeleteGroupsResponse(results=results)


APIS: tuple[Api, ...] = (
    MessageApi(wire.FindCoordinatorRequest, find_coordinator),
    MessageApi(wire.ListGroupsRequest, list_groups),
    MessageApi(wire.DescribeGroupsRequest, describe_groups),
    MessageApi(wire.ConsumerGroupDescribeRequest, consumer_group_describe),
    MessageApi(wire.DeleteGroupsRequest, delete_groups),
)

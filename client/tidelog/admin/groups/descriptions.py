"""The list of a cluster's groups, of which every node returns those that it coordinates, and their descriptions.

Each group is described by KIP-848's protocol first, and by the classic one if not found, as in Kafka's Admin
(``DescribeConsumerGroupsHandler``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tidelog.admin.attempts import ask_coordinators, ask_every_node
from tidelog.admin.groups.model import (
    ConsumerGroupDescription,
    ConsumerGroupListing,
    ConsumerGroupState,
    ConsumerGroupType,
    ListConsumerGroupsResult,
    MemberAssignment,
    MemberDescription,
)
from tidelog.admin.operations import Outcomes
from tidelog.admin.resources import GROUP_OPERATIONS, authorized_operations
from tidelog.admin.topics import Node
from tidelog.cluster import ClusterClient, Connection, Coordinators
from tidelog.cluster.answers import error_of
from tidelog.cluster.loop_time import now_ms
from tidelog.consumer.assignors.protocol import PROTOCOL_TYPE, decode_assignment
from tidelog.message import TopicPartition
from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for


async def list_groups(
    cluster: ClusterClient,
    states: Iterable[ConsumerGroupState] | None,
    types: Iterable[ConsumerGroupType] | None,
    timeout_ms: float,
) -> ListConsumerGroupsResult:
    """Ask every node; retry nodes that are loading or unreachable until the deadline.

    Raises:
        TidelogError: no node answered the request for metadata.
    """
    request = pb.ListGroupsRequest(
        states_filter=sorted({state.kafka_name for state in states or ()}),
        types_filter=sorted({kind.kafka_name for kind in types or ()}),
    )
    answers = await ask_every_node(
        cluster, "groups", lambda c, timeout_s: c.groups.ListGroups(request, timeout=timeout_s), timeout_ms
    )
    lines = [line for _, response, _ in answers if response is not None for line in response.groups]
    groups = {g.group_id: g for g in map(_listing, (g for g in lines if g.protocol_type in ("", PROTOCOL_TYPE)))}
    errors = [error for _, _, error in answers if error is not None]
    return ListConsumerGroupsResult([groups[g] for g in sorted(groups)], errors)


def _listing(group: pb.GroupListing) -> ConsumerGroupListing:
    return ConsumerGroupListing(
        group.group_id,
        not group.protocol_type,
        ConsumerGroupState.parse(group.group_state),
        ConsumerGroupType.parse(group.group_type),
    )


async def describe_groups(
    cluster: ClusterClient,
    coordinators: Coordinators,
    group_ids: Iterable[str],
    timeout_ms: float,
    *,
    with_operations: bool = False,
) -> dict[str, ConsumerGroupDescription | TidelogError]:
    """Return the description of each group; GROUP_ID_NOT_FOUND for a missing one (KIP-1043).

    Raises:
        TidelogError: no node answered the request for metadata.
    """
    deadline_ms = now_ms() + timeout_ms
    await cluster.refresh([], timeout_ms=timeout_ms)

    def completed(
        group: Any, description: ConsumerGroupDescription | TidelogError
    ) -> ConsumerGroupDescription | TidelogError:
        if not with_operations or isinstance(description, TidelogError):
            return description
        return replace(description, authorized_operations=authorized_operations(group, GROUP_OPERATIONS))

    async def ask_consumer(
        connection: Connection, group_ids: list[str], timeout_s: float
    ) -> Outcomes[str, ConsumerGroupDescription]:
        request = pb.ConsumerGroupDescribeRequest(group_ids=group_ids, include_authorized_operations=with_operations)
        response = await connection.groups.ConsumerGroupDescribe(request, timeout=timeout_s)
        node = _node(cluster, connection)
        return {g.group_id: error_of(g) or completed(g, _consumer_group(g, node)) for g in response.groups}

    async def ask_classic(
        connection: Connection, group_ids: list[str], timeout_s: float
    ) -> Outcomes[str, ConsumerGroupDescription]:
        request = pb.DescribeGroupsRequest(group_ids=group_ids, include_authorized_operations=with_operations)
        response = await connection.groups.DescribeGroups(request, timeout=timeout_s)
        node = _node(cluster, connection)
        return {g.group_id: error_of(g) or completed(g, _classic_group(g, node)) for g in response.groups}

    descriptions = await ask_coordinators(
        coordinators, group_ids, ask_consumer, backoff=cluster.backoff, timeout_ms=timeout_ms
    )
    others = [
        group
        for group, found in descriptions.items()
        if isinstance(found, TidelogError) and found.code is ErrorCode.GROUP_ID_NOT_FOUND
    ]
    left_ms = max(deadline_ms - now_ms(), 1)
    return descriptions | await ask_coordinators(
        coordinators, others, ask_classic, backoff=cluster.backoff, timeout_ms=left_ms
    )


def _node(cluster: ClusterClient, connection: Connection) -> Node:
    for broker in cluster.metadata.brokers.values():
        if broker.address == connection.address:
            return Node(broker.node_id, broker.host, broker.port, broker.rack or None)
    host, _, port = connection.address.rpartition(":")
    return Node(-1, host, int(port))


def _consumer_group(group: pb.DescribedConsumerGroup, coordinator: Node) -> ConsumerGroupDescription:
    members = [
        MemberDescription(
            member.member_id,
            member.client_id,
            member.client_host,
            _named(member.assignment),
            member.group_instance_id if member.HasField("group_instance_id") else None,
            _named(member.target_assignment),
        )
        for member in group.members
    ]
    return ConsumerGroupDescription(
        group.group_id,
        is_simple_consumer_group=False,
        members=members,
        partition_assignor=group.assignor_name,
        state=ConsumerGroupState.parse(group.group_state),
        coordinator=coordinator,
        type=ConsumerGroupType.CONSUMER,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
    )


def _named(topics: pb.MemberTopics) -> MemberAssignment:
    return MemberAssignment([TopicPartition(t.topic_name, p) for t in topics.topics for p in t.partitions])


def _classic_group(group: pb.DescribedGroup, coordinator: Node) -> ConsumerGroupDescription | TidelogError:
    if group.protocol_type not in ("", PROTOCOL_TYPE):
        text = f'group "{group.group_id}" is not a consumer group: its protocol type is "{group.protocol_type}"'
        return error_for(ErrorCode._INVALID_ARG, text)
    try:
        members = [_classic_member(member) for member in group.members]
    except TidelogError as error:
        return error_for(error.code, f'group "{group.group_id}": {error.message}')
    return ConsumerGroupDescription(
        group.group_id,
        is_simple_consumer_group=not group.protocol_type,
        members=members,
        partition_assignor=group.protocol_data,
        state=ConsumerGroupState.parse(group.group_state),
        coordinator=coordinator,
        type=ConsumerGroupType.CLASSIC,
    )


def _classic_member(member: pb.DescribedGroupMember) -> MemberDescription:
    owned = sorted(decode_assignment(member.member_assignment))
    return MemberDescription(
        member.member_id,
        member.client_id,
        member.client_host,
        MemberAssignment([TopicPartition(topic, partition) for topic, partition in owned]),
        member.group_instance_id if member.HasField("group_instance_id") else None,
    )

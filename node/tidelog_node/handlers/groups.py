"""Groups as administrators see them: who coordinates them, which there are, what is in them; and their deletion."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tidelog.errors import ErrorCode, TidelogError
from tidelog.v1 import group_service_pb2 as pb
from tidelog_node.coordination import GroupCoordinator
from tidelog_node.groups.events import ClientIdentity
from tidelog_node.handlers.context import error_message
from tidelog_node.handlers.group_calls import by_shard, call_shard
from tidelog_node.partitions.time_slices import TimeSlices


async def find_coordinator(
    coordinator: GroupCoordinator,
    request: pb.FindCoordinatorRequest,
    client: ClientIdentity,
    listener: str | None = None,
) -> pb.FindCoordinatorResponse:
    """Say who coordinates groups; any node knows. ``listener`` is the one to be reached at, None the gRPC one."""
    response = pb.FindCoordinatorResponse()
    slices = TimeSlices()
    for group_id in request.group_ids:
        response.coordinators.append(coordinator.coordinator_of(group_id, listener))
        if slices.is_over:
            await slices.give_way()
    return response


async def list_groups(
    coordinator: GroupCoordinator, request: pb.ListGroupsRequest, client: ClientIdentity
) -> pb.ListGroupsResponse:
    """List the groups that this node coordinates; what cannot be listed yet is left out, and the error says so."""

    async def ask(shard: int) -> pb.ListGroupsResponse:
        try:
            return await call_shard(coordinator, shard, request, client, pb.ListGroupsResponse)
        except TidelogError as error:
            is_elsewhere = error.code is ErrorCode.NOT_COORDINATOR
            return pb.ListGroupsResponse(error=None if is_elsewhere else error_message(error))

    parts = await asyncio.gather(*(ask(shard) for shard in coordinator.shards()))
    error = next((part.error for part in parts if part.HasField("error")), None)
    listed = sorted((group for part in parts for group in part.groups), key=lambda group: group.group_id)
    return pb.ListGroupsResponse(error=error, groups=listed)


async def describe_groups(
    coordinator: GroupCoordinator, request: pb.DescribeGroupsRequest, client: ClientIdentity
) -> pb.DescribeGroupsResponse:
    """Describe groups of the classic protocol, each once."""

    async def ask(shard: int, group_ids: Sequence[str]) -> Sequence[pb.DescribedGroup]:
        part = pb.DescribeGroupsRequest(group_ids=group_ids)
        return (await call_shard(coordinator, shard, part, client, pb.DescribeGroupsResponse)).groups

    def refuse(group_id: str, error: TidelogError) -> pb.DescribedGroup:
        return pb.DescribedGroup(group_id=group_id, error=error_message(error))

    answers = await by_shard(coordinator, request.group_ids, ask, refuse, allows_empty=True)
    return pb.DescribeGroupsResponse(groups=answers)


async def consumer_group_describe(
    coordinator: GroupCoordinator, request: pb.ConsumerGroupDescribeRequest, client: ClientIdentity
) -> pb.ConsumerGroupDescribeResponse:
    """Describe groups of KIP-848's protocol, each once."""

    async def ask(shard: int, group_ids: Sequence[str]) -> Sequence[pb.DescribedConsumerGroup]:
        part = pb.ConsumerGroupDescribeRequest(group_ids=group_ids)
        return (await call_shard(coordinator, shard, part, client, pb.ConsumerGroupDescribeResponse)).groups

    def refuse(group_id: str, error: TidelogError) -> pb.DescribedConsumerGroup:
        return pb.DescribedConsumerGroup(group_id=group_id, error=error_message(error))

    answers = await by_shard(coordinator, request.group_ids, ask, refuse, allows_empty=False)
    return pb.ConsumerGroupDescribeResponse(groups=answers)


async def delete_groups(
    coordinator: GroupCoordinator, request: pb.DeleteGroupsRequest, client: ClientIdentity
) -> pb.DeleteGroupsResponse:
    """Delete groups that have no members, with their offsets."""

    async def ask(shard: int, group_ids: Sequence[str]) -> Sequence[pb.DeletedGroup]:
        part = pb.DeleteGroupsRequest(group_ids=group_ids)
        return (await call_shard(coordinator, shard, part, client, pb.DeleteGroupsResponse)).groups

    def refuse(group_id: str, error: TidelogError) -> pb.DeletedGroup:
        return pb.DeletedGroup(group_id=group_id, error=error_message(error))

    answers = await by_shard(coordinator, request.group_ids, ask, refuse, allows_empty=True)
    return pb.DeleteGroupsResponse(groups=answers)

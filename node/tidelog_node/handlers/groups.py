"""Administration of groups: their coordinators, lists, descriptions and deletion."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.coordination import GroupCoordinator
from tidelog_node.groups.events import ClientIdentity
from tidelog_node.handlers.context import error_message
from tidelog_node.handlers.group_calls import by_shard, call_shard

_Request = pb.DescribeGroupsRequest | pb.ConsumerGroupDescribeRequest | pb.DeleteGroupsRequest
R = TypeVar("R", pb.DescribeGroupsResponse, pb.ConsumerGroupDescribeResponse, pb.DeleteGroupsResponse)

MOST_FILTERS: Final = 100
"""Groups have fewer than twenty states and types."""
MOST_FILTER_CHARS: Final = 255
"""Of one state or type. Each shard compares every group with each of them."""


async def find_coordinator(
    coordinator: GroupCoordinator,
    request: pb.FindCoordinatorRequest,
    client: ClientIdentity,
    listener: str | None = None,
) -> pb.FindCoordinatorResponse:
    """Return the coordinators of groups, which any node knows, on this listener or by default on the gRPC endpoint."""
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
    """List the groups that this node coordinates. Groups that cannot be listed yet are omitted, with an error.

    A request with more than MOST_FILTERS states or types, or with a longer one than MOST_FILTER_CHARS, is refused:
    each group is compared with all of them.
    """
    refusal = _refusal_of_filters(request)
    if refusal is not None:
        return pb.ListGroupsResponse(error=error_message(error_for(ErrorCode.INVALID_REQUEST, refusal)))

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


def _refusal_of_filters(request: pb.ListGroupsRequest) -> str | None:
    filters = max(len(request.states_filter), len(request.types_filter))
    if filters > MOST_FILTERS:
        return f"the request names {filters} states or types of groups, at most {MOST_FILTERS} are allowed"
    longest = max(map(len, (*request.states_filter, *request.types_filter)), default=0)
    if longest > MOST_FILTER_CHARS:
        return f"a state or type of groups has {longest} characters, at most {MOST_FILTER_CHARS} are allowed"
    return None


async def describe_groups(
    coordinator: GroupCoordinator, request: pb.DescribeGroupsRequest, client: ClientIdentity
) -> pb.DescribeGroupsResponse:
    """Describe groups of the classic protocol, each once."""
    kinds = pb.DescribeGroupsRequest, pb.DescribeGroupsResponse, pb.DescribedGroup
    return await _of_each(coordinator, request.group_ids, client, *kinds, allows_empty=True)


async def consumer_group_describe(
    coordinator: GroupCoordinator, request: pb.ConsumerGroupDescribeRequest, client: ClientIdentity
) -> pb.ConsumerGroupDescribeResponse:
    """Describe groups of KIP-848's protocol, each once."""
    kinds = pb.ConsumerGroupDescribeRequest, pb.ConsumerGroupDescribeResponse, pb.DescribedConsumerGroup
    return await _of_each(coordinator, request.group_ids, client, *kinds, allows_empty=False)


async def delete_groups(
    coordinator: GroupCoordinator, request: pb.DeleteGroupsRequest, client: ClientIdentity
) -> pb.DeleteGroupsResponse:
    """Delete groups that have no members, with their offsets."""
    kinds = pb.DeleteGroupsRequest, pb.DeleteGroupsResponse, pb.DeletedGroup
    return await _of_each(coordinator, request.group_ids, client, *kinds, allows_empty=True)


async def _of_each(
    coordinator: GroupCoordinator,
    group_ids: Iterable[str],
    client: ClientIdentity,
    request_kind: Callable[..., _Request],
    response_kind: type[R],
    group_kind: Callable[..., Any],
    *,
    allows_empty: bool,
) -> R:
    """Send each group to its shard. If a shard cannot answer, its groups have the error."""

    async def ask(shard: int, of_shard: Sequence[str]) -> Sequence[Any]:
        return (await call_shard(coordinator, shard, request_kind(group_ids=of_shard), client, response_kind)).groups

    def refuse(group_id: str, error: TidelogError) -> Any:
        return group_kind(group_id=group_id, error=error_message(error))

    return response_kind(groups=await by_shard(coordinator, group_ids, ask, refuse, allows_empty=allows_empty))

"""Administration of groups: their coordinators, lists, descriptions and deletion."""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypeVar

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.coordination import GroupCoordinator, TransactionCoordinator
from tidelog_node.groups import messages
from tidelog_node.handlers.group_calls import call_shard, refused
from tidelog_node.shards.events import ClientIdentity

_OfSeveral = messages.DescribeGroupsRequest | messages.ConsumerGroupDescribeRequest | messages.DeleteGroupsRequest
R = TypeVar("R", messages.DescribeGroupsResponse, messages.ConsumerGroupDescribeResponse, messages.DeleteGroupsResponse)

MOST_FILTERS: Final = 100
"""Groups have fewer than twenty states and types."""
MOST_FILTER_CHARS: Final = 255
"""Of one state or type. Each shard compares every group with each of them."""
_AT_ONCE = 100
_LEAST_AT_ONCE = 10


async def find_coordinator(
    coordinator: GroupCoordinator,
    transactions: TransactionCoordinator | None,
    request: messages.FindCoordinatorRequest,
    listener: str | None = None,
) -> messages.FindCoordinatorResponse:
    """Return the coordinators of groups and transactional ids, which any node knows.

    Their addresses are those of this listener, or by default the gRPC endpoints.
    """
    slices = TimeSlices()
    found = [coordinator.coordinator_of(group_id, listener) async for group_id in slices.of(request.group_ids)]
    found += [_coordinator_of(transactions, name, listener) async for name in slices.of(request.transactional_ids)]
    return messages.FindCoordinatorResponse(tuple(found))


async def list_groups(
    coordinator: GroupCoordinator, request: messages.ListGroupsRequest, client: ClientIdentity
) -> messages.ListGroupsResponse:
    """List the groups that this node coordinates. Groups that cannot be listed yet are omitted, with an error.

    A request with more than MOST_FILTERS states or types, or with a longer one than MOST_FILTER_CHARS, is refused:
    each group is compared with all of them.
    """
    refusal = _refusal_of_filters(request)
    if refusal is not None:
        return messages.ListGroupsResponse(error=error_for(ErrorCode.INVALID_REQUEST, refusal))

    async def ask(shard: int) -> messages.ListGroupsResponse:
        try:
            return await call_shard(coordinator, shard, request, client, messages.ListGroupsResponse)
        except TidelogError as error:
            is_elsewhere = error.code is ErrorCode.NOT_COORDINATOR
            return messages.ListGroupsResponse(error=None if is_elsewhere else error.detached())

    parts = await asyncio.gather(*(ask(shard) for shard in coordinator.shards()))
    error = next((part.error for part in parts if part.error is not None), None)
    listed = sorted((group for part in parts for group in part.groups), key=lambda group: group.group_id)
    return messages.ListGroupsResponse(error=error, groups=tuple(listed))


def _coordinator_of(
    transactions: TransactionCoordinator | None, transactional_id: str, listener: str | None
) -> messages.Coordinator:
    if transactions is None:
        error = error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this node knows no coordinators of transactions")
        return messages.Coordinator("", error, transactional_id=transactional_id)
    try:
        node_id, endpoint = transactions.leader_of(transactional_id, listener)
    except TidelogError as error:
        return messages.Coordinator("", error.detached(), transactional_id=transactional_id)
    return messages.Coordinator("", None, node_id, endpoint, transactional_id)


def _refusal_of_filters(request: messages.ListGroupsRequest) -> str | None:
    filters = max(len(request.states_filter), len(request.types_filter))
    if filters > MOST_FILTERS:
        return f"the request names {filters} states or types of groups, at most {MOST_FILTERS} are allowed"
    longest = max(map(len, (*request.states_filter, *request.types_filter)), default=0)
    if longest > MOST_FILTER_CHARS:
        return f"a state or type of groups has {longest} characters, at most {MOST_FILTER_CHARS} are allowed"
    return None


async def describe_groups(
    coordinator: GroupCoordinator, request: messages.DescribeGroupsRequest, client: ClientIdentity
) -> messages.DescribeGroupsResponse:
    """Describe groups of the classic protocol, each once."""
    groups = await _of_each(coordinator, request, client, messages.DescribeGroupsResponse)
    return messages.DescribeGroupsResponse(tuple(groups))


async def consumer_group_describe(
    coordinator: GroupCoordinator, request: messages.ConsumerGroupDescribeRequest, client: ClientIdentity
) -> messages.ConsumerGroupDescribeResponse:
    """Describe groups of KIP-848's protocol, each once."""
    groups = await _of_each(coordinator, request, client, messages.ConsumerGroupDescribeResponse)
    return messages.ConsumerGroupDescribeResponse(tuple(groups))


async def delete_groups(
    coordinator: GroupCoordinator, request: messages.DeleteGroupsRequest, client: ClientIdentity
) -> messages.DeleteGroupsResponse:
    """Delete groups that have no members, with their offsets."""
    groups = await _of_each(coordinator, request, client, messages.DeleteGroupsResponse)
    return messages.DeleteGroupsResponse(tuple(groups))


async def _of_each(
    coordinator: GroupCoordinator, request: _OfSeveral, client: ClientIdentity, kind: type[R]
) -> list[Any]:
    """Call all shards concurrently, each with its own groups once, and return the groups of all answers.

    If a shard cannot answer, its groups have the error. As in Kafka's GroupCoordinatorService, a classic group "" may
    exist, but no consumer group.
    """
    request_kind = type(request)
    shards: dict[int, list[str]] = {}
    groups: list[Any] = []
    async for group_id in TimeSlices().of(dict.fromkeys(request.group_ids)):
        try:
            if not group_id and isinstance(request, messages.ConsumerGroupDescribeRequest):
                raise error_for(ErrorCode.INVALID_GROUP_ID, "a group's id must not be empty")
            shards.setdefault(coordinator.shard_of(group_id), []).append(group_id)
        except TidelogError as error:
            groups += refused(request_kind((group_id,)), error, kind).groups
    at_once = min(_AT_ONCE, max(_LEAST_AT_ONCE, _AT_ONCE // max(1, len(shards))))

    async def ask(shard: int, ids: list[str]) -> list[Any]:
        # A shard processes the groups of one call in one step, and all shards run in one turn. Slices let other calls
        # run.
        found: list[Any] = []
        for start in range(0, len(ids), at_once):
            part = request_kind(tuple(ids[start : start + at_once]))
            try:
                found += (await call_shard(coordinator, shard, part, client, kind)).groups
            except TidelogError as error:
                found += refused(part, error, kind).groups
        return found

    for found in await asyncio.gather(*(ask(shard, ids) for shard, ids in shards.items())):
        groups += found
    return groups

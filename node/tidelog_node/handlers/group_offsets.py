"""The offsets that groups have committed: commit, fetch, delete."""

from __future__ import annotations

import asyncio

from tidelog.v1 import group_service_pb2 as pb
from tidelog_node.coordination import GroupCoordinator
from tidelog_node.groups.events import ClientIdentity
from tidelog_node.handlers.group_calls import answer_of_group

_AT_ONCE = 1_000


async def offset_commit(
    coordinator: GroupCoordinator, request: pb.OffsetCommitRequest, client: ClientIdentity
) -> pb.OffsetCommitResponse:
    """Commit offsets; answered when they are on all in-sync replicas."""
    return await answer_of_group(coordinator, request, client, pb.OffsetCommitResponse)


async def offset_fetch(
    coordinator: GroupCoordinator, request: pb.OffsetFetchRequest, client: ClientIdentity
) -> pb.OffsetFetchResponse:
    """Return what groups have committed; there is nothing yet that a transaction may change (``require_stable``)."""
    response = pb.OffsetFetchResponse()
    for start in range(0, len(request.groups), _AT_ONCE):
        groups = request.groups[start : start + _AT_ONCE]
        response.groups.extend(await asyncio.gather(*(_fetch(coordinator, group, client) for group in groups)))
    return response


async def offset_delete(
    coordinator: GroupCoordinator, request: pb.OffsetDeleteRequest, client: ClientIdentity
) -> pb.OffsetDeleteResponse:
    """Delete offsets of a group (KIP-496)."""
    return await answer_of_group(coordinator, request, client, pb.OffsetDeleteResponse)


async def _fetch(
    coordinator: GroupCoordinator, group: pb.OffsetFetchGroup, client: ClientIdentity
) -> pb.OffsetFetchGroupResult:
    return await answer_of_group(coordinator, group, client, pb.OffsetFetchGroupResult)

"""Calls to the shards of one group or of several groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.coordination import GroupCoordinator
from tidelog_node.groups.answers import refuse
from tidelog_node.groups.events import ClientIdentity, GroupRequest, GroupResponse

R = TypeVar("R", bound=GroupResponse)
T = TypeVar("T")

_OfMembers = (
    pb.JoinGroupRequest
    | pb.SyncGroupRequest
    | pb.HeartbeatRequest
    | pb.LeaveGroupRequest
    | pb.ConsumerGroupHeartbeatRequest
)
_OfOffsets = pb.OffsetCommitRequest | pb.OffsetFetchGroup | pb.OffsetDeleteRequest
_AT_A_STRETCH = 100
_LEAST_STRETCH = 10
_PASSED_WITHOUT_ID = (pb.OffsetCommitRequest, pb.OffsetFetchGroup, pb.ConsumerGroupHeartbeatRequest)
"""Requests that allow an empty group id.

Old consumers commit offsets of the group ""; KIP-848 heartbeats with it have an error of their own
(GroupCoordinatorService).
"""


async def call_group(
    coordinator: GroupCoordinator, request: _OfMembers | _OfOffsets, client: ClientIdentity, kind: type[R]
) -> R:
    """Return the answer, of type ``kind``, of the shard of the request's group.

    Raises:
        TidelogError: INVALID_GROUP_ID, and the errors of :meth:`GroupCoordinator.call`.
    """
    if not request.group_id and not isinstance(request, _PASSED_WITHOUT_ID):
        raise error_for(ErrorCode.INVALID_GROUP_ID, "a group's id must not be empty")
    return await call_shard(coordinator, coordinator.shard_of(request.group_id), request, client, kind)


async def answer_of_group(
    coordinator: GroupCoordinator, request: _OfMembers | _OfOffsets, client: ClientIdentity, kind: type[R]
) -> R:
    """Return the answer of the shard of the request's group, or the refusal if the call fails."""
    try:
        return await call_group(coordinator, request, client, kind)
    except TidelogError as error:
        refused = refuse(request, error)
        assert isinstance(refused, kind), refused
        return refused


async def call_shard(
    coordinator: GroupCoordinator, shard: int, request: GroupRequest, client: ClientIdentity, kind: type[R]
) -> R:
    """Return the answer, of type ``kind``, of a shard.

    Raises:
        TidelogError: The errors of :meth:`GroupCoordinator.call`.
    """
    response = await coordinator.call(shard, request, client)
    assert isinstance(response, kind), response
    return response


async def by_shard(
    coordinator: GroupCoordinator,
    group_ids: Iterable[str],
    ask: Callable[[int, Sequence[str]], Awaitable[Sequence[T]]],
    refusal: Callable[[str, TidelogError], T],
    *,
    allows_empty: bool,
) -> list[T]:
    """Call all shards concurrently, each with its own groups once, and return all answers.

    ``refusal`` creates the answer for a group whose shard cannot be called. ``allows_empty`` is whether a group "" may
    exist, which as in Kafka's GroupCoordinatorService is a classic group.
    """
    shards: dict[int, list[str]] = {}
    answers: list[T] = []
    async for group_id in TimeSlices().of(dict.fromkeys(group_ids)):
        try:
            if not group_id and not allows_empty:
                raise error_for(ErrorCode.INVALID_GROUP_ID, "a group's id must not be empty")
            shards.setdefault(coordinator.shard_of(group_id), []).append(group_id)
        except TidelogError as error:
            answers.append(refusal(group_id, error))

    stretch = min(_AT_A_STRETCH, max(_LEAST_STRETCH, _AT_A_STRETCH // max(1, len(shards))))

    async def ask_one(shard: int, ids: list[str]) -> Sequence[T]:
        # A shard processes the groups of one call in one step, and all shards run in one turn. Slices let other calls
        # run.
        parts = (ids[start : start + stretch] for start in range(0, len(ids), stretch))
        return [answer for part in parts for answer in await ask_part(shard, part)]

    async def ask_part(shard: int, ids: Sequence[str]) -> Sequence[T]:
        try:
            return await ask(shard, ids)
        except TidelogError as error:
            return [refusal(group_id, error) for group_id in ids]

    for part in await asyncio.gather(*(ask_one(shard, ids) for shard, ids in shards.items())):
        answers += part
    return answers

"""The offsets that groups have committed: commit, fetch, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.coordination import GroupCoordinator
from tidelog_node.groups.events import AllOffsets, ClientIdentity
from tidelog_node.groups.offsets.requests import fill_in_steps
from tidelog_node.handlers.context import error_message
from tidelog_node.handlers.group_calls import answer_of_group
from tidelog_node.partitions.time_slices import TimeSlices

_AT_ONCE = 100
MOST_OFFSETS = 25_000
"""How many offsets one commit has at most: it is one batch, and one step of the coordinator, which holds the event loop
for some 10 µs per offset. No more fit into a batch of Kafka's default size, where they are not compressed."""

_FETCHED_AT_A_STRETCH = 1_000


async def offset_commit(
    coordinator: GroupCoordinator, request: pb.OffsetCommitRequest, client: ClientIdentity
) -> pb.OffsetCommitResponse:
    """Commit offsets; answered when they are on all in-sync replicas. More than MOST_OFFSETS are refused.

    With INVALID_COMMIT_OFFSET_SIZE, which is Kafka's error where a commit does not fit into a batch.
    """
    count = _offsets_in(request.topics)
    if count > MOST_OFFSETS:
        text = f"the commit has {count} offsets, at most {MOST_OFFSETS} can be"
        return await _refuse_commit(request, error_for(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, text))
    return await answer_of_group(coordinator, request, client, pb.OffsetCommitResponse)


async def offset_fetch(
    coordinator: GroupCoordinator, request: pb.OffsetFetchRequest, client: ClientIdentity
) -> pb.OffsetFetchResponse:
    """Return what groups have committed; there is nothing yet that a transaction may change (``require_stable``)."""
    response = pb.OffsetFetchResponse()
    await coordinator.wait_for_session()
    slices = TimeSlices()
    for start in range(0, len(request.groups), _AT_ONCE):
        groups = request.groups[start : start + _AT_ONCE]
        # One after the other: each of many generators would take a whole slice of the same turn.
        for found in await asyncio.gather(*(_fetch(coordinator, group, client) for group in groups)):
            if isinstance(found, AllOffsets):
                await slices.result_of(fill_in_steps(response.groups.add(), found))
            else:
                response.groups.append(found)
    return response


async def offset_delete(
    coordinator: GroupCoordinator, request: pb.OffsetDeleteRequest, client: ClientIdentity
) -> pb.OffsetDeleteResponse:
    """Delete offsets of a group (KIP-496). More than MOST_OFFSETS are refused with INVALID_REQUEST."""
    count = _offsets_in(request.topics)
    if count > MOST_OFFSETS:
        text = f"the request deletes {count} offsets, at most {MOST_OFFSETS} can be"
        return pb.OffsetDeleteResponse(error=error_message(error_for(ErrorCode.INVALID_REQUEST, text)))
    return await answer_of_group(coordinator, request, client, pb.OffsetDeleteResponse)


async def _fetch(
    coordinator: GroupCoordinator, group: pb.OffsetFetchGroup, client: ClientIdentity
) -> pb.OffsetFetchGroupResult | AllOffsets:
    """Ask for the named partitions in parts, since a shard answers each in one step of the loop."""
    if group.all_topics:
        return await answer_of_group(coordinator, group, client, AllOffsets)
    answer: pb.OffsetFetchGroupResult | None = None
    async for part, goes_on in TimeSlices().of(_parts_of(group)):
        found = await answer_of_group(coordinator, part, client, pb.OffsetFetchGroupResult)
        if answer is None or found.HasField("error"):
            answer = found
        else:
            if goes_on:
                answer.topics[-1].partitions.extend(found.topics.pop(0).partitions)
            answer.topics.extend(found.topics)
        if answer.HasField("error"):
            break
    assert answer is not None
    return answer


def _parts_of(group: pb.OffsetFetchGroup) -> Iterator[tuple[pb.OffsetFetchGroup, bool]]:
    """Yield requests for a bounded number of partitions each, at least one: together they ask for the same.

    The second value says whether the first topic goes on with the last one of the request before.
    """
    if _offsets_in(group.topics) <= _FETCHED_AT_A_STRETCH:
        yield group, False
        return
    part, size, goes_on = _part_of(group), 0, False
    for topic in group.topics:
        for start in range(0, max(1, len(topic.partitions)), _FETCHED_AT_A_STRETCH):
            goes_on = goes_on if part.topics else start > 0
            indexes = topic.partitions[start : start + _FETCHED_AT_A_STRETCH]
            part.topics.add(name=topic.name, partitions=indexes)
            size += max(1, len(indexes))
            if size >= _FETCHED_AT_A_STRETCH:
                yield part, goes_on
                part, size = _part_of(group), 0
    if part.topics:
        yield part, goes_on


def _part_of(group: pb.OffsetFetchGroup) -> pb.OffsetFetchGroup:
    member_id = group.member_id if group.HasField("member_id") else None
    return pb.OffsetFetchGroup(group_id=group.group_id, member_id=member_id, member_epoch=group.member_epoch)


def _offsets_in(topics: Iterable[pb.OffsetCommitTopic | pb.OffsetFetchTopic]) -> int:
    """Return how many offsets are named; a topic without partitions takes as long as one with a partition."""
    return sum(max(1, len(topic.partitions)) for topic in topics)


async def _refuse_commit(request: pb.OffsetCommitRequest, error: TidelogError) -> pb.OffsetCommitResponse:
    said = error_message(error)
    response = pb.OffsetCommitResponse()
    slices = TimeSlices()
    async for topic in slices.of(request.topics):
        results = response.topics.add(name=topic.name)
        async for partition in slices.of(topic.partitions):
            results.partitions.add(index=partition.index, error=said)
    return response

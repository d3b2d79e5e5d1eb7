"""Committed offsets of groups: commit, fetch, delete."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.coordination import GroupCoordinator
from tidelog_node.groups import messages
from tidelog_node.groups.answers import write_error
from tidelog_node.groups.events import AllOffsets
from tidelog_node.groups.offsets.requests import result_in_steps
from tidelog_node.handlers.context import NodeContext
from tidelog_node.handlers.group_calls import answer_of_group, check_group_id, refused
from tidelog_node.handlers.transaction_verification import verify_offsets
from tidelog_node.shards.events import ClientIdentity

_AT_ONCE = 100
MOST_OFFSETS = 25_000
"""The maximum number of offsets in a commit.

A commit is one batch and one step of the coordinator, which occupies the event loop for some 10 µs per offset. No more
offsets fit uncompressed into a batch of Kafka's default size.
"""

_FETCHED_AT_A_STRETCH = 1_000
_BYTES_PER_OFFSET = 256
"""The memory of an offset in the responses of both protocols, in addition to its metadata."""
MOST_FETCHED_BYTES = 64 * 1024**2
"""The maximum memory of the offsets in one response, enough for some 260,000 of them without metadata."""


async def offset_commit(
    coordinator: GroupCoordinator, request: messages.OffsetCommitRequest, client: ClientIdentity
) -> messages.OffsetCommitResponse:
    """Commit offsets. The answer follows when all in-sync replicas have them.

    More than MOST_OFFSETS are refused with INVALID_COMMIT_OFFSET_SIZE, Kafka's error for a commit that does not fit
    into a batch.
    """
    count = _offsets_in(request.topics)
    if count > MOST_OFFSETS:
        text = f"the commit has {count} offsets, at most {MOST_OFFSETS} are allowed"
        return await _refuse_commit(request, error_for(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, text))
    return await answer_of_group(coordinator, request, client, messages.OffsetCommitResponse)


async def txn_offset_commit(
    context: NodeContext,
    coordinator: GroupCoordinator,
    request: messages.TxnOffsetCommitRequest,
    client: ClientIdentity,
) -> messages.TxnOffsetCommitResponse:
    """Commit offsets as part of a transaction, which must have the group's partition (KIP-890).

    The answer follows when all in-sync replicas have them. They take effect when the transaction is committed.
    """
    count = _offsets_in(request.topics)
    if count > MOST_OFFSETS:
        text = f"the commit has {count} offsets, at most {MOST_OFFSETS} are allowed"
        error = error_for(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, text)
        return refused(request, error, messages.TxnOffsetCommitResponse)
    try:
        check_group_id(request.group_id)
        guard = await verify_offsets(context, coordinator.shard_of(request.group_id), request)
    except TidelogError as error:
        return refused(request, write_error(error), messages.TxnOffsetCommitResponse)
    verified = replace(request, guard=guard)
    return await answer_of_group(coordinator, verified, client, messages.TxnOffsetCommitResponse)


async def offset_fetch(
    coordinator: GroupCoordinator, request: messages.OffsetFetchRequest, client: ClientIdentity
) -> messages.OffsetFetchResponse:
    """Return the committed offsets of groups.

    The offsets of a response take at most MOST_FETCHED_BYTES: where the next group's do not fit, it has the error
    INVALID_REQUEST. The first group is answered with all its offsets when it asks for those of all topics.
    """
    results: list[messages.OffsetFetchGroupResult] = []
    await coordinator.wait_for_session()
    slices, room = TimeSlices(), _Room()
    wanted = request.groups
    if request.require_stable:
        wanted = tuple([replace(group, require_stable=True) async for group in slices.of(request.groups)])
    for are_all, of_kind in itertools.groupby(wanted, lambda group: group.all_topics):
        # A group with all topics alone: its offsets are in memory twice until they are written.
        at_once = 1 if are_all else _AT_ONCE
        while groups := list(itertools.islice(of_kind, at_once)):
            for found in await asyncio.gather(*(_fetch(coordinator, group, client, room) for group in groups)):
                if isinstance(found, AllOffsets):
                    found = await slices.result_of(_all_offsets(found, room, is_first=not results))
                results.append(found)
    return messages.OffsetFetchResponse(tuple(results))


class _Room:
    """The remainder of MOST_FETCHED_BYTES for one response."""

    def __init__(self) -> None:
        self._taken = 0

    def take(self, size: int) -> None:
        """Count ``size`` bytes, even if they do not fit.

        Raises:
            TidelogError: INVALID_REQUEST
        """
        self._taken += size
        if self._taken > MOST_FETCHED_BYTES:
            text = f"the offsets up to this group take {self._taken} bytes, at most {MOST_FETCHED_BYTES} can be fetched"
            raise error_for(ErrorCode.INVALID_REQUEST, f"{text} at once: ask for fewer groups or partitions")


def _all_offsets(
    found: AllOffsets, room: _Room, *, is_first: bool
) -> Generator[None, None, messages.OffsetFetchGroupResult]:
    size = 0
    for _, value in found.committed:
        size += _BYTES_PER_OFFSET + len(value.metadata)
        yield
    try:
        room.take(size)
    except TidelogError as error:
        if not is_first:
            return messages.OffsetFetchGroupResult(found.group_id, error.detached())
    return (yield from result_in_steps(found))


async def offset_delete(
    coordinator: GroupCoordinator, request: messages.OffsetDeleteRequest, client: ClientIdentity
) -> messages.OffsetDeleteResponse:
    """Delete offsets of a group (KIP-496). More than MOST_OFFSETS are refused with INVALID_REQUEST."""
    count = _offsets_in(request.topics)
    if count > MOST_OFFSETS:
        text = f"the request deletes {count} offsets, at most {MOST_OFFSETS} are allowed"
        return messages.OffsetDeleteResponse(error=error_for(ErrorCode.INVALID_REQUEST, text))
    return await answer_of_group(coordinator, request, client, messages.OffsetDeleteResponse)


async def _fetch(
    coordinator: GroupCoordinator, group: messages.OffsetFetchGroup, client: ClientIdentity, room: _Room
) -> messages.OffsetFetchGroupResult | AllOffsets:
    """Fetch the named partitions in parts, since a shard answers each part in one step of the loop."""
    if group.all_topics:
        return await answer_of_group(coordinator, group, client, AllOffsets)
    topics: list[tuple[str, list[messages.OffsetFetchPartitionResult]]] = []
    async for part, goes_on in TimeSlices().of(_parts_of(group)):
        found = await answer_of_group(coordinator, part, client, messages.OffsetFetchGroupResult)
        metadata_bytes = sum(len(partition.metadata) for topic in found.topics for partition in topic.partitions)
        try:
            room.take(metadata_bytes + _BYTES_PER_OFFSET * _offsets_in(part.topics))
        except TidelogError as error:
            return messages.OffsetFetchGroupResult(group.group_id, error.detached())
        if found.error is not None:
            return found
        for number, topic in enumerate(found.topics):
            if goes_on and not number:
                topics[-1][1].extend(topic.partitions)
            else:
                topics.append((topic.name, [*topic.partitions]))
    results = (messages.OffsetFetchTopicResult(name, tuple(partitions)) for name, partitions in topics)
    return messages.OffsetFetchGroupResult(group.group_id, topics=tuple(results))


def _parts_of(group: messages.OffsetFetchGroup) -> Iterator[tuple[messages.OffsetFetchGroup, bool]]:
    """Yield at least one request with a bounded number of partitions each, together equal to the whole request.

    The second value is whether the first topic continues the last one of the previous request.
    """
    if _offsets_in(group.topics) <= _FETCHED_AT_A_STRETCH:
        yield group, False
        return
    part: list[TopicPartitions] = []
    size, goes_on = 0, False
    for topic in group.topics:
        for start in range(0, max(1, len(topic.partitions)), _FETCHED_AT_A_STRETCH):
            goes_on = goes_on if part else start > 0
            indexes = topic.partitions[start : start + _FETCHED_AT_A_STRETCH]
            part.append(TopicPartitions(topic.name, indexes))
            size += max(1, len(indexes))
            if size >= _FETCHED_AT_A_STRETCH:
                yield replace(group, topics=tuple(part)), goes_on
                part, size = [], 0
    if part:
        yield replace(group, topics=tuple(part)), goes_on


def _offsets_in(topics: Iterable[messages.OffsetCommitTopic | TopicPartitions]) -> int:
    """Return the number of named offsets. A topic without partitions costs as much as one with a partition."""
    return sum(max(1, len(topic.partitions)) for topic in topics)


async def _refuse_commit(request: messages.OffsetCommitRequest, error: TidelogError) -> messages.OffsetCommitResponse:
    topics = []
    slices = TimeSlices()
    async for topic in slices.of(request.topics):
        results = [messages.OffsetCommitPartitionResult(p.index, error) async for p in slices.of(topic.partitions)]
        topics.append(messages.OffsetCommitTopicResult(topic.name, tuple(results)))
    return messages.OffsetCommitResponse(tuple(topics))

"""OffsetFetch of more offsets than one response may have."""

import asyncio

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_node.groups.events import AllOffsets
from tidelog_node.groups.messages import (
    OffsetFetchGroup,
    OffsetFetchGroupResult,
    OffsetFetchPartitionResult,
    OffsetFetchRequest,
    OffsetFetchTopicResult,
)
from tidelog_node.groups.records import OffsetCommitValue
from tidelog_node.handlers import group_offsets

COUNT = 5
VALUE = OffsetCommitValue(7, -1, "x" * 1_000, 0, -1)


class Groups:
    """A coordinator all of whose groups have the same offsets."""

    def __init__(self):
        self.asked = 0

    async def wait_for_session(self):
        pass

    def shard_of(self, group_id):
        return 0

    async def call(self, shard, request, client):
        self.asked += 1
        if request.all_topics:
            return AllOffsets(request.group_id, [(("t", index), VALUE) for index in range(COUNT)])
        topics = [
            OffsetFetchTopicResult(
                topic.name, tuple(OffsetFetchPartitionResult(i, metadata=VALUE.metadata) for i in topic.partitions)
            )
            for topic in request.topics
        ]
        return OffsetFetchGroupResult(request.group_id, topics=tuple(topics))


def fetched(*groups):
    request = OffsetFetchRequest(groups=groups)
    answer = asyncio.run(group_offsets.offset_fetch(Groups(), request, None))
    assert [group.group_id for group in answer.groups] == [group.group_id for group in groups]
    return [(g.error and g.error.code, sum(len(topic.partitions) for topic in g.topics)) for g in answer.groups]


def every(group_id="g"):
    return OffsetFetchGroup(group_id=group_id, all_topics=True)


def named(count, group_id="g"):
    return OffsetFetchGroup(group_id, topics=(TopicPartitions("t", (0,) * count),))


def test_offset_fetch_refuses_a_group_whose_offsets_do_not_fit_the_response(monkeypatch):
    monkeypatch.setattr(group_offsets, "MOST_FETCHED_BYTES", 15_000)
    refused = (ErrorCode.INVALID_REQUEST, 0)
    assert fetched(*[every()] * 4) == [(None, COUNT), (None, COUNT), refused, refused]
    assert fetched(every("a"), named(1), named(1), every("b"), every("c")) == [
        (None, COUNT),
        (None, 1),
        (None, 1),
        refused,
        refused,
    ]
    assert fetched(named(1), named(20)) == [(None, 1), refused]


def test_offset_fetch_says_what_one_response_may_have(monkeypatch):
    monkeypatch.setattr(group_offsets, "MOST_FETCHED_BYTES", 10_000)
    request = OffsetFetchRequest((every(),) * 2)
    answer = asyncio.run(group_offsets.offset_fetch(Groups(), request, None))
    assert "take 12560 bytes, at most 10000 can be fetched at once" in answer.groups[1].error.message


def test_offset_fetch_answers_the_first_group_with_all_its_offsets(monkeypatch):
    monkeypatch.setattr(group_offsets, "MOST_FETCHED_BYTES", 100)
    assert fetched(every()) == [(None, COUNT)]


def test_offset_fetch_asks_no_more_parts_of_a_group_that_does_not_fit(monkeypatch):
    monkeypatch.setattr(group_offsets, "_FETCHED_AT_A_STRETCH", 10)
    monkeypatch.setattr(group_offsets, "MOST_FETCHED_BYTES", 15_000)
    groups = Groups()
    request = OffsetFetchRequest(groups=(named(100),))
    answer = asyncio.run(group_offsets.offset_fetch(groups, request, None))
    assert (answer.groups[0].error.code, groups.asked) == (ErrorCode.INVALID_REQUEST, 2)

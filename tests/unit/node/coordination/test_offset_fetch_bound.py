"""OffsetFetch of more offsets than one response may have."""

import asyncio

from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode
from tidelog_node.groups.events import AllOffsets
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
            pb.OffsetFetchTopicResult(
                name=t.name, partitions=[{"index": i, "metadata": VALUE.metadata} for i in t.partitions]
            )
            for t in request.topics
        ]
        return pb.OffsetFetchGroupResult(group_id=request.group_id, topics=topics)


def fetched(*groups):
    request = pb.OffsetFetchRequest(groups=groups)
    answer = asyncio.run(group_offsets.offset_fetch(Groups(), request, None))
    assert [group.group_id for group in answer.groups] == [group.group_id for group in groups]
    return [(g.error.code, sum(len(topic.partitions) for topic in g.topics)) for g in answer.groups]


def every(group_id="g"):
    return pb.OffsetFetchGroup(group_id=group_id, all_topics=True)


def named(count, group_id="g"):
    topics = [pb.OffsetFetchTopic(name="t", partitions=[0] * count)]
    return pb.OffsetFetchGroup(group_id=group_id, topics=topics)


def test_offset_fetch_refuses_a_group_whose_offsets_do_not_fit_the_response(monkeypatch):
    monkeypatch.setattr(group_offsets, "MOST_FETCHED_BYTES", 15_000)
    refused = (ErrorCode.INVALID_REQUEST.code, 0)
    assert fetched(*[every()] * 4) == [(0, COUNT), (0, COUNT), refused, refused]
    assert fetched(every("a"), named(1), named(1), every("b"), every("c")) == [
        (0, COUNT),
        (0, 1),
        (0, 1),
        refused,
        refused,
    ]
    assert fetched(named(1), named(20)) == [(0, 1), refused]


def test_offset_fetch_says_what_one_response_may_have(monkeypatch):
    monkeypatch.setattr(group_offsets, "MOST_FETCHED_BYTES", 10_000)
    request = pb.OffsetFetchRequest(groups=[every()] * 2)
    answer = asyncio.run(group_offsets.offset_fetch(Groups(), request, None))
    assert "take 12560 bytes, at most 10000 can be fetched at once" in answer.groups[1].error.message


def test_offset_fetch_answers_the_first_group_with_all_its_offsets(monkeypatch):
    monkeypatch.setattr(group_offsets, "MOST_FETCHED_BYTES", 100)
    assert fetched(every()) == [(0, COUNT)]


def test_offset_fetch_asks_no_more_parts_of_a_group_that_does_not_fit(monkeypatch):
    monkeypatch.setattr(group_offsets, "_FETCHED_AT_A_STRETCH", 10)
    monkeypatch.setattr(group_offsets, "MOST_FETCHED_BYTES", 15_000)
    groups = Groups()
    request = pb.OffsetFetchRequest(groups=[named(100)])
    answer = asyncio.run(group_offsets.offset_fetch(groups, request, None))
    assert (answer.groups[0].error.code, groups.asked) == (ErrorCode.INVALID_REQUEST.code, 2)

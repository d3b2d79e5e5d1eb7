"""OffsetFetch of more partitions than a coordinator answers in one step."""

import asyncio

import pytest

from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_node.groups.messages import (
    OffsetFetchGroup,
    OffsetFetchGroupResult,
    OffsetFetchPartitionResult,
    OffsetFetchTopicResult,
)
from tidelog_node.handlers import group_offsets


@pytest.mark.parametrize(
    "topics", [{}, {"a": 3}, {"a": 10}, {"a": 25, "b": 0, "c": 4}, {f"t{n}": 0 for n in range(33)}, {"a": 9, "b": 9}]
)
@pytest.mark.parametrize("member_id", [None, "", "m"])
def test_large_offset_fetch_is_asked_in_bounded_parts_that_name_the_same(monkeypatch, topics, member_id):
    monkeypatch.setattr(group_offsets, "_FETCHED_AT_A_STRETCH", 10)
    named = tuple(TopicPartitions(name, tuple(range(count))) for name, count in topics.items())
    group = OffsetFetchGroup(group_id="g", member_id=member_id, member_epoch=7, topics=named, all_topics=not named)
    parts = list(group_offsets._parts_of(group))

    asked = []
    for part, goes_on in parts:
        assert (part.group_id, part.member_epoch, part.all_topics) == ("g", 7, not topics)
        assert part.member_id == member_id
        assert sum(max(1, len(topic.partitions)) for topic in part.topics) < 20
        for place, topic in enumerate(part.topics):
            if goes_on and not place:
                assert asked[-1][0] == topic.name
                asked[-1][1].extend(topic.partitions)
            else:
                asked.append((topic.name, list(topic.partitions)))
    assert asked == [(name, list(range(count))) for name, count in topics.items()]


def test_answers_of_the_parts_are_put_together_topic_by_topic(monkeypatch):
    monkeypatch.setattr(group_offsets, "_FETCHED_AT_A_STRETCH", 10)

    async def answer(_coordinator, part, _client, _kind):
        topics = [
            OffsetFetchTopicResult(topic.name, tuple(OffsetFetchPartitionResult(index) for index in topic.partitions))
            for topic in part.topics
        ]
        return OffsetFetchGroupResult(part.group_id, topics=tuple(topics))

    monkeypatch.setattr(group_offsets, "answer_of_group", answer)
    named = [("a", 25), ("b", 0), ("c", 8), ("c", 12)]
    topics = (TopicPartitions(name, tuple(range(count))) for name, count in named)
    group = OffsetFetchGroup("g", topics=tuple(topics))
    found = asyncio.run(group_offsets._fetch(None, group, None, group_offsets._Room()))
    assert [(t.name, [p.index for p in t.partitions]) for t in found.topics] == [(n, list(range(c))) for n, c in named]

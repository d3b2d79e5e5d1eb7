"""The admin client's operations on groups, on the fake and on a real cluster."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from group_members import Member, until

from tidelog import KafkaError, KafkaException, TopicPartition
from tidelog.admin import ConsumerGroupState, ConsumerGroupTopicPartitions, ConsumerGroupType, MemberToRemove

Deployment = Any
_serial = itertools.count()


@pytest.fixture
def group() -> str:
    return f"admin-{next(_serial)}"


@pytest.fixture(params=["classic", "consumer"])
def member(cluster: Deployment, group: str, request: pytest.FixtureRequest) -> Iterator[Member]:
    """A member that has read and committed one record of the first of two partitions, of which it owns both."""
    topic = cluster.topic(partitions=2)
    cluster.send(topic, [b"a", b"b", b"c"], 0)
    member = Member(cluster.settings, group, group_protocol=request.param, enable_auto_commit=False)
    member.subscribe(topic)
    until([member], lambda: len(member.owned) == 2 and bool(member.messages))
    member.consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    yield member
    member.consumer.close()


def topic_of(member: Member) -> str:
    topic = member.messages[0].topic()
    assert topic is not None
    return topic


def offsets_of(cluster: Deployment, group: str) -> dict[int, int]:
    found = cluster.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(20)
    return {p.partition: p.offset for p in found.topic_partitions}


def test_a_group_is_listed_and_described_with_its_member_and_lag(
    cluster: Deployment, group: str, member: Member
) -> None:
    topic = topic_of(member)
    kind = ConsumerGroupType.CONSUMER if member.consumer._config.group_protocol == "consumer" else None
    kind = kind or ConsumerGroupType.CLASSIC
    listed = cluster.admin.list_consumer_groups(types={kind}, states={ConsumerGroupState.STABLE}).result(20)
    assert listed.errors == []
    assert group in [g.group_id for g in listed.valid]
    described = cluster.admin.describe_consumer_groups([group])[group].result(20)
    assert (described.state, described.type) == (ConsumerGroupState.STABLE, kind)
    (only,) = described.members
    assert only.member_id == member.consumer.memberid()
    assert only.client_id == "tidelog"
    assert sorted(p.partition for p in only.assignment.topic_partitions) == [0, 1]
    lags = cluster.admin.consumer_group_lags([group])[group].result(20)
    assert [(x.topic, x.partition, x.committed_offset, x.log_end_offset, x.lag) for x in lags] == [
        (topic, 0, 1, 3, 2),
        (topic, 1, None, 0, None),
    ]
    assert {x.member.member_id for x in lags} == {only.member_id}


def test_a_group_with_members_is_neither_deleted_nor_moved(cluster: Deployment, group: str, member: Member) -> None:
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        cluster.admin.delete_consumer_groups([group])[group].result(20)
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic_of(member), 0, 3)])
    with pytest.raises(KafkaException, match="UNKNOWN_MEMBER_ID"):
        cluster.admin.alter_consumer_group_offsets([moved])[group].result(20)
    named = ConsumerGroupTopicPartitions(group, [TopicPartition(topic_of(member), 0)])
    refused = cluster.admin.delete_consumer_group_offsets([named])[group].result(20)
    assert [p.error.code() for p in refused.topic_partitions] == [KafkaError.GROUP_SUBSCRIBED_TO_TOPIC]
    assert offsets_of(cluster, group) == {0: 1}


def test_a_group_without_members_is_moved_and_deleted(cluster: Deployment, group: str, member: Member) -> None:
    topic = topic_of(member)
    member.consumer.close()
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 3, "why"), TopicPartition(topic, 1, 0)])
    done = cluster.admin.alter_consumer_group_offsets([moved])[group].result(20)
    assert [p.error for p in done.topic_partitions] == [None, None]
    assert offsets_of(cluster, group) == {0: 3, 1: 0}
    named = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 1)])
    deleted = cluster.admin.delete_consumer_group_offsets([named])[group].result(20)
    assert [p.error for p in deleted.topic_partitions] == [None]
    assert offsets_of(cluster, group) == {0: 3}
    assert cluster.admin.delete_consumer_groups([group])[group].result(20) is None
    with pytest.raises(KafkaException, match="GROUP_ID_NOT_FOUND"):
        cluster.admin.delete_consumer_groups([group])[group].result(20)
    with pytest.raises(KafkaException, match="GROUP_ID_NOT_FOUND"):
        cluster.admin.describe_consumer_groups([group])[group].result(20)


def test_offsets_of_a_group_that_is_not_there_make_a_simple_group(cluster: Deployment, group: str) -> None:
    topic = cluster.topic()
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 5)])
    cluster.admin.alter_consumer_group_offsets([wanted])[group].result(20)
    described = cluster.admin.describe_consumer_groups([group])[group].result(20)
    assert (described.state, described.is_simple_consumer_group) == (ConsumerGroupState.EMPTY, True)


def test_a_static_member_that_is_removed_leaves_its_partitions_to_others(cluster: Deployment, group: str) -> None:
    topic = cluster.topic(partitions=2)
    gone = Member(cluster.settings, group, group_instance_id="i-1").subscribe(topic)
    until([gone], lambda: len(gone.owned) == 2)
    gone.consumer.close()
    removed = cluster.admin.remove_members_from_consumer_group(group, [MemberToRemove("i-1")]).result(20)
    assert removed == {MemberToRemove("i-1"): None}
    again = cluster.admin.remove_members_from_consumer_group(group, [MemberToRemove("i-1")]).result(20)
    assert again[MemberToRemove("i-1")].error == KafkaError.UNKNOWN_MEMBER_ID
    assert cluster.admin.remove_members_from_consumer_group(group).result(20) == {}

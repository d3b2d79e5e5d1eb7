"""Partitions that are added to topics: every check with its error, and where they go."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from request_values import code_of

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.topics import CreatePartitionsRequest, NewPartitions, ReplicaAssignment
from tidelog_quorum.controller.result import Result
from tidelog_quorum.metadata.records import PartitionChangeRecord


@pytest.fixture
def three(driver: Any) -> Any:
    driver.up(1, 2, 3)
    return driver


def new(name: str, count: int, assignments: Any = ()) -> NewPartitions:
    listed = [ReplicaAssignment(broker_ids=tuple(ids)) for ids in assignments]
    return NewPartitions(name=name, count=count, assignments=tuple(listed))


def add(driver: Any, *topics: NewPartitions, validate_only: bool = False) -> dict[str, ErrorCode]:
    request = CreatePartitionsRequest(topics=tuple(topics), validate_only=validate_only)
    response = driver.do(driver.controller.handle, request)
    return {t.name: code_of(t.error) for t in response.topics}


def text_of(driver: Any, topic: NewPartitions) -> str:
    request = CreatePartitionsRequest(topics=(topic,))
    response = driver.do(driver.controller.handle, request)
    return str(response.topics[0].error.message)


def test_added_partitions_have_the_replicas_of_the_first_one_and_continue_the_spread(three: Any) -> None:
    three.create(partitions=2, factor=2)
    before = [three.partition("t", i) for i in range(2)]
    assert add(three, new("t", 6)) == {"t": ErrorCode.NONE}
    assert sorted(three.image.topics["t"].partitions) == list(range(6))
    assert [three.partition("t", i) for i in range(2)] == before
    partitions = [three.partition("t", i) for i in range(6)]
    assert Counter(b for p in partitions for b in p.replicas) == {1: 4, 2: 4, 3: 4}
    assert Counter(p.leader for p in partitions) == {1: 2, 2: 2, 3: 2}
    for partition in partitions[2:]:
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
        assert set(partition.isr) == set(partition.replicas)


def test_added_partitions_follow_a_manual_assignment(three: Any) -> None:
    three.create(partitions=1, factor=2)
    three.heartbeat(1, want_fence=True)
    assert add(three, new("t", 3, [[1, 2], [3, 2]])) == {"t": ErrorCode.NONE}
    assert (three.partition("t", 1).replicas, three.partition("t", 2).replicas) == ((1, 2), (3, 2))
    assert three.state("t", 1) == (2, (2,))


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (new("x", 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (new("t", 2), ErrorCode.INVALID_PARTITIONS),
        (new("t", 1), ErrorCode.INVALID_PARTITIONS),
        (new("t", 0), ErrorCode.INVALID_PARTITIONS),
        (new("t", -1), ErrorCode.INVALID_PARTITIONS),
        (new("t", 4, [[1, 2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new("t", 3, [[1, 2], [1, 2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new("t", 3, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new("t", 3, [[1, 1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new("t", 3, [[1, 9]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new("t", 3, [[]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
    ids=lambda value: None if isinstance(value, ErrorCode) else f"{value.name}-{value.count}-{len(value.assignments)}",
)
def test_added_partitions_are_refused(three: Any, topic: NewPartitions, code: ErrorCode) -> None:
    three.create(partitions=2, factor=2)
    assert add(three, topic) == {topic.name: code}
    assert len(three.image.topics["t"].partitions) == 2


def test_added_partitions_are_refused_with_the_counts(three: Any) -> None:
    three.create(partitions=2, factor=2)
    assert text_of(three, new("t", 1)) == "The topic t currently has 2 partition(s); 1 would not be an increase."
    assert text_of(three, new("t", 5, [[1, 2]])) == "topic 't' gets 3 more partitions, but 1 are assigned"


def test_added_partitions_cannot_be_on_fenced_brokers_alone(three: Any) -> None:
    three.create(partitions=1, assignments=(), factor=1)
    three.heartbeat(1, want_fence=True)
    assert add(three, new("t", 2, [[1]])) == {"t": ErrorCode.INVALID_REPLICA_ASSIGNMENT}


def test_create_partitions_fails_each_for_itself_and_refuses_a_topic_that_is_named_twice(three: Any) -> None:
    for name in ("a", "b", "c"):
        three.create(name)
    codes = add(three, new("a", 3), new("b", 1), new("c", 2), new("c", 3))
    assert codes == {"a": ErrorCode.NONE, "b": ErrorCode.INVALID_PARTITIONS, "c": ErrorCode.INVALID_REQUEST}
    assert [len(three.image.topics[n].partitions) for n in "abc"] == [3, 1, 1]


def test_create_partitions_only_validates_when_asked_to(three: Any) -> None:
    three.create(partitions=1)
    entries = len(three.log)
    assert add(three, new("t", 4), validate_only=True) == {"t": ErrorCode.NONE}
    assert len(three.log) == entries


def test_create_partitions_refuses_too_many_at_once(three: Any) -> None:
    three.create(partitions=1)
    with pytest.raises(TidelogError, match="10001 partitions in one request") as caught:
        add(three, new("t", 10_002))
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


def test_added_partitions_get_what_a_reassignment_will_leave_the_first_one(three: Any) -> None:
    three.create(assignments=[[1, 2]])
    topic_id = three.image.topics["t"].topic_id
    change = PartitionChangeRecord(topic_id, 0, replicas=(3, 1, 2), adding_replicas=(3,), removing_replicas=(1, 2))
    three.append(Result([change], None))
    three.commit()
    assert add(three, new("t", 2)) == {"t": ErrorCode.NONE}
    assert len(three.partition("t", 1).replicas) == 1


def test_create_partitions_refuses_too_many_topics_at_once(three: Any) -> None:
    request = CreatePartitionsRequest(topics=tuple(NewPartitions(str(i), 0) for i in range(10_001)))
    with pytest.raises(TidelogError, match="10001 topics in one request") as caught:
        three.do(three.controller.handle, request)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION

"""Creation and deletion of topics: every check with its error."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from request_values import code_of
from topic_ids import SequentialTopicIds

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.configs import (
    ConfigOperation,
    ConfigResourceChange,
    ConfigResourceName,
    IncrementalAlterConfigsRequest,
)
from tidelog_foundation.requests.topics import CreateTopicsRequest, DeleteTopicsRequest
from tidelog_quorum.controller.config import ControllerConfig
from tidelog_quorum.controller.state_machine import Controller


def code(result: Any) -> ErrorCode:
    return code_of(result.error)


@pytest.fixture
def three(driver: Any) -> Any:
    driver.up(1, 2, 3)
    return driver


def test_create_topic_answers_id_and_counts(three: Any) -> None:
    result = three.create(partitions=4, factor=3)
    assert (result.num_partitions, result.replication_factor) == (4, 3)
    topic = three.image.topics["t"]
    assert result.topic_id == topic.topic_id
    assert sorted(topic.partitions) == [0, 1, 2, 3]
    for partition in topic.partitions.values():
        assert partition.leader == partition.replicas[0]
        assert set(partition.isr) == {1, 2, 3}
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)


def test_create_topic_takes_defaults_for_minus_one(new_driver: Callable[..., Any]) -> None:
    driver = new_driver(replication_factor=2)
    driver.up(1, 2)
    result = driver.create()
    assert (result.num_partitions, result.replication_factor) == (1, 2)


def test_create_topic_keeps_its_configuration(three: Any) -> None:
    three.create(configs={"min.insync.replicas": "2"})
    assert three.image.config_of_topic("t") == {"min.insync.replicas": "2"}


def test_create_topic_only_validates_when_asked_to(three: Any) -> None:
    result = three.create(partitions=2, validate_only=True)
    assert (code(result), result.num_partitions) == (ErrorCode.NONE, 2)
    assert not three.image.topics


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a b", "a/b", "ä", "a\n"])
def test_create_topic_refuses_a_bad_name(three: Any, name: str) -> None:
    assert code(three.create(name)) is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", ["a", "a" * 249, "a.b_c-D9", "..."])
def test_create_topic_accepts_a_good_name(three: Any, name: str) -> None:
    assert code(three.create(name)) is ErrorCode.NONE


@pytest.mark.parametrize(("first", "second"), [("a.b", "a_b"), ("a_b", "a.b"), ("a.b_c", "a_b.c")])
def test_create_topic_refuses_a_name_that_collides(three: Any, first: str, second: str) -> None:
    three.create(first)
    result = three.create(second)
    assert code(result) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert result.error.message == f"Topic '{second}' collides with existing topic: {first}"


def test_create_topic_refuses_a_name_that_exists(three: Any) -> None:
    three.create()
    assert code(three.create()) is ErrorCode.TOPIC_ALREADY_EXISTS


def test_create_topic_answers_the_same_when_its_request_comes_again(three: Any) -> None:
    request = CreateTopicsRequest(topics=(three.creatable("t", partitions=4, factor=3),), request_id=b"8 bytes.")
    first = three.do(three.controller.handle, request)
    entries = len(three.log)
    assert three.do(three.controller.handle, request) == first
    assert len(three.log) == entries, "the second attempt wrote something"
    request = dataclasses.replace(request, request_id=b"another.")
    assert code(three.do(three.controller.handle, request).topics[0]) is ErrorCode.TOPIC_ALREADY_EXISTS


def test_create_topic_is_known_for_its_request_by_a_new_leader(three: Any) -> None:
    request = CreateTopicsRequest(topics=(three.creatable("t", partitions=2),), request_id=b"8 bytes.")
    first = three.do(three.controller.handle, request)
    three.lead()
    assert three.do(three.controller.handle, request) == first


def test_create_topic_gives_another_id_when_its_request_comes_after_the_deletion(three: Any) -> None:
    request = CreateTopicsRequest(topics=(three.creatable("t"),), request_id=b"8 bytes.")
    first = three.do(three.controller.handle, request).topics[0].topic_id
    three.do(three.controller.handle, DeleteTopicsRequest(topic_names=("t",)))
    again = three.do(three.controller.handle, request).topics[0].topic_id
    assert len(again) == len(first) == 16
    assert again != first, "a node would take the deleted topic's records for those of the new one"


@pytest.mark.parametrize("request_id", [b"7 bytes", b"of nine b"])
def test_create_topics_refuses_a_request_id_of_another_length(three: Any, request_id: bytes) -> None:
    request = CreateTopicsRequest(topics=(three.creatable("t"),), request_id=request_id)
    with pytest.raises(TidelogError, match="INVALID_REQUEST"):
        three.do(three.controller.handle, request)


def test_create_topics_fails_each_for_itself(three: Any) -> None:
    topics = [three.creatable(n) for n in ("a.b", "x", "x", "a_b", "c")]
    response = three.do(three.controller.handle, CreateTopicsRequest(topics=tuple(topics)))
    assert {t.name: code(t) for t in response.topics} == {
        "a.b": ErrorCode.NONE,
        "x": ErrorCode.INVALID_REQUEST,
        "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "c": ErrorCode.NONE,
    }
    assert sorted(three.image.topics) == ["a.b", "c"]


@pytest.mark.parametrize("partitions", [0, -2])
def test_create_topic_refuses_a_bad_number_of_partitions(three: Any, partitions: int) -> None:
    assert code(three.create(partitions=partitions)) is ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize("factor", [0, -2, 40_000])
def test_create_topic_refuses_a_bad_replication_factor(three: Any, factor: int) -> None:
    assert code(three.create(factor=factor)) is ErrorCode.INVALID_REPLICATION_FACTOR


def test_create_topic_says_how_many_brokers_are_there(three: Any) -> None:
    result = three.create(factor=4)
    assert code(result) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "replication factor of 4 cannot be reached because only 3 broker(s) are registered" in result.error.message


def test_create_topic_puts_a_replica_on_a_fenced_broker_where_there_is_no_other(three: Any) -> None:
    three.heartbeat(3, want_fence=True)
    assert code(three.create(partitions=3, factor=3)) is ErrorCode.NONE
    for _, _, partition in three.image.partitions():
        assert set(partition.replicas) == {1, 2, 3}
        assert partition.replicas[-1] == 3
        assert set(partition.isr) == {1, 2}


def test_create_topic_refuses_when_all_brokers_are_fenced(three: Any) -> None:
    for broker in (1, 2, 3):
        three.heartbeat(broker, want_fence=True)
    result = three.create(factor=2)
    assert code(result) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "All brokers are currently fenced" in result.error.message


def test_create_topic_takes_settings_over_the_clusters_defaults(three: Any) -> None:
    resource = ConfigResourceName(type=4, name="")
    operation = ConfigOperation(name="log.cleaner.max.compaction.lag.ms", value="1000")
    change = ConfigResourceChange(resource=resource, operations=(operation,))
    three.do(three.controller.handle, IncrementalAlterConfigsRequest(resources=(change,)))
    result = three.create(configs={"min.compaction.lag.ms": "2000"})
    assert code(result) is ErrorCode.INVALID_CONFIG
    assert "min.compaction.lag.ms 2000 is above max.compaction.lag.ms 1000" in result.error.message
    assert code(three.create(configs={"min.compaction.lag.ms": "1000"})) is ErrorCode.NONE


def test_create_topic_refuses_a_value_that_is_too_long(three: Any) -> None:
    result = three.create(configs={"leader.replication.throttled.replicas": "1:1," * 10_000})
    assert code(result) is ErrorCode.INVALID_CONFIG
    assert "40000 bytes, more than 32767" in result.error.message


def test_create_topics_refuses_too_many_partitions_at_once(three: Any) -> None:
    with pytest.raises(TidelogError) as caught:
        three.create(partitions=10_001)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


def test_create_topic_names_an_unknown_configuration(three: Any) -> None:
    result = three.create(configs={"min.isr": "2"})
    assert code(result) is ErrorCode.INVALID_CONFIG
    assert "min.isr" in result.error.message


def test_create_topic_follows_a_manual_assignment(three: Any) -> None:
    three.heartbeat(1, want_fence=True)
    result = three.create(assignments=[[1, 2], [3, 1]])
    assert (result.num_partitions, result.replication_factor) == (2, 2)
    assert three.partition("t", 0).replicas == (1, 2)
    assert three.state("t", 0) == (2, (2,))
    assert three.state("t", 1) == (3, (3,))


@pytest.mark.parametrize("assignment", [[[9]], [[1, 1]], [[1], [1, 2]], [[]]])
def test_create_topic_refuses_a_bad_assignment(three: Any, assignment: list[list[int]]) -> None:
    assert code(three.create(assignments=assignment)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_create_topic_refuses_an_assignment_with_a_gap(three: Any) -> None:
    topic = three.creatable("t", [[1], [2]])
    first, second = topic.assignments
    topic = dataclasses.replace(topic, assignments=(first, dataclasses.replace(second, partition_index=2)))
    response = three.do(three.controller.handle, CreateTopicsRequest(topics=(topic,)))
    assert code(response.topics[0]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_create_topic_refuses_an_assignment_to_fenced_brokers_alone(three: Any) -> None:
    three.heartbeat(1, want_fence=True)
    assert code(three.create(assignments=[[1]])) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize("fields", [{"partitions": 1}, {"factor": 1}])
def test_create_topic_refuses_counts_beside_an_assignment(three: Any, fields: dict[str, int]) -> None:
    assert code(three.create(assignments=[[1]], **fields)) is ErrorCode.INVALID_REQUEST


def test_delete_topics_fails_each_for_itself(three: Any) -> None:
    three.create("a", configs={"segment.bytes": "1000"})
    three.create("b")
    request = DeleteTopicsRequest(topic_names=("a", "x", "b", "b"))
    response = three.do(three.controller.handle, request)
    assert {t.name: code(t) for t in response.topics} == {
        "a": ErrorCode.NONE,
        "x": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "b": ErrorCode.INVALID_REQUEST,
    }
    assert list(three.image.topics) == ["b"]
    assert not three.image.configs


def test_delete_topics_is_refused_where_it_is_disabled() -> None:
    config = ControllerConfig("c1", delete_topic_enable=False)
    controller = Controller(config, SequentialTopicIds())
    with pytest.raises(TidelogError, match="TOPIC_DELETION_DISABLED"):
        controller.handle(DeleteTopicsRequest(topic_names=("t",)), 0)


def test_created_again_a_topic_has_another_id(three: Any) -> None:
    first = three.create().topic_id
    three.do(three.controller.handle, DeleteTopicsRequest(topic_names=("t",)))
    assert three.create().topic_id != first


@pytest.mark.parametrize("count", [-1, 0])
def test_create_topics_refuses_too_many_topics_at_once(three: Any, count: int) -> None:
    request = CreateTopicsRequest(topics=tuple([three.creatable("", partitions=count)] * 10_001))
    with pytest.raises(TidelogError, match="10001") as caught:
        three.do(three.controller.handle, request)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


def test_delete_topics_refuses_too_many_at_once(three: Any) -> None:
    request = DeleteTopicsRequest(topic_names=tuple(str(i) for i in range(10_001)))
    with pytest.raises(TidelogError, match="10001 topics in one request") as caught:
        three.do(three.controller.handle, request)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION

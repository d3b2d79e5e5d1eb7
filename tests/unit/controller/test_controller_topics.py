"""Creation and deletion of topics: every check with its error, and where replicas go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelog.errors import ErrorCode, TidelogError
from tidelog.v1 import admin_service_pb2 as pb
from tidelog_quorum.controller.placement import place_replicas
from tidelog_quorum.metadata import Endpoint, MetadataImage, RegisterBrokerRecord


def code(result: Any) -> ErrorCode:
    return ErrorCode.of(result.error.code)


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
    assert repr(first) in result.error.message


def test_create_topic_refuses_a_name_that_exists(three: Any) -> None:
    three.create()
    assert code(three.create()) is ErrorCode.TOPIC_ALREADY_EXISTS


def test_create_topic_answers_the_same_when_its_request_comes_again(three: Any) -> None:
    request = pb.CreateTopicsRequest(topics=[three.creatable("t", partitions=4, factor=3)], request_id=b"8 bytes.")
    first = three.do(three.controller.handle_create_topics, request)
    entries = len(three.log)
    assert three.do(three.controller.handle_create_topics, request) == first
    assert len(three.log) == entries, "the second attempt wrote something"
    request.request_id = b"another."
    assert code(three.do(three.controller.handle_create_topics, request).topics[0]) is ErrorCode.TOPIC_ALREADY_EXISTS


def test_create_topic_is_known_for_its_request_by_a_new_leader(three: Any) -> None:
    request = pb.CreateTopicsRequest(topics=[three.creatable("t", partitions=2)], request_id=b"8 bytes.")
    first = three.do(three.controller.handle_create_topics, request)
    three.lead()
    assert three.do(three.controller.handle_create_topics, request) == first


def test_create_topic_gives_another_id_when_its_request_comes_after_the_deletion(three: Any) -> None:
    request = pb.CreateTopicsRequest(topics=[three.creatable("t")], request_id=b"8 bytes.")
    first = three.do(three.controller.handle_create_topics, request).topics[0].topic_id
    three.do(three.controller.handle_delete_topics, pb.DeleteTopicsRequest(topic_names=["t"]))
    again = three.do(three.controller.handle_create_topics, request).topics[0].topic_id
    assert len(again) == len(first) == 16
    assert again != first, "a node would take the deleted topic's records for those of the new one"


@pytest.mark.parametrize("request_id", [b"7 bytes", b"of nine b"])
def test_create_topics_refuses_a_request_id_of_another_length(three: Any, request_id: bytes) -> None:
    request = pb.CreateTopicsRequest(topics=[three.creatable("t")], request_id=request_id)
    with pytest.raises(TidelogError, match="INVALID_REQUEST"):
        three.do(three.controller.handle_create_topics, request)


def test_create_topics_fails_each_for_itself(three: Any) -> None:
    topics = [three.creatable(n) for n in ("a.b", "x", "x", "a_b", "c")]
    response = three.do(three.controller.handle_create_topics, pb.CreateTopicsRequest(topics=topics))
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
    three.heartbeat(3, want_fence=True)
    result = three.create(factor=3)
    assert code(result) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "needs 3 live brokers, but 2 of 3 registered are available" in result.error.message


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
    topic.assignments[1].partition_index = 2
    response = three.do(three.controller.handle_create_topics, pb.CreateTopicsRequest(topics=[topic]))
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
    request = pb.DeleteTopicsRequest(topic_names=["a", "x", "b", "b"])
    response = three.do(three.controller.handle_delete_topics, request)
    assert {t.name: code(t) for t in response.topics} == {
        "a": ErrorCode.NONE,
        "x": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "b": ErrorCode.INVALID_REQUEST,
    }
    assert list(three.image.topics) == ["b"]
    assert not three.image.configs


def test_created_again_a_topic_has_another_id(three: Any) -> None:
    first = three.create().topic_id
    three.do(three.controller.handle_delete_topics, pb.DeleteTopicsRequest(topic_names=["t"]))
    assert three.create().topic_id != first


def cluster(racks: list[str], fenced: tuple[int, ...] = ()) -> MetadataImage:
    records = [
        RegisterBrokerRecord(i, bytes(16), 1, Endpoint("h", 1), rack=rack, fenced=i in fenced)  # type: ignore[arg-type]
        for i, rack in enumerate(racks)
    ]
    return MetadataImage().apply(1, 1, records)


def spread(counts: Counter[int], brokers: int) -> int:
    values = [counts[b] for b in range(brokers)]
    return max(values) - min(values)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 12), st.integers(1, 60), st.data())
def test_placement_is_even_without_racks(brokers: int, partitions: int, data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, brokers))
    placed = place_replicas(cluster([""] * brokers), partitions, factor)
    assert all(len(set(p)) == factor for p in placed)
    assert spread(Counter(b for p in placed for b in p), brokers) <= 1
    assert spread(Counter(p[0] for p in placed), brokers) <= 1


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 40), st.data())
def test_placement_uses_every_rack_and_is_even_with_racks_of_one_size(
    racks: int, size: int, partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, racks * size))
    names = data.draw(st.permutations([f"r{i % racks}" for i in range(racks * size)]))
    placed = place_replicas(cluster(list(names)), partitions, factor)
    for replicas in placed:
        assert len(set(replicas)) == factor
        used = Counter(names[b] for b in replicas)
        assert max(used.values()) - min(used.get(f"r{i}", 0) for i in range(racks)) <= 1
    assert spread(Counter(b for p in placed for b in p), racks * size) <= 1
    assert spread(Counter(p[0] for p in placed), racks * size) <= 1


def test_placement_is_even_where_the_fullest_broker_shares_nothing_with_the_emptiest() -> None:
    racks = [f"r{i % 4}" for i in range(8)]
    placed = place_replicas(cluster(racks), 17, 2)
    assert spread(Counter(p[0] for p in placed), 8) == 1


def test_placement_leaves_fenced_brokers_out() -> None:
    assert set(place_replicas(cluster([""] * 3, fenced=(1,)), 5, 2)) <= {(0, 2), (2, 0)}


def test_placement_spreads_small_topics_over_all_brokers(three: Any) -> None:
    for i in range(9):
        three.create(f"t{i}", factor=1)
    assert Counter(p.leader for _, _, p in three.image.partitions()) == {1: 3, 2: 3, 3: 3}

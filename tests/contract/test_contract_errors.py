"""Refusals of wrong requests: Kafka's error name, the value in the text, and a connection that stays open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidelog import OFFSET_BEGINNING, KafkaError, KafkaException, Message, NewTopic, TopicPartition
from tidelog.v1 import admin_service_pb2 as admin_pb
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.records import RecordBatchBuilder
from tidelog_foundation.transport import run_sync

Deployment = Any


def assert_still_works(cluster: Deployment, topic: str, expected: list[bytes]) -> None:
    cluster.send(topic, [b"after"])
    assert [m.value() for m in cluster.read(topic, len(expected) + 1)] == [*expected, b"after"]


def one_batch() -> bytes:
    builder = RecordBatchBuilder()
    builder.append(None, b"value", (), 1)
    return builder.build()


@pytest.mark.parametrize(
    ("topic", "code", "text"),
    [
        (NewTopic("bad name", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION, "bad name"),
        (NewTopic("..", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION, ".."),
        (NewTopic("x" * 250, 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION, "250"),
        (NewTopic("rf", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR, "4"),
        (NewTopic("none", 0, 1), ErrorCode.INVALID_PARTITIONS, "0"),
        (NewTopic("cfg", 1, 1, config={"retention.mss": "1"}), ErrorCode.INVALID_CONFIG, "retention.mss"),
        (NewTopic("cfg", 1, 1, config={"max.message.bytes": "big"}), ErrorCode.INVALID_CONFIG, "big"),
        (NewTopic("who", replica_assignment=[[99]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "99"),
    ],
)
def test_create_topics_refuses_what_is_wrong(cluster: Deployment, topic: NewTopic, code: ErrorCode, text: str) -> None:
    with pytest.raises(KafkaException) as caught:
        cluster.admin.create_topics([topic])[topic.topic].result(30)
    assert caught.value.code is code
    assert caught.value.args[0].code() == code.code
    assert text in caught.value.message
    assert topic.topic not in cluster.admin.list_topics().topics


def test_create_topics_refuses_a_name_that_is_taken(cluster: Deployment) -> None:
    name = cluster.topic()
    with pytest.raises(KafkaException, match=f"TOPIC_ALREADY_EXISTS.*{name}"):
        cluster.admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)


def test_create_topics_answers_for_each_topic(cluster: Deployment) -> None:
    good = f"{cluster.topic()}-good"
    futures = cluster.admin.create_topics([NewTopic(good, 2, 1), NewTopic("b a d", 1, 1)])
    assert futures[good].result(30) is None
    with pytest.raises(KafkaException, match="INVALID_TOPIC_EXCEPTION"):
        futures["b a d"].result(30)


def test_create_topics_with_validate_only_creates_nothing(cluster: Deployment) -> None:
    assert cluster.admin.create_topics([NewTopic("valid", 1, 1)], validate_only=True)["valid"].result(30) is None
    with pytest.raises(KafkaException, match="INVALID_PARTITIONS"):
        cluster.admin.create_topics([NewTopic("valid", -7, 1)], validate_only=True)["valid"].result(30)
    assert "valid" not in cluster.admin.list_topics().topics


@pytest.mark.parametrize("operation", ["delete_topics", "describe_topics"])
def test_an_unknown_topic_is_named(cluster: Deployment, operation: str) -> None:
    with pytest.raises(KafkaException, match=r"UNKNOWN_TOPIC_OR_PARTITION.*no-such-topic"):
        getattr(cluster.admin, operation)(["no-such-topic"])["no-such-topic"].result(30)


def test_topics_are_described_and_deleted(cluster: Deployment) -> None:
    name = cluster.topic(partitions=2, max_message_bytes="2000")
    description = cluster.admin.describe_topics([name])[name].result(30)
    assert [p.id for p in description.partitions] == [0, 1]
    assert description.config == {"max.message.bytes": "2000"}
    assert all(p.leader and p.leader.id == p.replicas[0].id == p.isr[0].id for p in description.partitions)
    assert cluster.admin.delete_topics([name])[name].result(30) is None
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PARTITION"):
        cluster.admin.describe_topics([name])[name].result(30)


def test_cluster_is_described(cluster: Deployment) -> None:
    description = cluster.admin.describe_cluster().result(30)
    assert description.cluster_id == cluster.cluster_id
    assert description.controller in description.voters
    assert [f"{n.host}:{n.port}" for n in description.nodes] == [cluster.bootstrap_servers]
    assert not description.fenced_ids


def test_producing_to_an_unknown_topic_is_reported(cluster: Deployment) -> None:
    reports: list[tuple[KafkaError, Message]] = []
    with cluster.producer(topic_metadata_propagation_max_ms=200) as producer:
        producer.produce("no-such-topic", b"v", on_delivery=lambda e, m: reports.append((e, m)))
        assert producer.flush(30) == 0
    [(error, message)] = reports
    assert (error.code(), error.name()) == (-188, "_UNKNOWN_TOPIC")
    assert "no-such-topic" in error.str()
    assert (message.offset(), message.value()) == (None, b"v")


def test_producing_to_an_invalid_topic_is_reported(cluster: Deployment) -> None:
    reports: list[KafkaError] = []
    with cluster.producer() as producer:
        producer.produce("bad name", b"v", on_delivery=lambda e, m: reports.append(e))
        assert producer.flush(10) == 0
    [error] = reports
    assert error.name() == "INVALID_TOPIC_EXCEPTION"
    assert "bad name" in error.str()


@pytest.mark.parametrize("name", ["bad name", "..", "x" * 250])
def test_metadata_of_an_invalid_topic_is_refused_and_others_are_answered(cluster: Deployment, name: str) -> None:
    good = cluster.topic()
    topics = run_sync(cluster.client.refresh([name, good])).topics
    assert topics[name].error is not None
    assert topics[name].error.name() == "INVALID_TOPIC_EXCEPTION"
    assert topics[good].error is None
    with cluster.consumer() as consumer:
        assert consumer.list_topics(name).topics[name].error.name() == "INVALID_TOPIC_EXCEPTION"
        consumer.assign([TopicPartition(name, 0, OFFSET_BEGINNING)])
        event = consumer.poll(10)
        assert event is not None
        assert event.error().name() == "INVALID_TOPIC_EXCEPTION"


def test_producing_to_an_unknown_partition_is_refused(cluster: Deployment) -> None:
    topic = cluster.topic()
    with cluster.producer() as producer:
        producer.produce(topic, b"v")
        assert producer.flush(30) == 0
        with pytest.raises(KafkaException, match=r"_UNKNOWN_PARTITION.*no partition 5, it has 1"):
            producer.produce(topic, b"v", partition=5)
    assert_still_works(cluster, topic, [b"v"])


def test_a_record_above_the_clients_limit_is_refused_by_produce(cluster: Deployment) -> None:
    topic = cluster.topic()
    with cluster.producer(message_max_bytes=2_000) as producer:
        with pytest.raises(KafkaException, match=r"MESSAGE_TOO_LARGE.*message\.max\.bytes=2000"):
            producer.produce(topic, b"x" * 2_001)
        assert len(producer) == 0
    assert_still_works(cluster, topic, [])


def test_a_record_above_the_topics_limit_is_refused_by_the_node(cluster: Deployment) -> None:
    topic = cluster.topic(max_message_bytes="1000")
    reports: list[KafkaError] = []
    with cluster.producer() as producer:
        producer.produce(topic, b"x" * 1_500, on_delivery=lambda e, m: reports.append(e))
        assert producer.flush(30) == 0
    assert [(e.name(), e.code()) for e in reports] == [("MESSAGE_TOO_LARGE", 10)]
    assert "1000" in reports[0].str()
    assert cluster.end_offset(topic) == 0
    assert_still_works(cluster, topic, [])


def test_an_offset_out_of_range_is_reported_when_reset_is_error(cluster: Deployment) -> None:
    topic = cluster.topic()
    cluster.send(topic, [b"a"])
    with cluster.consumer(auto_offset_reset="error") as consumer:
        consumer.assign([TopicPartition(topic, 0, 99)])
        event = consumer.poll(30)
        assert event is not None
        error = event.error()
        assert error is not None
        assert error.name() == "_AUTO_OFFSET_RESET"
        assert "99" in error.str()
        consumer.seek(TopicPartition(topic, 0, 0))
        message = consumer.poll(30)
        assert message is not None
        assert message.value() == b"a"


@pytest.mark.parametrize(("reset", "value"), [("earliest", b"first"), ("latest", b"later")])
def test_an_offset_out_of_range_is_reset(cluster: Deployment, reset: str, value: bytes) -> None:
    topic = cluster.topic()
    cluster.send(topic, [b"first"])
    with cluster.consumer(auto_offset_reset=reset) as consumer:
        consumer.assign([TopicPartition(topic, 0, 99)])
        message = consumer.poll(1.0)
        if message is None:
            cluster.send(topic, [b"later"])
            message = consumer.poll(30)
        assert message is not None
        assert message.value() == value


def test_consuming_an_unknown_topic_is_reported(cluster: Deployment) -> None:
    with cluster.consumer() as consumer:
        consumer.assign([TopicPartition("no-such-topic", 0, OFFSET_BEGINNING)])
        event = consumer.poll(30)
        assert event is not None
        error = event.error()
        assert error is not None
        assert error.name() == "UNKNOWN_TOPIC_OR_PARTITION"
        assert "no-such-topic" in error.str()


def test_watermark_offsets_of_an_unknown_partition_are_refused(cluster: Deployment) -> None:
    topic = cluster.topic()
    with (
        cluster.consumer() as consumer,
        pytest.raises(KafkaException, match=r"UNKNOWN_TOPIC_OR_PARTITION.*partition 7"),
    ):
        consumer.get_watermark_offsets(TopicPartition(topic, 7), timeout=10)


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda batch: batch[:-1] + bytes([batch[-1] ^ 1]), ErrorCode.CORRUPT_MESSAGE),
        (lambda batch: batch[:-3], ErrorCode.CORRUPT_MESSAGE),
        (lambda batch: b"nonsense", ErrorCode.CORRUPT_MESSAGE),
        (lambda batch: b"", None),
        (lambda batch: batch + batch, None),
    ],
    ids=["changed", "torn", "nonsense", "empty", "two batches"],
)
def test_a_damaged_batch_is_refused_and_nothing_is_stored(
    cluster: Deployment, damage: Callable[[bytes], bytes], code: ErrorCode | None
) -> None:
    topic = cluster.topic()
    result = cluster.raw_produce(topic, damage(one_batch()))
    allowed = {code} if code else {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}
    assert ErrorCode.of(result.error.code) in allowed
    assert result.error.message
    assert cluster.end_offset(topic) == 0
    assert cluster.raw_produce(topic, one_batch()).base_offset == 0
    assert_still_works(cluster, topic, [b"value"])


@pytest.mark.parametrize("offset", [-1, 2, 99, 2**63 - 1])
def test_a_fetch_outside_of_the_log_is_refused_and_names_the_bounds(cluster: Deployment, offset: int) -> None:
    topic = cluster.topic()
    cluster.send(topic, [b"a"])
    result = cluster.raw_fetch(topic, offset).topics[0].partitions[0]
    assert ErrorCode.of(result.error.code) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert str(offset) in result.error.message
    assert not result.records
    at_end = cluster.raw_fetch(topic, 1).topics[0].partitions[0]
    assert (at_end.HasField("error"), at_end.records, at_end.high_watermark) == (False, b"", 1)
    assert_still_works(cluster, topic, [b"a"])


def test_a_fetch_for_another_cluster_is_refused(cluster: Deployment) -> None:
    topic = cluster.topic()
    with pytest.raises(KafkaException, match=r"INCONSISTENT_CLUSTER_ID.*other") as caught:
        cluster.raw_fetch(topic, cluster_id="other")
    assert cluster.cluster_id in caught.value.message
    assert not cluster.raw_fetch(topic, cluster_id=cluster.cluster_id).topics[0].partitions[0].HasField("error")
    assert_still_works(cluster, topic, [])


def test_a_topic_is_created_once_by_a_request_that_is_sent_twice(cluster: Deployment) -> None:
    name = f"{cluster.topic()}-twice"

    def create(request_id: bytes) -> admin_pb.CreatableTopicResult:
        topic = admin_pb.CreatableTopic(name=name, num_partitions=2, replication_factor=1)
        request = admin_pb.CreateTopicsRequest(topics=[topic], timeout_ms=10_000, request_id=request_id)
        return run_sync(cluster.client.ask_any(lambda c, t: c.admin.CreateTopics(request, timeout=t))).topics[0]

    first = create(b"8 bytes.")
    assert not first.HasField("error")
    assert create(b"8 bytes.") == first
    assert ErrorCode.of(create(b"another.").error.code) is ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(KafkaException, match="INVALID_REQUEST"):
        create(b"short")

"""The node in memory serves clients of both protocols, keeps its records over a restart, and fails on demand."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer

from tidelog import Consumer, Producer, TopicPartition
from tidelog.testing import FakeCluster
from tidelog.v1 import admin_service_pb2, log_service_pb2
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.records import RecordBatchBuilder
from tidelog_node.log.disk.files import OS_FILES, Files
from tidelog_testing.memory_files import MemoryFiles
from tidelog_testing.refusals import overwrite, refuse


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as running:
        running.create_topic("t")
        yield running


def produce(cluster: FakeCluster, *values: bytes, **config: object) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, **config}) as producer:
        for value in values:
            producer.produce("t", value)
        assert producer.flush(30) == 0


def values(cluster: FakeCluster) -> list[bytes | None]:
    return [record.value for record in cluster.records("t")]


def test_start_of_a_node_in_memory_takes_less_than_150_ms_in_a_warm_process() -> None:
    took_ms = []
    for _ in range(5):
        began = time.monotonic()
        with FakeCluster():
            took_ms.append((time.monotonic() - began) * 1000)
    # The other work of the machine lengthens a start, and nothing shortens it.
    assert min(took_ms[1:]) < 150


def test_clients_of_kafka_read_and_write_the_same_topics(cluster: FakeCluster) -> None:
    produce(cluster, b"by the SDK")
    producer = KafkaProducer(bootstrap_servers=cluster.kafka_bootstrap_servers)
    producer.send("t", b"by a client of Kafka").get(10)
    producer.close()
    consumer = KafkaConsumer("t", bootstrap_servers=cluster.kafka_bootstrap_servers, auto_offset_reset="earliest")
    try:
        assert [next(consumer).value, next(consumer).value] == [b"by the SDK", b"by a client of Kafka"]
    finally:
        consumer.close()


def test_records_and_committed_offsets_survive_a_restart_at_the_same_addresses(cluster: FakeCluster) -> None:
    produce(cluster, b"a", b"b")
    addresses = cluster.bootstrap_servers, cluster.kafka_bootstrap_servers
    group = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    with Consumer(group) as consumer:
        consumer.subscribe(["t"])
        assert consumer.poll(30) is not None
        consumer.commit(asynchronous=False)
    cluster.stop()
    cluster.start()
    assert (cluster.bootstrap_servers, cluster.kafka_bootstrap_servers) == addresses
    assert values(cluster) == [b"a", b"b"]
    produce(cluster, b"c")
    with Consumer(group) as consumer:
        consumer.subscribe(["t"])
        assert [message.value() for message in consumer.consume(2, 30)] == [b"b", b"c"]
    cluster.check_invariants()


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode._TRANSPORT])
def test_producer_stores_records_once_when_calls_fail(cluster: FakeCluster, code: ErrorCode, applied: bool) -> None:
    cluster.fail_next("Produce", code, 2, applied=applied)
    produce(cluster, b"a", **{"retry.backoff.ms": 1})
    assert values(cluster) == [b"a"]
    assert cluster.calls("Produce") == 3


def test_consumer_reads_on_when_fetches_of_its_session_fail(cluster: FakeCluster) -> None:
    produce(cluster, b"a")
    with Consumer({"bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition("t", 0, 0)])
        assert consumer.consume(1, 30)[0].value() == b"a"
        cluster.fail_next("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)
        produce(cluster, b"b")
        assert consumer.consume(1, 30)[0].value() == b"b"


def test_calls_that_come_in_while_paused_are_answered_after_resume(cluster: FakeCluster) -> None:
    cluster.pause()
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.produce("t", b"a")
        assert producer.flush(0.2) == 1
        cluster.resume()
        assert producer.flush(30) == 0
    assert values(cluster) == [b"a"]


def test_unknown_api_and_a_stopped_cluster_are_refused_by_name(cluster: FakeCluster) -> None:
    with pytest.raises(ValueError, match="Consume"):
        cluster.fail_next("Consume", ErrorCode.REQUEST_TIMED_OUT)
    with pytest.raises(TidelogError, match="not running"):
        FakeCluster().records("t")


def test_elections_and_deletions_of_a_test_reach_the_node(cluster: FakeCluster) -> None:
    builder = RecordBatchBuilder()
    builder.append(None, b"a")
    assert cluster.append("t", 0, builder.build()) == 0
    assert cluster.elect_leader("t", 0) == 1
    assert cluster.append("t", 0, builder.build()) == 1
    cluster.delete_records("t", 0, 1)
    assert [record.offset for record in cluster.records("t")] == [1]
    assert cluster.end_offset("t") == 2
    cluster.delete_topic("t")
    with pytest.raises(TidelogError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        cluster.delete_topic("t")


def test_refusal_names_every_item_of_the_request() -> None:
    error = error_for(ErrorCode.REQUEST_TIMED_OUT)
    deleted = admin_service_pb2.DeleteTopicsResponse()
    refuse(admin_service_pb2.DeleteTopicsRequest(topic_names=["a"], topic_ids=[b"1" * 16]), deleted, error)
    assert [(t.name, t.topic_id, t.error.code) for t in deleted.topics] == [("a", b"", 7), ("", b"1" * 16, 7)]
    produced = log_service_pb2.ProduceResponse()
    item = log_service_pb2.ProducePartition(index=3)
    topics = [log_service_pb2.ProduceTopic(name="a", partitions=[item])]
    refuse(log_service_pb2.ProduceRequest(topics=topics), produced, error)
    assert [(t.name, p.index, p.error.code) for t in produced.topics for p in t.partitions] == [("a", 3, 7)]
    produced.topics[0].partitions[0].base_offset = 9
    overwrite(produced, error_for(ErrorCode.INVALID_RECORD))
    assert (produced.topics[0].partitions[0].error.code, produced.topics[0].partitions[0].base_offset) == (87, 0)


@pytest.mark.parametrize("kind", ["memory", "system"])
def test_files_in_memory_behave_as_those_of_the_system(kind: str, tmp_path: Path) -> None:
    files: Files = MemoryFiles() if kind == "memory" else OS_FILES
    files.mkdir(tmp_path / "d")
    handle = files.open(tmp_path / "d" / "f", create=True)
    assert files.pwrite(handle, b"abc", 2) == 3
    assert files.pwritev(handle, [b"x", b"y"], 0) == 2
    assert (files.pread(handle, 10, 1), files.size(handle)) == (b"yabc", 5)
    files.truncate(handle, 3)
    assert bytes(files.map(tmp_path / "d" / "f")) == b"xya"
    with pytest.raises(OSError, match="not empty") as refused:
        files.rmdir(tmp_path / "d")
    assert refused.value.errno == errno.ENOTEMPTY
    files.rename(tmp_path / "d" / "f", tmp_path / "d" / "g")
    assert files.listdir(tmp_path / "d") == ["g"]
    files.remove(tmp_path / "d" / "g")
    assert files.pread(handle, 3, 0) == b"xya"
    files.close(handle)
    with pytest.raises(FileNotFoundError):
        files.open(tmp_path / "d" / "g")
    files.rmdir(tmp_path / "d")

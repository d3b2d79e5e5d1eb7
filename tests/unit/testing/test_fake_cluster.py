"""FakeCluster answers over real gRPC with Kafka's rules, and its faults do what they say."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import grpc
import pytest

from tidelog.testing import FakeCluster
from tidelog.v1 import admin_service_pb2 as admin
from tidelog.v1 import log_service_pb2 as pb
from tidelog.v1.admin_service_pb2_grpc import AdminServiceStub
from tidelog.v1.log_service_pb2_grpc import LogServiceStub
from tidelog.v1.metadata_record_pb2 import CONFIG_RESOURCE_TYPE_TOPIC
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.records import RecordBatchBuilder, read_records, validate_batch
from tidelog_foundation.transport.channels import CHANNEL_OPTIONS


class Node:
    """Plain blocking stubs: the fake is tested without our clients."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.channel = grpc.insecure_channel(cluster.bootstrap_servers, options=CHANNEL_OPTIONS)
        self.log = LogServiceStub(self.channel)
        self.admin = AdminServiceStub(self.channel)

    def produce(self, topic: str, partition: int, records: bytes) -> pb.ProducePartitionResult:
        response = self.log.Produce(produce_request(topic, partition, records), timeout=5)
        return response.topics[0].partitions[0]

    def fetch(self, topic: str, partition: int, offset: int, **options: object) -> pb.FetchPartitionResult:
        response = self.log.Fetch(fetch_request(topic, partition, offset, **options), timeout=5)
        return response.topics[0].partitions[0]

    def list_offset(self, topic: str, partition: int, timestamp_ms: int) -> pb.ListOffsetsPartitionResult:
        item = pb.ListOffsetsPartition(index=partition, timestamp_ms=timestamp_ms)
        topics = [pb.ListOffsetsTopic(name=topic, partitions=[item])]
        return self.log.ListOffsets(pb.ListOffsetsRequest(topics=topics), timeout=5).topics[0].partitions[0]


@pytest.fixture
def node() -> Iterator[Node]:
    with FakeCluster() as cluster:
        node = Node(cluster)
        with node.channel:
            yield node


def batch_of(*values: bytes, timestamp_ms: int = 1_000) -> bytes:
    builder = RecordBatchBuilder()
    for i, value in enumerate(values):
        builder.append(None, value, (), timestamp_ms + i)
    return builder.build()


def produce_request(topic: str, partition: int, records: bytes) -> pb.ProduceRequest:
    item = pb.ProducePartition(index=partition, records=records)
    return pb.ProduceRequest(acks=pb.ACKS_ALL, topics=[pb.ProduceTopic(name=topic, partitions=[item])])


def fetch_request(
    topic: str,
    partition: int,
    offset: int,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    cluster_id: str = "",
    leader_epoch: int | None = None,
) -> pb.FetchRequest:
    item = pb.FetchPartition(
        index=partition, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=leader_epoch
    )
    return pb.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        cluster_id=cluster_id,
        topics=[pb.FetchTopic(name=topic, partitions=[item])],
    )


def test_fake_cluster_starts_quickly() -> None:
    with FakeCluster():
        pass
    began = time.monotonic()
    with FakeCluster() as cluster:
        took_ms = (time.monotonic() - began) * 1000
        assert cluster.bootstrap_servers.startswith("127.0.0.1:")
    assert took_ms < 500, "100 ms on an idle machine"


def test_produce_assigns_offsets_and_fetch_returns_the_batches(node: Node) -> None:
    node.cluster.create_topic("t", partitions=2)
    assert node.produce("t", 1, batch_of(b"a", b"b")).base_offset == 0
    assert node.produce("t", 1, batch_of(b"c")).base_offset == 2
    result = node.fetch("t", 1, 1)
    assert not result.HasField("error")
    header = validate_batch(result.records)
    assert [r.value for r in read_records(result.records)] == [b"a", b"b"], "the whole batch that holds offset 1"
    assert (header.base_offset, result.high_watermark, result.log_start_offset) == (0, 3, 0)
    assert [r.offset for r in node.cluster.records("t", 1)] == [0, 1, 2]
    node.cluster.check_invariants()


def test_produce_refuses_corrupt_and_large_batches(node: Node) -> None:
    node.cluster.create_topic("t", configs={"max.message.bytes": "200"})
    torn = bytearray(batch_of(b"a"))
    torn[-1] ^= 1
    assert node.produce("t", 0, bytes(torn)).error.code == ErrorCode.CORRUPT_MESSAGE.code
    assert node.produce("t", 0, batch_of(b"x" * 300)).error.code == ErrorCode.MESSAGE_TOO_LARGE.code
    assert node.produce("t", 1, batch_of(b"a")).error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
    assert node.cluster.end_offset("t") == 0


def test_produce_stamps_append_time_where_the_topic_asks(node: Node) -> None:
    node.cluster.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
    result = node.produce("t", 0, batch_of(b"a", timestamp_ms=5))
    [record] = node.cluster.records("t")
    assert record.timestamp_ms == result.log_append_time_ms > 5
    assert record.timestamp_type == 1


def test_produce_stream_answers_each_request_in_order(node: Node) -> None:
    node.cluster.create_topic("t")
    requests = [
        pb.ProduceStreamRequest(correlation_id=7 + i, request=produce_request("t", 0, batch_of(b"a"))) for i in range(3)
    ]
    responses = list(node.log.ProduceStream(iter(requests), timeout=5))
    assert [r.correlation_id for r in responses] == [7, 8, 9]
    assert [r.response.topics[0].partitions[0].base_offset for r in responses] == [0, 1, 2]


def test_fetch_waits_for_records_then_answers_at_once(node: Node) -> None:
    node.cluster.create_topic("t")
    timer = threading.Timer(0.2, node.cluster.append, ("t", 0, batch_of(b"late")))
    timer.start()
    began = time.monotonic()
    result = node.fetch("t", 0, 0, max_wait_ms=4_000)
    assert [r.value for r in read_records(result.records)] == [b"late"]
    assert 0.1 < time.monotonic() - began < 3
    timer.join()


def test_fetch_answers_empty_after_max_wait(node: Node) -> None:
    node.cluster.create_topic("t")
    began = time.monotonic()
    assert node.fetch("t", 0, 0, max_wait_ms=100).records == b""
    assert time.monotonic() - began >= 0.1


def test_fetch_returns_at_least_one_batch_beyond_max_bytes(node: Node) -> None:
    node.cluster.create_topic("t")
    for _ in range(2):
        node.produce("t", 0, batch_of(b"x" * 100))
    records = node.fetch("t", 0, 0, max_bytes=10).records
    assert [r.offset for r in read_records(records)] == [0]


@pytest.mark.parametrize("offset", [1, 6])
def test_fetch_outside_of_the_log_is_out_of_range(node: Node, offset: int) -> None:
    node.cluster.create_topic("t")
    node.produce("t", 0, batch_of(b"a", b"b", b"c", b"d", b"e"))
    node.cluster.delete_records("t", 0, 2)
    assert node.fetch("t", 0, offset, max_wait_ms=5_000).error.code == ErrorCode.OFFSET_OUT_OF_RANGE.code
    assert [r.offset for r in node.cluster.records("t")] == [2, 3, 4]
    assert not node.fetch("t", 0, 5).HasField("error")


def test_fetch_with_another_cluster_id_fails_the_call(node: Node) -> None:
    node.cluster.create_topic("t")
    with pytest.raises(grpc.RpcError) as raised:
        node.fetch("t", 0, 0, cluster_id="another")
    assert dict(raised.value.trailing_metadata())["tidelog-error-code"] == str(ErrorCode.INCONSISTENT_CLUSTER_ID.code)
    assert not node.fetch("t", 0, 0, cluster_id=node.cluster.cluster_id).HasField("error")


def test_leader_epochs_fence_and_give_end_offsets(node: Node) -> None:
    node.cluster.create_topic("t")
    node.produce("t", 0, batch_of(b"a", b"b"))
    assert node.cluster.elect_leader("t", 0) == 1
    node.produce("t", 0, batch_of(b"c"))
    fenced = node.fetch("t", 0, 0, leader_epoch=0)
    assert (fenced.error.code, fenced.current_leader.leader_epoch) == (ErrorCode.FENCED_LEADER_EPOCH.code, 1)
    assert node.fetch("t", 0, 0, leader_epoch=2).error.code == ErrorCode.UNKNOWN_LEADER_EPOCH.code
    assert [(e, node_end_of_epoch(node, e)) for e in (0, 1, 2)] == [(0, (0, 2)), (1, (1, 3)), (2, (-1, -1))]
    assert node.list_offset("t", 0, -1).leader_epoch == 1


def node_end_of_epoch(node: Node, epoch: int) -> tuple[int, int]:
    item = pb.OffsetForLeaderPartition(index=0, leader_epoch=epoch)
    request = pb.OffsetForLeaderEpochRequest(topics=[pb.OffsetForLeaderTopic(name="t", partitions=[item])])
    result = node.log.OffsetForLeaderEpoch(request, timeout=5).topics[0].partitions[0]
    return result.leader_epoch, result.end_offset


@pytest.mark.parametrize(
    ("timestamp_ms", "expected"),
    [
        *((-1, (4, -1)), (-2, (0, -1)), (-3, (3, 2_001)), (-4, (0, -1)), (-5, (-1, -1)), (-6, (-1, -1))),
        *((0, (0, 1_000)), (1_001, (1, 1_001)), (3_000, (-1, -1))),
    ],
)
def test_list_offsets_finds_by_timestamp(node: Node, timestamp_ms: int, expected: tuple[int, int]) -> None:
    node.cluster.create_topic("t")
    node.produce("t", 0, batch_of(b"a", b"b", timestamp_ms=1_000))
    node.produce("t", 0, batch_of(b"c", b"d", timestamp_ms=2_000))
    found = node.list_offset("t", 0, timestamp_ms)
    assert (found.offset, found.timestamp_ms) == expected


def creatable(name: str, **fields: object) -> admin.CreatableTopic:
    return admin.CreatableTopic(**{"name": name, "num_partitions": -1, "replication_factor": -1, **fields})


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (creatable("bad name"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable("n" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable("old_topic"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable("old.topic"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (creatable("t", num_partitions=0), ErrorCode.INVALID_PARTITIONS),
        (creatable("t", replication_factor=3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (creatable("t", assignments=[admin.ReplicaAssignment(broker_ids=[9])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (creatable("t", configs=[{"name": "no.such", "value": "1"}]), ErrorCode.INVALID_CONFIG),
        (creatable("t", configs=[{"name": "segment.bytes", "value": "soon"}]), ErrorCode.INVALID_CONFIG),
    ],
)
def test_create_topics_refuses_what_a_controller_refuses(
    node: Node, wanted: admin.CreatableTopic, code: ErrorCode
) -> None:
    node.cluster.create_topic("old.topic")
    [result] = node.admin.CreateTopics(admin.CreateTopicsRequest(topics=[wanted]), timeout=5).topics
    assert ErrorCode.of(result.error.code) is code
    assert [t.name for t in node.admin.ListTopics(admin.ListTopicsRequest(), timeout=5).topics] == ["old.topic"]


def test_admin_creates_describes_and_deletes(node: Node) -> None:
    configs = [{"name": "segment.bytes", "value": "60000"}]
    request = admin.CreateTopicsRequest(topics=[creatable("t", num_partitions=3, configs=configs)])
    [created] = node.admin.CreateTopics(request, timeout=5).topics
    assert (created.num_partitions, created.replication_factor, len(created.topic_id)) == (3, 1, 16)
    names = admin.DescribeTopicsRequest(topic_names=["t", "u"])
    known, unknown = node.admin.DescribeTopics(names, timeout=5).topics
    assert [p.leader_id for p in known.topic.partitions] == [1, 1, 1]
    assert [(c.name, c.value) for c in known.configs] == [("segment.bytes", "60000")]
    assert unknown.topic.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
    cluster = node.admin.DescribeCluster(admin.DescribeClusterRequest(), timeout=5)
    assert (cluster.cluster_id, cluster.controller_id, len(cluster.brokers)) == ("fake-cluster", 1, 1)
    deletion = admin.DeleteTopicsRequest(topic_names=["t", "u"])
    deleted = {topic.name: topic for topic in node.admin.DeleteTopics(deletion, timeout=5).topics}
    assert deleted["t"].topic_id == created.topic_id
    assert deleted["u"].error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code


def test_get_metadata_creates_topics_only_when_told(node: Node) -> None:
    request = pb.GetMetadataRequest(topics=["t"], allow_auto_topic_creation=True)
    [topic] = node.log.GetMetadata(request, timeout=5).topics
    assert topic.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
    with FakeCluster(auto_create_topics=True, default_partitions=4) as cluster:
        creating = Node(cluster)
        with creating.channel:
            deadline = time.monotonic() + 10
            while not (partitions := creating.log.GetMetadata(request, timeout=5).topics[0].partitions):
                assert time.monotonic() < deadline
            assert len(partitions) == 4


def test_describe_producers_tells_who_writes_with_an_id(node: Node) -> None:
    node.cluster.create_topic("t")
    builder = RecordBatchBuilder()
    builder.append(None, b"v", (), 1_000)
    node.produce("t", 0, batch_of(b"a"))
    node.produce("t", 0, builder.build(7, 2, 5))
    topics = [pb.DescribeProducersTopic(name="t", partitions=[0, 9])]
    response = node.log.DescribeProducers(pb.DescribeProducersRequest(topics=topics), timeout=5)
    found, unknown = response.topics[0].partitions
    [state] = found.active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (7, 2, 5)
    assert (state.coordinator_epoch, state.current_txn_start_offset) == (-1, -1)
    assert unknown.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code


def test_fail_next_fails_items_so_many_times(node: Node) -> None:
    node.cluster.create_topic("t")
    node.cluster.fail_next("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, times=2)
    codes = [node.produce("t", 0, batch_of(b"a")).error.code for _ in range(3)]
    assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS.code] * 2 + [0]
    assert node.cluster.end_offset("t") == 1
    assert node.cluster.calls("Produce") == 3


def test_fail_next_applied_loses_only_the_answer(node: Node) -> None:
    node.cluster.create_topic("t")
    node.cluster.fail_next("Produce", ErrorCode.REQUEST_TIMED_OUT, applied=True)
    assert node.produce("t", 0, batch_of(b"a")).error.code == ErrorCode.REQUEST_TIMED_OUT.code
    node.cluster.fail_next("Produce", ErrorCode._TRANSPORT, applied=True)
    with pytest.raises(grpc.RpcError) as raised:
        node.produce("t", 0, batch_of(b"b"))
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert [r.value for r in node.cluster.records("t")] == [b"a", b"b"]


def test_fail_next_refuses_unknown_apis() -> None:
    with pytest.raises(ValueError, match="unknown API 'Consume'; one of Produce"):
        FakeCluster().fail_next("Consume", ErrorCode.REQUEST_TIMED_OUT)


def test_pause_holds_calls_until_resume(node: Node) -> None:
    node.cluster.create_topic("t")
    node.cluster.pause()
    call = node.log.Produce.future(produce_request("t", 0, batch_of(b"a")), timeout=5)
    with pytest.raises(grpc.RpcError) as raised:
        node.log.GetMetadata(pb.GetMetadataRequest(), timeout=0.1)
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert not call.done()
    node.cluster.resume()
    assert call.result().topics[0].partitions[0].base_offset == 0


def test_restart_keeps_address_and_records(node: Node) -> None:
    cluster = node.cluster
    cluster.create_topic("t")
    node.produce("t", 0, batch_of(b"a"))
    before = cluster.bootstrap_servers
    call = node.log.Fetch.future(fetch_request("t", 0, 1, max_wait_ms=30_000), timeout=40)
    cluster.stop()
    assert call.exception(timeout=5) is not None
    cluster.start()
    assert cluster.bootstrap_servers == before
    with grpc.insecure_channel(before, options=CHANNEL_OPTIONS) as channel:
        response = LogServiceStub(channel).Fetch(fetch_request("t", 0, 0), timeout=5, wait_for_ready=True)
    assert [r.value for r in read_records(response.topics[0].partitions[0].records)] == [b"a"]


def test_create_topic_raises_the_controllers_error() -> None:
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        with pytest.raises(TidelogError, match="TOPIC_ALREADY_EXISTS: Topic 't' already exists"):
            cluster.create_topic("t")


def test_delete_topics_takes_ids_too(node: Node) -> None:
    node.cluster.create_topic("t")
    [topic] = node.admin.ListTopics(admin.ListTopicsRequest()).topics
    request = admin.DeleteTopicsRequest(topic_ids=[topic.topic_id, b"?" * 16])
    topics = {found.topic_id: found for found in node.admin.DeleteTopics(request).topics}
    deleted, unknown = topics[topic.topic_id], topics[b"?" * 16]
    assert (deleted.name, deleted.topic_id, deleted.HasField("error")) == ("t", topic.topic_id, False)
    assert (unknown.name, unknown.topic_id) == ("", b"?" * 16)
    assert ErrorCode.of(unknown.error.code) is ErrorCode.UNKNOWN_TOPIC_ID
    assert not node.admin.ListTopics(admin.ListTopicsRequest()).topics


def test_settings_that_a_replacement_does_not_name_are_removed(node: Node) -> None:
    node.cluster.create_topic("t")
    resource = admin.ConfigResourceName(type=CONFIG_RESOURCE_TYPE_TOPIC, name="t")

    def change(replaces_all: bool, **settings: str) -> dict[str, str]:
        operations = [admin.ConfigOperation(name=n.replace("_", "."), value=v) for n, v in settings.items()]
        wanted = admin.ConfigResourceChange(resource=resource, operations=operations, replaces_all=replaces_all)
        request = admin.IncrementalAlterConfigsRequest(resources=[wanted])
        [result] = node.admin.IncrementalAlterConfigs(request).resources
        assert not result.HasField("error")
        [topic] = node.admin.DescribeTopics(admin.DescribeTopicsRequest(topic_names=["t"])).topics
        return {c.name: c.value for c in topic.configs}

    assert change(False, retention_ms="1", segment_ms="2") == {"retention.ms": "1", "segment.ms": "2"}
    assert change(True, segment_ms="3") == {"segment.ms": "3"}
    assert change(True) == {}

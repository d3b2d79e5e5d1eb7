"""Storage nodes as real processes behind one controller: produce, fetch, refuse, survive SIGKILL."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from tidelog.testing import LocalCluster
from tidelog.v1 import admin_service_pb2 as admin_pb
from tidelog.v1 import log_service_pb2 as pb
from tidelog.v1.admin_service_pb2_grpc import AdminServiceStub
from tidelog.v1.log_service_pb2_grpc import LogServiceStub
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.records import RecordBatchBuilder, read_records


def make_batch(*values: bytes) -> bytes:
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(None, value, [], 1_000)
    return builder.build()


class NodeClient:
    """One channel to one node, blocking."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address)
        self.log: Any = LogServiceStub(self.channel)
        self.admin: Any = AdminServiceStub(self.channel)

    def create_topic(self, name: str, partitions: int = 1, replicas: int = 1, **configs: str) -> None:
        topic = admin_pb.CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
        for key, value in configs.items():
            topic.configs.add(name=key.replace("_", "."), value=value)
        response = self.admin.CreateTopics(admin_pb.CreateTopicsRequest(topics=[topic], timeout_ms=5_000), timeout=10)
        assert not response.topics[0].HasField("error"), response.topics[0].error.message

    def produce(self, topic: str, records: bytes) -> pb.ProducePartitionResult:
        response = self.log.Produce(produce_request(topic, records), timeout=10)
        result: pb.ProducePartitionResult = response.topics[0].partitions[0]
        return result

    def fetch(self, topic: str, offset: int = 0) -> list[bytes]:
        partition = pb.FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 20)
        request = pb.FetchRequest(
            max_wait_ms=1_000,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[pb.FetchTopic(name=topic, partitions=[partition])],
        )
        result = self.log.Fetch(request, timeout=10).topics[0].partitions[0]
        assert not result.HasField("error"), result.error.message
        return [bytes(r.value or b"") for r in read_records(result.records)] if result.records else []


def produce_request(topic: str, records: bytes) -> pb.ProduceRequest:
    partition = pb.ProducePartition(index=0, records=records)
    return pb.ProduceRequest(
        acks=pb.ACKS_ALL, timeout_ms=5_000, topics=[pb.ProduceTopic(name=topic, partitions=[partition])]
    )


@contextlib.contextmanager
def client_of(cluster: LocalCluster, node_id: int) -> Iterator[NodeClient]:
    client = NodeClient(cluster.nodes[node_id].address)
    with client.channel:
        yield client


def wait_until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.05)


@pytest.fixture
def small_cluster() -> Iterator[LocalCluster]:
    with LocalCluster(controllers=1, nodes=1) as running:
        yield running


def test_node_keeps_what_it_acknowledged_over_a_kill(small_cluster: LocalCluster) -> None:
    with client_of(small_cluster, 1) as client:
        client.create_topic("t")
        assert client.produce("t", make_batch(b"a", b"b")).base_offset == 0
        assert client.fetch("t") == [b"a", b"b"]

        corrupt = bytearray(make_batch(b"c" * 40))
        corrupt[-5] ^= 1
        assert client.produce("t", bytes(corrupt)).error.code == ErrorCode.CORRUPT_MESSAGE.code
        assert client.produce("nope", make_batch(b"x")).error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
        assert client.produce("t", make_batch(b"c")).base_offset == 2

    small_cluster.nodes[1].kill()
    small_cluster.nodes[1].start()
    small_cluster.wait_ready()
    with client_of(small_cluster, 1) as client:
        wait_until(lambda: small_cluster.leader("t", 0) == 1)
        assert client.fetch("t") + client.fetch("t", 2) == [b"a", b"b", b"c"]
        assert client.produce("t", make_batch(b"d")).base_offset == 3


def test_produce_stream_appends_in_order_and_answers_each(small_cluster: LocalCluster) -> None:
    with client_of(small_cluster, 1) as client:
        client.create_topic("t")
        requests = [
            pb.ProduceStreamRequest(correlation_id=i, request=produce_request("t", make_batch(b"%d" % i)))
            for i in range(50)
        ]
        responses = {r.correlation_id: r.response for r in client.log.ProduceStream(iter(requests), timeout=20)}

        assert [responses[i].topics[0].partitions[0].base_offset for i in range(50)] == list(range(50))


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_processes")
def test_nodes_replicate_and_lose_nothing_when_the_leader_is_killed() -> None:
    with LocalCluster(controllers=1, nodes=3) as cluster:
        with client_of(cluster, 1) as client:
            client.create_topic("t", replicas=3, min_insync_replicas="2")
        old = cluster.leader("t", 0)
        assert old is not None
        with client_of(cluster, old) as client:
            for i in range(20):
                result = client.produce("t", make_batch(b"%d" % i))
                assert not result.HasField("error"), result.error.message

        cluster.nodes[old].kill()
        wait_until(lambda: cluster.leader("t", 0) not in (None, old))
        new = cluster.leader("t", 0)
        assert new is not None
        with client_of(cluster, new) as client:
            assert client.produce("t", make_batch(b"20")).base_offset == 20

            cluster.nodes[old].start()
            cluster.wait_ready()
            wait_until(lambda: len(isr_of(client)) == 3)
            read: list[bytes] = []
            while len(read) < 21:
                read += client.fetch("t", len(read))
        assert read == [b"%d" % i for i in range(21)]


def isr_of(client: NodeClient) -> list[int]:
    topic = client.log.GetMetadata(pb.GetMetadataRequest(topics=["t"]), timeout=5).topics[0]
    return list(topic.partitions[0].isr_nodes)


def test_stop_is_controlled_and_leaves_nothing_to_recover() -> None:
    with LocalCluster(controllers=1, nodes=2) as cluster:
        with client_of(cluster, 1) as client:
            client.create_topic("t", replicas=2)
        leader = cluster.leader("t", 0)
        assert leader is not None
        with client_of(cluster, leader) as client:
            client.produce("t", make_batch(b"a"))
        cluster.nodes[leader].terminate()
        assert cluster.nodes[leader].wait(15) == 0
        assert cluster.leader("t", 0) == 3 - leader
        assert (cluster.nodes[leader].directory / "data" / ".kafka_cleanshutdown").exists()

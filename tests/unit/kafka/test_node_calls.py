"""The contract of the calls between nodes for transactions and cluster links, over gRPC and over the Kafka listener."""

import asyncio
import contextlib

import pytest

from tests.support.node_listeners import grpc_listener, kafka_listener
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.records import iter_headers, read_control
from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_node import handlers
from tidelog_node.handlers.node_calls import NodeMarkerSender
from tidelog_node.handlers.offsets import LATEST
from tidelog_node.handlers.requests.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog_node.handlers.requests.transactions import WritableTxnMarker, WriteTxnMarkersRequest
from tidelog_node.kafka.apis.registry import all_apis
from tidelog_node.kafka.client.node_calls import KafkaNodeCalls
from tidelog_node.server.grpc_node_calls import GrpcNodeCalls
from tidelog_node.transactions.events import WriteMarkers
from tidelog_node.transactions.markers import MarkersRequest, PartitionMarkers
from tidelog_node.transactions.states import Producer


@contextlib.asynccontextmanager
async def over_grpc(context):
    calls = GrpcNodeCalls()
    async with grpc_listener(context) as address:
        try:
            yield calls, address
        finally:
            await calls.close()


@contextlib.asynccontextmanager
async def over_kafka(context):
    calls = KafkaNodeCalls("node-2-transactions")
    async with kafka_listener(context, all_apis()) as address:
        try:
            yield calls, address
        finally:
            await calls.close()


@pytest.fixture(params=[over_grpc, over_kafka], ids=["grpc", "kafka"])
def serving(request):
    return request.param


def markers_in(partition):
    records = partition.log.read(0, 1 << 20, partition.log.log_end_offset)
    found = [read_control(records, position) for position, _ in iter_headers(records)]
    return [(c.producer_id, c.producer_epoch, c.coordinator_epoch) for c in found if c is not None]


def test_markers_reach_the_leader_and_errors_come_back(cluster_of, serving):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            async with serving(cluster.nodes[1].context) as (calls, address):
                marker = WritableTxnMarker(7, 1, False, (TopicPartitions("t", (0, 5)),), 2, 2)
                response = await calls.write_txn_markers(address, WriteTxnMarkersRequest((marker,)), 5)
                [result] = response.markers
                [topic] = result.topics
                assert (result.producer_id, topic.name) == (7, "t")
                assert [(p.index, p.error and p.error.code) for p in topic.partitions] == [
                    (0, None),
                    (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                ]
            assert markers_in(cluster.partition(1)) == [(7, 1, 2)]

    asyncio.run(run())


def test_transaction_version_reaches_the_leader(cluster_of, serving):
    """A leader refuses a repeated marker of transaction version 2 in the next transaction, so it must know it."""

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            async with serving(cluster.nodes[1].context) as (calls, address):
                versions = []

                def record(batch, version):
                    versions.append(version)
                    return append(batch, version)

                partition = cluster.partition(1)
                append, partition.append_marker = partition.append_marker, record
                marker = WritableTxnMarker(7, 1, False, (TopicPartitions("t", (0,)),), 2, 2)
                await calls.write_txn_markers(address, WriteTxnMarkersRequest((marker,)), 5)
                assert versions == [2]

    asyncio.run(run())


def test_call_fails_when_nobody_listens(cluster_of, serving):
    async def run():
        async with cluster_of(1) as cluster:
            async with serving(cluster.nodes[1].context) as (calls, address):
                pass
            with pytest.raises(TidelogError):
                await calls.write_txn_markers(address, WriteTxnMarkersRequest(), 5)

    asyncio.run(run())


class _Calls:
    """Calls to nodes of the same process, by the port of their address."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.asked = []

    async def write_txn_markers(self, address, request, timeout_s):
        self.asked.append(address)
        return await handlers.write_txn_markers(self.cluster.nodes[int(address.rpartition(":")[2])].context, request)


def request_to(node_id, *partitions):
    markers = WriteMarkers("a", Producer(7, 1), True, frozenset(partitions), 2)
    return MarkersRequest(1, node_id, (PartitionMarkers(5, markers, 4, tuple(partitions)),))


def test_sender_writes_to_its_own_partitions_without_a_call_and_to_others_by_their_address(cluster_of):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            calls = _Calls(cluster)
            for node_id in (1, 2):
                sender = NodeMarkerSender(cluster.nodes[node_id].context, calls)
                results = await sender.send(request_to(1, ("t", 0), ("t", 3)))
                assert results == {
                    (5, ("t", 0)): ErrorCode.NONE,
                    (5, ("t", 3)): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                }
            assert calls.asked == ["node:1"]
            assert markers_in(cluster.partition(1)) == [(7, 1, 4)] * 2

    asyncio.run(run())


def test_sender_fails_for_a_node_without_an_address(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            sender = NodeMarkerSender(cluster.nodes[1].context, _Calls(cluster))
            with pytest.raises(TidelogError) as failed:
                await sender.send(request_to(9, ("t", 0)))
            assert failed.value.code is ErrorCode.BROKER_NOT_AVAILABLE

    asyncio.run(run())


def test_ends_of_partitions_come_from_their_leader_and_errors_with_them(cluster_of, serving):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            await cluster.produce(1, b"a", b"b")
            async with serving(cluster.nodes[1].context) as (calls, address):
                partitions = tuple(ListOffsetsPartition(index, LATEST) for index in (0, 5))
                request = ListOffsetsRequest((ListOffsetsTopic("t", partitions),))
                [topic] = (await calls.list_offsets(address, request, 5)).topics
                assert [(p.index, p.offset, p.error and p.error.code) for p in topic.partitions] == [
                    (0, 2, None),
                    (5, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                ]

    asyncio.run(run())

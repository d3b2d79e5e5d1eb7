"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords, InitProducerId and DescribeProducers on real partitions."""

import asyncio
import dataclasses

import grpc.aio
import pytest

from tests.support.transactional_appends import append_verified
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.records import ControlType, RecordBatchBuilder, control_batch
from tidelog_foundation.transport.budget import ByteBudget
from tidelog_foundation.transport.intake import Charge, Intake
from tidelog_node.kafka.apis.registry import all_apis
from tidelog_node.kafka.protocol.codec import decode, encode
from tidelog_node.kafka.protocol.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog_node.kafka.protocol.messages.producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TopicRequest,
)
from tidelog_node.kafka.protocol.reader import Reader
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.kafka.served import Caller, KafkaNode, Request
from tidelog_node.server.log_service import log_service
from tidelog_node.shards.events import ClientIdentity

from tidelog.v1.log_service_pb2_grpc import LogServiceStub  # isort: skip

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
NEWEST = 11


async def ask(context, request, response_kind, version):
    """Send a request through its API's own bytes, and read the response's."""
    writer = Writer()
    encode(request, writer, version)
    frame = memoryview(bytearray(b"".join(writer.chunks())))
    api = all_apis()[request.API_KEY]
    assert api.versions[0] <= version <= api.versions[1]
    caller = Caller("PLAINTEXT", ClientIdentity("client", "host"), version)
    body = await api.begin(KafkaNode(context, None), Request(caller, 1, Reader(frame)))
    reader = Reader(memoryview(b"".join(body)))
    response = decode(response_kind, reader, version)
    assert reader.remaining == 0
    return response


async def list_offsets(node, *asked, version=NEWEST, topic="t", isolation_level=0):
    """Return (error, offset, timestamp, leader epoch) of each (partition, time) or (partition, time, leader epoch)."""
    items = [ListOffsetsPartition(i, *reversed(rest)) if len(rest) == 2 else partition(i, *rest) for i, *rest in asked]
    request = ListOffsetsRequest(-1, isolation_level, [ListOffsetsTopic(topic, items)])
    response = await ask(node.context, request, ListOffsetsResponse, version)
    [results] = response.topics
    assert results.name == topic
    return [
        (ErrorCode.of(r.error_code).name, r.offset, r.timestamp, r.leader_epoch)
        for r in sorted(results.partitions, key=lambda r: r.partition_index)
    ]


def partition(index, timestamp):
    return ListOffsetsPartition(index, timestamp=timestamp)


def batch(*timestamps, producer_id=-1, sequence=-1, transactional=False):
    builder = RecordBatchBuilder()
    for timestamp in timestamps:
        builder.append(None, b"v", [], timestamp)
    epoch = -1 if producer_id < 0 else 3
    return builder.build(producer_id, epoch, sequence, is_transactional=transactional)


def test_list_offsets_finds_places_and_times(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            node, log = cluster.nodes[1], cluster.partition(1)
            log.append(batch(1_000, 3_000, 2_000), True)
            log.append(batch(2_500), True)
            await log.delete_records(1)
            for time, found in {
                LATEST: ("NONE", 4, -1, 0),
                EARLIEST: ("NONE", 1, -1, 0),
                MAX_TIMESTAMP: ("NONE", 1, 3_000, 0),
                EARLIEST_LOCAL: ("NONE", 1, -1, 0),
                LATEST_TIERED: ("NONE", -1, -1, -1),
                EARLIEST_PENDING_UPLOAD: ("NONE", -1, -1, -1),
                2_400: ("NONE", 1, 3_000, 0),
                9_000: ("NONE", -1, -1, -1),
                -7: ("UNSUPPORTED_VERSION", -1, -1, -1),
            }.items():
                assert await list_offsets(node, (0, time)) == [found], time

    asyncio.run(run())


def test_list_offsets_knows_each_place_from_its_version_on(cluster_of):
    since = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            for version in range(1, NEWEST + 1):
                for time, first in since.items():
                    [(code, *_)] = await list_offsets(cluster.nodes[1], (0, time), version=version)
                    assert code == ("NONE" if version >= first else "UNSUPPORTED_VERSION"), (version, time)

    asyncio.run(run())


def test_list_offsets_refuses_what_is_named_twice_and_answers_the_rest(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=2)
            node = cluster.nodes[1]
            refused, found = ("INVALID_REQUEST", -1, -1, -1), ("NONE", 0, -1, 0)
            assert await list_offsets(node, (0, LATEST), (1, LATEST), (0, EARLIEST)) == [refused, refused, found]
            assert await list_offsets(node, (0, LATEST), isolation_level=7) == [refused]
            unknown = ("UNKNOWN_TOPIC_OR_PARTITION", -1, -1, -1)
            assert await list_offsets(node, (0, LATEST), (5, LATEST)) == [found, unknown]
            assert await list_offsets(node, (0, LATEST), topic="u") == [unknown]

    asyncio.run(run())


def test_list_offsets_checks_the_leader_epoch_and_who_leads(cluster_of):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            node = cluster.nodes[1]
            assert await list_offsets(node, (0, LATEST, 0)) == [("NONE", 0, -1, 0)]
            assert (await list_offsets(node, (0, LATEST, 5)))[0][0] == "UNKNOWN_LEADER_EPOCH"
            assert (await list_offsets(cluster.nodes[2], (0, LATEST)))[0][0] == "NOT_LEADER_OR_FOLLOWER"
            await cluster.elect(2)
            await cluster.elect(1)
            assert (await list_offsets(node, (0, LATEST, 0)))[0][0] == "FENCED_LEADER_EPOCH"

    asyncio.run(run())


def test_list_offsets_of_a_new_leader_says_that_it_does_not_know_in_the_versions_words(cluster_of, make_batch):
    async def run():
        async with cluster_of(1, 2, min_isr=2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            cluster.transport.cut_off.add(2)
            cluster.partition(1).append(make_batch(b"a"), True)
            # A leader epoch that begins above the high watermark (KIP-207).
            await cluster.elect(-1)
            await cluster.elect(1)
            [(code, *_)] = await list_offsets(cluster.nodes[1], (0, LATEST), version=5)
            assert code == "OFFSET_NOT_AVAILABLE"
            [(code, *_)] = await list_offsets(cluster.nodes[1], (0, LATEST), version=4)
            assert code == "LEADER_NOT_AVAILABLE"

    asyncio.run(run())


def test_list_offsets_reads_committed_up_to_the_last_stable_offset(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            log = cluster.partition(1)
            log.append(batch(1_000), True)
            append_verified(log, batch(2_000, producer_id=7, sequence=0, transactional=True), True)
            assert await list_offsets(cluster.nodes[1], (0, LATEST), isolation_level=1) == [("NONE", 1, -1, 0)]
            assert await list_offsets(cluster.nodes[1], (0, LATEST), isolation_level=0) == [("NONE", 2, -1, 0)]
            assert await list_offsets(cluster.nodes[1], (0, LATEST), isolation_level=0, version=1) == [
                ("NONE", 2, -1, -1)
            ]

    asyncio.run(run())


@pytest.mark.parametrize("version", [2, 3, 4])
def test_offset_for_leader_epoch_tells_where_epochs_end(cluster_of, make_batch, version):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2), partitions=2)
            cluster.partition(1).append(make_batch(b"a", b"b"), False)
            asked = [(0, -1, 0), (0, -1, 4), (1, 9, 0), (7, -1, 0)]
            items = [OffsetForLeaderPartition(*item) for item in asked]
            request = OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic("t", items)])
            response = await ask(cluster.nodes[1].context, request, OffsetForLeaderEpochResponse, version)
            [topic] = response.topics
            found = [
                (r.partition, ErrorCode.of(r.error_code).name, r.leader_epoch, r.end_offset) for r in topic.partitions
            ]
            assert found == [
                (0, "NONE", 0, 2),
                (0, "NONE", -1, -1),
                (1, "UNKNOWN_LEADER_EPOCH", -1, -1),
                (7, "UNKNOWN_TOPIC_OR_PARTITION", -1, -1),
            ]

    asyncio.run(run())


@pytest.mark.parametrize("version", [0, 1, 2])
def test_delete_records_moves_the_start_and_tells_the_low_watermark(cluster_of, make_batch, version):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=3)
            for index in (0, 1):
                cluster.partition(1, index).append(make_batch(b"a", b"b", b"c"), False)
            items = [DeleteRecordsPartition(0, 2), DeleteRecordsPartition(1, -1), DeleteRecordsPartition(2, 1)]
            topics = [
                DeleteRecordsTopic("t", items),
                DeleteRecordsTopic("u", items[:1]),
            ]
            request = DeleteRecordsRequest(topics, 1_000)
            response = await ask(cluster.nodes[1].context, request, DeleteRecordsResponse, version)
            found = [
                (t.name, r.partition_index, ErrorCode.of(r.error_code).name, r.low_watermark)
                for t in response.topics
                for r in t.partitions
            ]
            assert found == [
                ("t", 0, "NONE", 2),
                ("t", 1, "NONE", 3),
                ("t", 2, "OFFSET_OUT_OF_RANGE", -1),
                ("u", 0, "UNKNOWN_TOPIC_OR_PARTITION", -1),
            ]
            assert cluster.partition(1).log.log_start_offset == 2

    asyncio.run(run())


def test_delete_records_takes_a_partition_once_with_the_offset_that_it_is_named_with_last(cluster_of, make_batch):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            cluster.partition(1).append(make_batch(b"a", b"b", b"c"), False)
            named = [DeleteRecordsTopic("t", [DeleteRecordsPartition(0, offset)]) for offset in (3, 99, 1)]
            request = DeleteRecordsRequest([*named, DeleteRecordsTopic("empty", [])], 1_000)
            response = await ask(cluster.nodes[1].context, request, DeleteRecordsResponse, 2)
            [topic] = response.topics
            [result] = topic.partitions
            assert (topic.name, result.partition_index, result.error_code, result.low_watermark) == ("t", 0, 0, 1)
            assert cluster.partition(1).log.log_start_offset == 1

    asyncio.run(run())


class Ids:
    def __init__(self):
        self.next = 4_000

    async def next_id(self):
        if self.next is None:
            raise error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no ids")
        self.next += 1
        return self.next


def test_init_producer_id_gives_ids_and_refuses_what_is_not_served(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            ids = Ids()
            context = dataclasses.replace(cluster.nodes[1].context, producer_ids=ids)

            async def init(version, **fields):
                request = InitProducerIdRequest(**fields)
                response = await ask(context, request, InitProducerIdResponse, version)
                return ErrorCode.of(response.error_code).name, response.producer_id, response.producer_epoch

            assert [await init(version) for version in range(7)] == [("NONE", 4_001 + i, 0) for i in range(7)]
            # One that has an id gets another one (KIP-360).
            assert await init(3, producer_id=4_001, producer_epoch=0) == ("NONE", 4_008, 0)
            assert await init(5, producer_id=4_001) == ("INVALID_REQUEST", -1, -1)
            assert await init(5, producer_epoch=0) == ("INVALID_REQUEST", -1, -1)
            assert await init(5, transactional_id="") == ("INVALID_REQUEST", -1, -1)
            # A node without a coordinator of transactions.
            assert await init(5, transactional_id="x") == ("COORDINATOR_NOT_AVAILABLE", -1, -1)
            ids.next = None
            assert await init(4) == ("COORDINATOR_LOAD_IN_PROGRESS", -1, -1)

    asyncio.run(run())


def test_describe_producers_tells_who_writes_to_a_replica(cluster_of):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2), partitions=2)
            leader = cluster.partition(1)
            leader.append(batch(5_000, 6_000, producer_id=7, sequence=0), False)
            append_verified(leader, batch(8_000, producer_id=9, sequence=4, transactional=True))
            request = DescribeProducersRequest([TopicRequest("t", [0, 1, 5]), TopicRequest("u", [0])])
            response = await ask(cluster.nodes[1].context, request, DescribeProducersResponse, 0)
            found = {
                (t.name, p.partition_index): (ErrorCode.of(p.error_code).name, len(p.active_producers))
                for t in response.topics
                for p in t.partitions
            }
            assert found == {
                ("t", 0): ("NONE", 2),
                ("t", 1): ("NONE", 0),
                ("t", 5): ("UNKNOWN_TOPIC_OR_PARTITION", 0),
                ("u", 0): ("UNKNOWN_TOPIC_OR_PARTITION", 0),
            }
            first, second = sorted(response.topics[0].partitions[0].active_producers, key=lambda s: s.producer_id)
            assert (first.producer_id, first.producer_epoch, first.last_sequence) == (7, 3, 1)
            assert (first.coordinator_epoch, first.current_txn_start_offset) == (-1, -1)
            assert first.last_timestamp >= 6_000
            assert (second.producer_id, second.last_sequence, second.current_txn_start_offset) == (9, 4, 2)
            assert (second.coordinator_epoch, second.last_timestamp >= 8_000) == (-1, True)
            leader.append_marker(control_batch(ControlType.ABORT, 9, 4, 6, 9_000), transaction_version=2)
            response = await ask(cluster.nodes[1].context, request, DescribeProducersResponse, 0)
            [ended] = [p for p in response.topics[0].partitions[0].active_producers if p.producer_id == 9]
            assert (ended.producer_epoch, ended.coordinator_epoch, ended.current_txn_start_offset) == (4, 6, -1)
            assert response.topics[0].partitions[0].error_message is None
            assert "u-0" in response.topics[1].partitions[0].error_message

    asyncio.run(run())


def test_describe_producers_is_served_over_grpc_too(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            cluster.partition(1).append(batch(5_000, producer_id=7, sequence=0), False)
            server = grpc.aio.server()
            budget = ByteBudget(1 << 20)
            log_service(cluster.nodes[1].context, budget).add_to(server, Intake(Charge(budget)))
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                topics = [pb.DescribeProducersTopic(name="t", partitions=[0])]
                request = pb.DescribeProducersRequest(topics=topics)
                response = await LogServiceStub(channel).DescribeProducers(request)
            await server.stop(0)
            [state] = response.topics[0].partitions[0].active_producers
            assert (state.producer_id, state.last_sequence, state.current_txn_start_offset) == (7, 0, -1)

    asyncio.run(run())

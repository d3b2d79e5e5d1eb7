"""Every request that carries a leader epoch is refused when the partition has another one (KIP-320)."""

import asyncio

import pytest

from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_node import handlers
from tidelog_node.handlers.requests import offsets as values
from tidelog_node.kafka.apis.errors import code_of
from tidelog_node.replication import ReplicaSelector
from tidelog_node.server import log_service
from tidelog_quorum.metadata.records import RegisterBrokerRecord

CURRENT = 1
CODES = {
    CURRENT - 1: ErrorCode.FENCED_LEADER_EPOCH.code,
    CURRENT: 0,
    CURRENT + 1: ErrorCode.UNKNOWN_LEADER_EPOCH.code,
    None: 0,
}


def fetch(epoch, **fields):
    item = pb.FetchPartition(index=0, fetch_offset=0, partition_max_bytes=1_000, current_leader_epoch=epoch)
    topic = pb.FetchTopic(name="t", partitions=[item])
    return log_service.fetch, pb.FetchRequest(min_bytes=1, max_bytes=1_000, topics=[topic], **fields)


def consumer_fetch(epoch):
    return fetch(epoch)


def consumer_fetch_in_a_session(epoch):
    return fetch(epoch, session=pb.FetchSession(epoch=0))


def follower_fetch(epoch):
    return fetch(epoch, replica=pb.ReplicaState(replica_id=2, replica_epoch=0))


def closest_replica_fetch(epoch):
    return fetch(epoch, rack_id="rack-2")


def list_offsets(timestamp_ms):
    def make(epoch):
        item = values.ListOffsetsPartition(0, timestamp_ms, epoch)
        return handlers.list_offsets, values.ListOffsetsRequest((values.ListOffsetsTopic("t", (item,)),))

    make.__name__ = f"list_offsets_{timestamp_ms}"
    return make


def offset_for_leader_epoch(epoch):
    topic = values.OffsetForLeaderTopic("t", (values.OffsetForLeaderPartition(0, 0, epoch),))
    return handlers.offset_for_leader_epoch, values.OffsetForLeaderEpochRequest((topic,))


REQUESTS = [
    consumer_fetch,
    consumer_fetch_in_a_session,
    follower_fetch,
    closest_replica_fetch,
    *map(list_offsets, (-1, -2, -3, 5)),
    offset_for_leader_epoch,
]


def test_table_has_every_request_that_carries_the_leader_epoch():
    """Produce and DeleteRecords carry none in Kafka either: a leader of another epoch is as good as another leader."""
    messages = pb.DESCRIPTOR.message_types_by_name.values()
    carrying = {message.name for message in messages if "current_leader_epoch" in message.fields_by_name}
    assert carrying == {"FetchPartition", "ListOffsetsPartition", "OffsetForLeaderPartition"}


@pytest.mark.parametrize("epoch", CODES)
@pytest.mark.parametrize("make", REQUESTS, ids=lambda make: make.__name__)
def test_request_is_refused_with_another_leader_epoch(cluster_of, make, epoch):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            await cluster.elect(1)
            assert cluster.partition(1).state.leader_epoch == CURRENT
            await cluster.produce(1, b"a")
            handle, request = make(epoch)
            result = (await handle(cluster.nodes[1].context, request)).topics[0].partitions[0]
            code = result.error.code if handle is log_service.fetch else code_of(result.error)
            assert code == CODES[epoch]
            if handle is log_service.fetch and epoch is not None and epoch < CURRENT:
                assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (1, CURRENT)

    asyncio.run(run())


@pytest.mark.parametrize("epoch", CODES)
def test_fetch_is_refused_with_another_leader_epoch_by_a_replica_and_for_a_preferred_one(cluster_of, wait_for, epoch):
    async def run():
        async with cluster_of(1, 2) as cluster:
            selector = ReplicaSelector("RackAwareReplicaSelector")
            object.__setattr__(cluster.nodes[1].context, "replica_selector", selector)
            racks = [
                RegisterBrokerRecord(i, b"i" * 16, 0, Endpoint("node", i), rack=f"rack-{i}", fenced=False)
                for i in (1, 2)
            ]
            await cluster.controller.change(*racks)
            await cluster.create_topic(replicas=(1, 2))
            await cluster.elect(1)
            await wait_for(lambda: [i for i, _ in cluster.partition(1).state.leader.in_sync_followers(0)] == [2])
            for node_id in (1, 2):
                _, request = closest_replica_fetch(epoch)
                result = (await log_service.fetch(cluster.nodes[node_id].context, request)).topics[0].partitions[0]
                assert result.error.code == CODES[epoch], node_id
                assert result.HasField("preferred_read_replica") == (node_id == 1 and CODES[epoch] == 0)

    asyncio.run(run())


def test_epoch_in_a_session_is_checked_again_after_an_election(cluster_of):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            _, request = consumer_fetch_in_a_session(0)
            session_id = (await log_service.fetch(cluster.nodes[1].context, request)).session_id
            await cluster.elect(1)
            for number in (1, 2):
                session = pb.FetchSession(id=session_id, epoch=number)
                answer = await log_service.fetch(
                    cluster.nodes[1].context, pb.FetchRequest(max_bytes=1, session=session)
                )
                assert answer.topics[0].partitions[0].error.code == ErrorCode.FENCED_LEADER_EPOCH.code

    asyncio.run(run())

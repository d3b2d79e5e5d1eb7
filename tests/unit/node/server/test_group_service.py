"""The group service of a node: real shards behind real gRPC; and which topics only coordinators write."""

import asyncio
import contextlib
import itertools

import grpc.aio
import pytest

from tidelog.v1 import group_service_pb2 as pb
from tidelog.v1 import log_service_pb2 as log_pb
from tidelog.v1.group_service_pb2_grpc import GroupServiceStub
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.transport import open_channel, server_options
from tidelog_foundation.transport.budget import ByteBudget
from tidelog_foundation.transport.intake import Charge, Intake
from tidelog_foundation.transport.services import host_of
from tidelog_node import handlers
from tidelog_node.coordination import OFFSETS_TOPIC, GroupCoordinator, OffsetsTopicSettings, TransactionCoordinator
from tidelog_node.coordination.coordinator import CoordinatorEnvironment
from tidelog_node.coordination.shard_loader import ShardLoader
from tidelog_node.event_loop import SystemClock
from tidelog_node.groups.settings import GroupSettings
from tidelog_node.groups.shard import GroupShard
from tidelog_node.server import log_service
from tidelog_node.server.services import group_service
from tidelog_node.server.topic_creation import TopicCreation
from tidelog_node.transactions.settings import TransactionSettings
from tidelog_quorum.metadata.records import PartitionChangeRecord

PARTITIONS = 4
NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR.code


@pytest.fixture
def service_of(cluster_of):
    """Return an async context manager: the stub of node 1 of a cluster, which leads all partitions of the groups."""

    @contextlib.asynccontextmanager
    async def start(client_id):
        ids = itertools.count()

        def new_core(store):
            settings = GroupSettings(group_initial_rebalance_delay_ms=0)
            return GroupShard(settings, store, lambda prefix: f"{prefix}-{next(ids)}", SystemClock().wall_ms())

        async with cluster_of(1, 2) as cluster, asyncio.TaskGroup() as tasks:
            node = cluster.nodes[1]
            creation = TopicCreation(None)
            paths = [directory.path for directory in node.directories.online]
            groups = GroupCoordinator(node.registry, node.cache, creation, lambda: paths, new_core, SystemClock())
            task = tasks.create_task(groups.run())
            server = grpc.aio.server(options=server_options())
            environment = CoordinatorEnvironment(node.registry, node.cache, creation, SystemClock())
            transactions = TransactionCoordinator(environment, lambda: paths, TransactionSettings(), None)
            group_service(node.context, groups, transactions).add_to(server, Intake(Charge(ByteBudget(1 << 20))))
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            await cluster.create_topic(OFFSETS_TOPIC, replicas=(1,), partitions=PARTITIONS)
            await cluster.create_topic("t", replicas=(1,), topic_id=b"t" * 16)
            try:
                async with open_channel(f"127.0.0.1:{port}", client_id) as channel:
                    yield GroupServiceStub(channel), groups, cluster
            finally:
                await server.stop(0)
                task.cancel()

    return start


def commit_request(group, offset=5):
    partition = pb.OffsetCommitPartition(index=0, committed_offset=offset)
    return pb.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[pb.OffsetCommitTopic(name="t", partitions=[partition])],
    )


async def commit(stub, group, offset=5):
    """Commit, again while the group is being loaded."""
    while True:
        error = (await stub.OffsetCommit(commit_request(group, offset))).topics[0].partitions[0].error
        if error.code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.code:
            return error.code
        await asyncio.sleep(0.01)


async def join(stub, group, member_id=""):
    return await stub.JoinGroup(
        pb.JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[pb.GroupProtocol(name="range", metadata=b"")],
        )
    )


def test_groups_of_all_shards_are_listed_described_and_deleted_together(service_of):
    async def run():
        async with service_of("app") as (stub, groups, _):
            names = [f"group-{number}" for number in range(12)]
            for name in names:
                assert await commit(stub, name) == 0
            assert len({groups.shard_of(name) for name in names}) == PARTITIONS

            listed = await stub.ListGroups(pb.ListGroupsRequest())
            assert not listed.HasField("error")
            assert [g.group_id for g in listed.groups] == sorted(names)
            described = await stub.DescribeGroups(pb.DescribeGroupsRequest(group_ids=[*names, names[0], ""]))
            assert sorted(g.group_id for g in described.groups) == sorted([*names, ""])
            errors = {g.group_id: g.error.code for g in described.groups if g.HasField("error")}
            assert errors == {"": ErrorCode.GROUP_ID_NOT_FOUND.code}
            nameless = await stub.ConsumerGroupDescribe(pb.ConsumerGroupDescribeRequest(group_ids=[""]))
            assert [g.error.code for g in nameless.groups] == [ErrorCode.INVALID_GROUP_ID.code]

            deleted = await stub.DeleteGroups(pb.DeleteGroupsRequest(group_ids=names))
            assert {g.group_id: g.error.code for g in deleted.groups} == dict.fromkeys(names, 0)
            assert not (await stub.ListGroups(pb.ListGroupsRequest())).groups

    asyncio.run(run())


def test_member_is_described_with_its_client_id_and_host(service_of):
    async def run():
        async with service_of("app-7") as (stub, _, _):
            assert await commit(stub, "g") == 0
            refused = await join(stub, "g")
            assert refused.error.code == ErrorCode.MEMBER_ID_REQUIRED.code
            joined = await join(stub, "g", refused.member_id)
            assert (joined.generation_id, joined.leader) == (1, refused.member_id)
            group = (await stub.DescribeGroups(pb.DescribeGroupsRequest(group_ids=["g"]))).groups[0]
            assert [(m.client_id, m.client_host) for m in group.members] == [("app-7", "/127.0.0.1")]
            assert refused.member_id.startswith("app-7-")

    asyncio.run(run())


def test_errors_of_the_node_are_in_the_responses(service_of):
    async def run():
        async with service_of("app") as (stub, groups, cluster):
            assert await commit(stub, "g") == 0
            lost = PartitionChangeRecord(b"0123456789abcdef", groups.shard_of("g"), leader=-1)
            await cluster.controller.change(lost)
            assert (await join(stub, "g")).error.code == NOT_COORDINATOR
            assert (await stub.SyncGroup(pb.SyncGroupRequest(group_id="g"))).error.code == NOT_COORDINATOR
            assert (await stub.Heartbeat(pb.HeartbeatRequest(group_id="g"))).error.code == NOT_COORDINATOR
            assert (await stub.LeaveGroup(pb.LeaveGroupRequest(group_id="g"))).error.code == NOT_COORDINATOR
            heartbeat = pb.ConsumerGroupHeartbeatRequest(group_id="g", member_id="m")
            assert (await stub.ConsumerGroupHeartbeat(heartbeat)).error.code == NOT_COORDINATOR
            assert await commit(stub, "g") == NOT_COORDINATOR
            fetch = pb.OffsetFetchRequest(groups=[pb.OffsetFetchGroup(group_id="g", all_topics=True)])
            assert [g.error.code for g in (await stub.OffsetFetch(fetch)).groups] == [NOT_COORDINATOR]
            assert (await stub.OffsetDelete(pb.OffsetDeleteRequest(group_id="g"))).error.code == NOT_COORDINATOR
            for call, request in (
                (stub.DescribeGroups, pb.DescribeGroupsRequest(group_ids=["g"])),
                (stub.ConsumerGroupDescribe, pb.ConsumerGroupDescribeRequest(group_ids=["g"])),
                (stub.DeleteGroups, pb.DeleteGroupsRequest(group_ids=["g"])),
            ):
                assert [(g.group_id, g.error.code) for g in (await call(request)).groups] == [("g", NOT_COORDINATOR)]
            assert not (await stub.ListGroups(pb.ListGroupsRequest())).HasField("error")
            assert (await join(stub, "")).error.code == ErrorCode.INVALID_GROUP_ID.code
            found = await stub.FindCoordinator(pb.FindCoordinatorRequest(group_ids=["g", "g" * 32_768]))
            codes = [c.error.code for c in found.coordinators]
            assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE.code, ErrorCode.INVALID_GROUP_ID.code]

    asyncio.run(run())


def test_heartbeat_is_answered_while_its_group_is_being_loaded(service_of, monkeypatch):
    async def run():
        may_load, load = asyncio.Event(), ShardLoader.load

        async def load_later(self, view):
            await may_load.wait()
            return await load(self, view)

        monkeypatch.setattr(ShardLoader, "load", load_later)
        async with service_of("app") as (stub, _, _):
            member = pb.HeartbeatRequest(group_id="g", member_id="m")
            assert not (await stub.Heartbeat(member)).HasField("error")
            assert (await join(stub, "g")).error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.code
            listed = await stub.ListGroups(pb.ListGroupsRequest())
            assert listed.error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.code
            may_load.set()
            assert await commit(stub, "g") == 0
            assert (await stub.Heartbeat(member)).error.code == ErrorCode.UNKNOWN_MEMBER_ID.code

    asyncio.run(run())


def test_clients_cannot_write_to_an_internal_topic(service_of, make_batch):
    async def run():
        async with service_of("app") as (_, _, cluster):
            partition = log_pb.ProducePartition(index=0, records=make_batch(b"x"))
            topics = [log_pb.ProduceTopic(name=OFFSETS_TOPIC, partitions=[partition])]
            response = await log_service.produce(cluster.nodes[1].context, log_pb.ProduceRequest(topics=topics))
            [result] = response.topics[0].partitions
            assert result.error.code == ErrorCode.INVALID_TOPIC_EXCEPTION.code
            assert cluster.nodes[1].registry.get(OFFSETS_TOPIC, 0).log.log_end_offset == 0

    asyncio.run(run())


def test_offsets_topic_is_created_as_the_settings_say():
    topic = OffsetsTopicSettings(50, 3, 104_857_600, 4).creatable()
    assert (topic.name, topic.num_partitions, topic.replication_factor) == (OFFSETS_TOPIC, 50, 3)
    assert {c.name: c.value for c in topic.configs} == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    assert OffsetsTopicSettings(50, 3, 1, 4).compression == "zstd"


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.1:5000", "10.0.0.1"),
        ("ipv6:%5B::1%5D:5000", "::1"),
        ("ipv6:[fe80::2]:1", "fe80::2"),
        ("unix:", ""),
    ],
)
def test_host_is_taken_from_the_name_of_the_peer(peer, host):
    assert host_of(peer) == host


def test_commit_that_is_too_large_for_the_log_says_so_and_is_not_tried_again(service_of):
    async def run():
        async with service_of("app") as (stub, _, _):
            assert await commit(stub, "g") == 0
            request = commit_request("g")
            request.topics[0].partitions[0].committed_metadata = "m" * 4_096
            for _ in range(300):
                request.topics[0].partitions.append(request.topics[0].partitions[0])
            answer = await stub.OffsetCommit(request)
            codes = {partition.error.code for partition in answer.topics[0].partitions}
            assert codes == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE.code}

    asyncio.run(run())


def test_groups_that_are_asked_for_together_are_looked_at_a_few_at_a_time(service_of, monkeypatch):
    monkeypatch.setattr(handlers.groups, "_AT_ONCE", 2)
    monkeypatch.setattr(handlers.group_offsets, "_AT_ONCE", 5)

    async def run():
        async with service_of("app") as (stub, groups, _):
            names = [f"group-{number}" for number in range(12)]
            for name in names:
                assert await commit(stub, name) == 0
            asked = []
            call = groups.call

            async def noted(shard, request, client):
                asked.append(len(getattr(request, "group_ids", ())))
                return await call(shard, request, client)

            monkeypatch.setattr(groups, "call", noted)
            described = await stub.DescribeGroups(pb.DescribeGroupsRequest(group_ids=names))
            assert sorted(group.group_id for group in described.groups) == sorted(names)
            assert (sum(asked), max(asked)) == (12, 2)
            fetch = [pb.OffsetFetchGroup(group_id=name, all_topics=True) for name in names]
            fetched = await stub.OffsetFetch(pb.OffsetFetchRequest(groups=fetch))
            assert [group.group_id for group in fetched.groups] == names
            assert all(group.topics[0].partitions[0].committed_offset == 5 for group in fetched.groups)
            found = await stub.FindCoordinator(pb.FindCoordinatorRequest(group_ids=names))
            assert [coordinator.group_id for coordinator in found.coordinators] == names

    asyncio.run(run())

"""The groups of a node as Kafka clients see them: bytes in, bytes out, with the real coordinator."""

import asyncio
import contextlib
import functools
import itertools
import sys

from tests.unit.node.conftest import InProcessCluster
from tidelog_foundation.config import TopicConfig
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests.addresses import Endpoint, ListenerEndpoint
from tidelog_node.coordination import OFFSETS_TOPIC, GroupCoordinator
from tidelog_node.event_loop import SystemClock
from tidelog_node.groups.messages import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from tidelog_node.groups.settings import GroupSettings
from tidelog_node.groups.shard import GroupShard
from tidelog_node.handlers.group_offsets import offset_commit
from tidelog_node.kafka.apis import group_admin, group_members, group_offsets
from tidelog_node.kafka.protocol.codec import decode, encode
from tidelog_node.kafka.protocol.messages.group_members import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tidelog_node.kafka.protocol.reader import Reader
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.kafka.served import Caller, KafkaNode, Request
from tidelog_node.server.topic_creation import TopicCreation
from tidelog_node.shards.events import ClientIdentity
from tidelog_quorum.metadata.records import PartitionChangeRecord, RegisterBrokerRecord

TOPIC_ID, OTHER_TOPIC_ID, UNKNOWN_TOPIC_ID = b"t" * 16, b"u" * 16, b"x" * 16
OFFSETS_TOPIC_ID = b"0123456789abcdef"
PARTITIONS = 2
_APIS = {api.key: api for module in (group_admin, group_members, group_offsets) for api in module.APIS}


class KafkaGroups:
    """One node that leads all partitions of __consumer_offsets. Topic t has three partitions, u one."""

    def __init__(self, cluster, coordinator):
        self.cluster = cluster
        self.coordinator = coordinator
        self.node = KafkaNode(cluster.nodes[1].context, coordinator)

    async def ask(self, request, version, client="client", listener="PLAINTEXT"):
        """Return the response, after a check that its bytes form exactly one response of the version."""
        writer = Writer()
        encode(request, writer, version)
        reader = Reader(b"".join(writer.chunks()))
        caller = Caller(listener, ClientIdentity(client, "/127.0.0.1"), version)
        body = await _APIS[request.API_KEY].begin(self.node, Request(caller, 1, reader))
        kind = type(request)
        response_kind = getattr(sys.modules[kind.__module__], kind.__name__.replace("Request", "Response"))
        answer = Reader(b"".join(body))
        response = decode(response_kind, answer, version)
        assert not reader.remaining
        assert not answer.remaining
        return response

    async def join(self, version, member_id="", *, instance_id=None, protocols=("range",), group="g", **fields):
        """Send one JoinGroup. Each protocol's metadata contains the version of the request."""
        named = [JoinGroupRequestProtocol(name, b"v%d" % version) for name in protocols]
        request = JoinGroupRequest(group, 10_000, 10_000, member_id, instance_id, "consumer", named)
        for name, value in fields.items():
            setattr(request, name, value)
        return await self.ask(request, version)

    async def join_fully(self, version, **fields):
        """Join, with the id that the coordinator assigns if it requires one."""
        answer = await self.join(version, **fields)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED.code:
            answer = await self.join(version, answer.member_id, **fields)
        return answer

    async def sync(self, version, joined, assignments=None, *, instance_id=None):
        """Send the SyncGroup that follows a JoinGroup's answer."""
        named = [SyncGroupRequestAssignment(m, a) for m, a in (assignments or {}).items()]
        request = SyncGroupRequest(
            "g", joined.generation_id, joined.member_id, instance_id, "consumer", joined.protocol_name, named
        )
        return await self.ask(request, version)

    async def beat(self, version, joined, *, instance_id=None):
        """Return the error code of a Heartbeat."""
        request = HeartbeatRequest("g", joined.generation_id, joined.member_id, instance_id)
        return (await self.ask(request, version)).error_code

    async def leave(self, version, *member_ids, group="g"):
        """Send one LeaveGroup, up to version 2 for one member."""
        members = [MemberIdentity(member_id) for member_id in member_ids]
        return await self.ask(LeaveGroupRequest(group, member_ids[0], members if version >= 3 else []), version)

    async def single_member(self, version=9):
        """Return the JoinGroup answer of the only member of the stable group g, whose assignment is b"all"."""
        joined = await self.join_fully(version)
        await self.sync(min(version, 5), joined, {joined.member_id: b"all"})
        return joined

    async def move_away(self):
        """Remove the leadership of all groups from the node."""
        lost = [PartitionChangeRecord(OFFSETS_TOPIC_ID, index, leader=-1) for index in range(PARTITIONS)]
        await self.cluster.controller.change(*lost)

    async def until(self, ask, *wanted):
        """Repeat a call until its answer is among ``wanted``."""
        async with asyncio.timeout(10):
            while True:
                if await ask() in wanted:
                    return
                await asyncio.sleep(0.005)

    async def wait_until_loaded(self):
        """Wait until the groups of every partition are served by shards with the newest topics."""

        async def commit_nothing(group):
            # A commit for an unknown partition writes nothing.
            topics = (OffsetCommitTopic("u", (OffsetCommitPartition(9, 0),)),)
            asked = OffsetCommitRequest(group, generation_id_or_member_epoch=-1, topics=topics)
            answer = await offset_commit(self.coordinator, asked, ClientIdentity("client", "/127.0.0.1"))
            return answer.topics[0].partitions[0].error.code

        for number in range(10):
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await self.until(functools.partial(commit_nothing, f"group-{number}"), unknown)


@contextlib.asynccontextmanager
async def kafka_groups(path, *, moved_ms=60_000, **settings):
    """Run a :class:`KafkaGroups`; ``settings`` are GroupSettings."""
    settings = {"group_initial_rebalance_delay_ms": 0} | settings
    ids = itertools.count()

    def new_core(store):
        return GroupShard(
            GroupSettings(**settings), store, lambda prefix: f"{prefix}-{next(ids)}", SystemClock().monotonic_ms()
        )

    async with asyncio.TaskGroup() as tasks:
        cluster = InProcessCluster(path, tasks, TopicConfig(min_insync_replicas=1))
        await cluster.start(1)
        node = cluster.nodes[1]
        listeners = (ListenerEndpoint("PLAINTEXT", "kafka", 9092, "PLAINTEXT"),)
        await cluster.controller.change(
            RegisterBrokerRecord(1, b"i" * 16, 0, Endpoint("node", 1), fenced=False, listeners=listeners)
        )
        paths = [directory.path for directory in node.directories.online]
        coordinator = GroupCoordinator(
            node.registry, node.cache, TopicCreation(None), lambda: paths, new_core, SystemClock(), moved_ms=moved_ms
        )
        task = tasks.create_task(coordinator.run())
        groups = KafkaGroups(cluster, coordinator)
        await cluster.create_topic(OFFSETS_TOPIC, replicas=(1,), partitions=PARTITIONS, topic_id=OFFSETS_TOPIC_ID)
        await cluster.create_topic("t", replicas=(1,), partitions=3, topic_id=TOPIC_ID)
        await cluster.create_topic("u", replicas=(1,), topic_id=OTHER_TOPIC_ID)
        try:
            await groups.wait_until_loaded()
            yield groups
        finally:
            task.cancel()
            for each in cluster.nodes.values():
                await each.close()

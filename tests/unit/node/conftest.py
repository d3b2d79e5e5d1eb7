"""Nodes in one process: the real registry, logs and handlers; the wire and the controller are replaced by fakes."""

import asyncio
import contextlib
import inspect
from dataclasses import dataclass, field

import pytest

from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.config import TopicConfig
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.records import RecordBatchBuilder
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.requests.replicas import (
    AlterPartitionItemResult,
    AlterPartitionResponse,
    AlterPartitionTopicResult,
)
from tidelog_node import handlers
from tidelog_node.event_loop import SystemClock
from tidelog_node.handlers import NodeContext
from tidelog_node.partitions import LogManager, MetadataCache, PartitionRegistry, ReplicationThrottles
from tidelog_node.partitions.fetchers.fetcher_pool import FetcherPool
from tidelog_node.partitions.fetchers.leader_fetcher import FetcherSettings, LeaderFetcher
from tidelog_node.partitions.isr_changes import IsrChanges
from tidelog_node.server import log_service
from tidelog_node.server.dynamic_config import DynamicNodeConfig
from tidelog_quorum.metadata.delta import delta_between
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import PartitionChangeRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord

CLUSTER_ID = "test-cluster"
TOPIC_ID = b"0123456789abcdef"
PROPERTIES = {
    "cluster.id": CLUSTER_ID,
    "listeners": "GRPC://127.0.0.1:9092",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "log.dirs": "/not/used",
}


class FakeController:
    """Keeps the image, compares and sets ISRs, and brings every change to the nodes."""

    def __init__(self):
        self.image = MetadataImage()
        self.nodes = {}
        self.refuse_with = None

    async def change(self, *records):
        self.image = self.image.apply(self.image.offset + 1, 1, records)
        for node in list(self.nodes.values()):
            await node.apply(self.image)

    async def alter_partition(self, request):
        if self.refuse_with is not None:
            raise error_for(self.refuse_with, "the controller is told to refuse")
        topics = []
        for topic in request.topics:
            results = [await self._alter(topic.topic_id, item) for item in topic.partitions]
            topics.append(AlterPartitionTopicResult(topic.topic_id, tuple(results)))
        return AlterPartitionResponse(tuple(topics))

    async def _alter(self, topic_id, item):
        name = self.image.topic_names[topic_id]
        now = self.image.topics[name].partitions[item.index]
        if item.partition_epoch != now.partition_epoch or item.leader_epoch != now.leader_epoch:
            return AlterPartitionItemResult(item.index, error_for(ErrorCode.INVALID_UPDATE_VERSION))
        isr = tuple(m.broker_id for m in item.new_isr)
        await self.change(PartitionChangeRecord(topic_id, item.index, isr=isr))
        after = self.image.topics[name].partitions[item.index]
        epochs = after.leader_epoch, after.partition_epoch
        return AlterPartitionItemResult(item.index, None, after.leader, *epochs, after.isr)


@dataclass
class FakeTransport:
    """Calls the other node's fetch handler; a node in ``cut_off`` cannot be reached."""

    nodes: dict
    cut_off: set = field(default_factory=set)
    calls: int = 0

    async def fetch(self, address, request, timeout_s):
        self.calls += 1
        node_id = int(address.rpartition(":")[2])
        replica_id = request.replica[0] if request.replica else 0
        self._check(node_id, replica_id)
        response = handlers.begin_fetch(self.nodes[node_id].context, request, lambda response: response)
        response = await response if inspect.isawaitable(response) else response
        self._check(node_id, replica_id)
        return response

    def _check(self, *node_ids):
        if not self.cut_off.isdisjoint(node_ids):
            raise error_for(ErrorCode._TRANSPORT, f"one of the nodes {node_ids} is cut off")

    async def close(self):
        pass


class InProcessNode:
    def __init__(self, node_id, path, controller, transport, tasks, config=None, lag_ms=30_000):
        self.node_id = node_id
        self.image = MetadataImage()
        self.failures = []
        self.directories = LogManager.open([str(path)], CLUSTER_ID, node_id)
        defaults = config or TopicConfig()
        found = self.directories.load(defaults)
        clock = SystemClock()
        self.registry = PartitionRegistry(
            node_id, self.directories, found, defaults, lag_ms, clock, self.failures.append
        )
        self.cache = MetadataCache()
        settings = FetcherSettings(max_wait_ms=200, max_backoff_ms=50)
        self.throttles = ReplicationThrottles(clock)
        self.fetchers = FetcherPool(
            tasks,
            lambda leader_id: LeaderFetcher(
                leader_id,
                lambda: (node_id, 0),
                self.cache.broker_address,
                CLUSTER_ID,
                transport,
                settings,
                clock,
                self.throttles.follower,
            ),
        )
        isr_changes = IsrChanges(controller, node_id, lambda: 0)
        self.registry.connect(self.fetchers, isr_changes)
        self.task = tasks.create_task(isr_changes.run(), name=f"isr-changes-{node_id}")
        self.context = NodeContext(
            node_id,
            CLUSTER_ID,
            f"rack-{node_id}",
            self.registry,
            self.cache,
            None,
            {1: ("c", 1)},
            clock,
            50 << 20,
            self.throttles,
            DynamicNodeConfig(PROPERTIES | {"node.id": str(node_id)}),
            None,
        )
        self.lock = asyncio.Lock()

    async def apply(self, image):
        async with self.lock:
            if image.offset > self.image.offset:
                self.cache.publish_brokers(image)
                await self.registry.apply(image, delta_between(self.image, image))
                self.image = image
                self.cache.publish(image)

    def stop(self):
        self.task.cancel()
        self.fetchers.stop_all()

    async def close(self):
        self.stop()
        await self.registry.close()
        await self.registry.checkpoints.write()
        await self.registry.checkpoints.write_log_start_offsets()
        self.directories.close(clean=True, broker_epoch=0)


@dataclass
class InProcessCluster:
    path: object
    tasks: asyncio.TaskGroup
    config: TopicConfig
    lag_ms: int = 30_000
    nodes: dict = field(default_factory=dict)

    def __post_init__(self):
        self.controller = FakeController()
        self.controller.nodes = self.nodes
        self.transport = FakeTransport(self.nodes)

    async def start(self, *node_ids):
        for node_id in node_ids:
            self.nodes[node_id] = InProcessNode(
                node_id,
                self.path / f"node-{node_id}",
                self.controller,
                self.transport,
                self.tasks,
                self.config,
                self.lag_ms,
            )
        new = [i for i in node_ids if i not in self.controller.image.brokers]
        records = [RegisterBrokerRecord(i, b"i" * 16, 0, Endpoint("node", i), fenced=False) for i in new]
        await self.controller.change(*records)

    async def create_topic(self, name="t", replicas=(1, 2, 3), partitions=1, topic_id=TOPIC_ID):
        records = [PartitionRecord(topic_id, i, replicas, replicas, replicas[0]) for i in range(partitions)]
        await self.controller.change(TopicRecord(name, topic_id), *records)

    async def elect(self, leader, isr=None, index=0):
        await self.controller.change(PartitionChangeRecord(TOPIC_ID, index, leader=leader, isr=isr))

    def partition(self, node_id, index=0):
        return self.nodes[node_id].registry.get("t", index)

    async def produce(self, node_id, *values, acks=pb.ACKS_ALL, timeout_ms=5_000, index=0):
        request = produce_request(batch(*values), acks, timeout_ms, index)
        response = await log_service.produce(self.nodes[node_id].context, request)
        return response.topics[0].partitions[0]

    async def fetch(self, node_id, offset=0, max_wait_ms=0, index=0, **partition):
        item = pb.FetchPartition(index=index, fetch_offset=offset, partition_max_bytes=1 << 20, **partition)
        request = pb.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[pb.FetchTopic(name="t", partitions=[item])],
        )
        response = await log_service.fetch(self.nodes[node_id].context, request)
        return response.topics[0].partitions[0]


def batch(*values, timestamp_ms=1_000):
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(None, value, [], timestamp_ms)
    return builder.build()


def produce_request(records, acks=pb.ACKS_ALL, timeout_ms=5_000, index=0):
    partition = pb.ProducePartition(index=index, records=records)
    return pb.ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topics=[pb.ProduceTopic(name="t", partitions=[partition])]
    )


async def eventually(condition, timeout_s=5.0):
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.005)


@pytest.fixture
def cluster_of(tmp_path):
    """Return an async context manager: ``async with cluster_of(1, 2, 3, min_isr=2) as cluster``."""

    @contextlib.asynccontextmanager
    async def start(*node_ids, min_isr=1, lag_ms=30_000):
        async with asyncio.TaskGroup() as tasks:
            cluster = InProcessCluster(tmp_path, tasks, TopicConfig(min_insync_replicas=min_isr), lag_ms)
            await cluster.start(*node_ids)
            try:
                yield cluster
            finally:
                for node in cluster.nodes.values():
                    await node.close()

    return start


@pytest.fixture
def replace_method(monkeypatch):
    """Return ``replace(log, name, function)``: of this one log the method is the function."""

    def replace(log, name, function):
        original = getattr(type(log), name)

        def method(self, *arguments):
            return function(*arguments) if self is log else original(self, *arguments)

        monkeypatch.setattr(type(log), name, method)

    return replace


@pytest.fixture
def make_batch():
    return batch


@pytest.fixture
def make_produce_request():
    return produce_request


@pytest.fixture
def wait_for():
    return eventually

"""Transactions of nodes in one process as Kafka clients see them: bytes in, bytes out, with the real coordinators."""

import asyncio
import contextlib
import dataclasses
import itertools
import sys

from tests.unit.node.conftest import InProcessCluster
from tidelog_foundation.config import TopicConfig
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.requests.addresses import Endpoint, ListenerEndpoint
from tidelog_node.coordination import TRANSACTION_TOPIC, TransactionCoordinator
from tidelog_node.coordination.coordinator import CoordinatorEnvironment
from tidelog_node.event_loop import SystemClock
from tidelog_node.handlers.node_calls import NodeMarkerSender
from tidelog_node.handlers.transaction_markers import write_txn_markers
from tidelog_node.kafka.apis.registry import all_apis
from tidelog_node.kafka.protocol.codec import decode, encode
from tidelog_node.kafka.protocol.reader import Reader
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.kafka.served import Caller, KafkaNode, Request
from tidelog_node.server.topic_creation import TopicCreation
from tidelog_node.shards.events import ClientIdentity
from tidelog_node.transactions.settings import TransactionSettings
from tidelog_quorum.metadata.records import FeatureLevelRecord, PartitionChangeRecord, RegisterBrokerRecord

STATE_TOPIC_ID, TOPIC_ID = b"0123456789abcdef", b"t" * 16
ID = "app"
_APIS = all_apis()
_RETRIED = {
    code.code
    for code in (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    )
}


class LocalCalls:
    """Calls to the nodes of an in-process cluster, whose ports are their ids. A node in ``cut_off`` cannot be reached.

    ``markers`` has each request, by node.
    """

    def __init__(self, nodes):
        self._nodes = nodes
        self.cut_off = set()
        self.markers = []

    async def write_txn_markers(self, address, request, timeout_s):
        node_id = int(address.rpartition(":")[2])
        self.markers.append((node_id, request))
        if node_id in self.cut_off:
            raise error_for(ErrorCode._TRANSPORT, f"node {node_id} is cut off")
        return await write_txn_markers(self._nodes[node_id].context, request)


class KafkaTransactions:
    """Nodes with coordinators. Topic t has three partitions. The partition of __transaction_state is on all nodes."""

    def __init__(self, cluster, tasks, settings):
        self.cluster = cluster
        self.calls = LocalCalls(cluster.nodes)
        self.nodes, self.coordinators, self._tasks = {}, {}, []
        self.wanted = []
        self._ids = itertools.count(100)
        for node_id, node in cluster.nodes.items():
            creation = TopicCreation(None)
            creation.want = self.wanted.extend
            environment = CoordinatorEnvironment(node.registry, node.cache, creation, SystemClock())
            paths = [directory.path for directory in node.directories.online]
            coordinator = TransactionCoordinator(environment, lambda paths=paths: paths, settings, self)
            node.context = dataclasses.replace(node.context, transactions=coordinator, producer_ids=self)
            coordinator.connect(NodeMarkerSender(node.context, self.calls))
            self.nodes[node_id] = KafkaNode(node.context, None)
            self.coordinators[node_id] = coordinator
            self._tasks.append(tasks.create_task(coordinator.run()))

    async def next_id(self):
        return next(self._ids)

    async def send(self, request, version, node_id=1):
        """Return the response of a node, after a check that its bytes form exactly one response of the version."""
        writer = Writer()
        encode(request, writer, version)
        reader = Reader(b"".join(writer.chunks()))
        caller = Caller("PLAINTEXT", ClientIdentity("client", "/127.0.0.1"), version)
        body = await _APIS[request.API_KEY].begin(self.nodes[node_id], Request(caller, 1, reader))
        response_kind = getattr(
            sys.modules[type(request).__module__], type(request).__name__.replace("Request", "Response")
        )
        answer = Reader(b"".join(body))
        response = decode(response_kind, answer, version)
        assert not reader.remaining
        assert not answer.remaining
        return response

    async def ask(self, request, version, node_id=1):
        """Return the response, after repetitions while the coordinator is not ready, as clients do."""
        async with asyncio.timeout(10):
            while True:
                response = await self.send(request, version, node_id)
                if getattr(response, "error_code", 0) not in _RETRIED:
                    return response
                await asyncio.sleep(0.005)

    async def lead(self, leader):
        """Move the partition of __transaction_state to another node."""
        await self.cluster.controller.change(PartitionChangeRecord(STATE_TOPIC_ID, 0, leader=leader))

    async def set_version(self, version):
        """Finalize a level of transaction.version."""
        await self.cluster.controller.change(FeatureLevelRecord("transaction.version", version))

    async def stop(self):
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)


@contextlib.asynccontextmanager
async def kafka_transactions(path, *node_ids, version=2, creates_topic=True, **settings):
    """Run a :class:`KafkaTransactions`; ``settings`` are TransactionSettings."""
    node_ids = node_ids or (1,)
    async with asyncio.TaskGroup() as tasks:
        cluster = InProcessCluster(path, tasks, TopicConfig(min_insync_replicas=1))
        await cluster.start(*node_ids)
        for node_id in node_ids:
            listeners = (
                ListenerEndpoint("GRPC", "node", node_id, "GRPC"),
                ListenerEndpoint("PLAINTEXT", f"kafka-{node_id}", 9092, "PLAINTEXT"),
            )
            await cluster.controller.change(
                RegisterBrokerRecord(
                    node_id, b"i" * 16, 0, Endpoint("node", node_id), fenced=False, listeners=listeners
                )
            )
        transactions = KafkaTransactions(cluster, tasks, TransactionSettings(**settings))
        await transactions.set_version(version)
        if creates_topic:
            await cluster.create_topic(TRANSACTION_TOPIC, replicas=node_ids, topic_id=STATE_TOPIC_ID)
        await cluster.create_topic("t", replicas=node_ids, partitions=3, topic_id=TOPIC_ID)
        try:
            yield transactions
        finally:
            await transactions.stop()
            for each in cluster.nodes.values():
                await each.close()

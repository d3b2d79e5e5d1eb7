"""A node's administrative Kafka APIs: the real APIs, handlers and controller core, without a network."""

import asyncio

from topic_ids import SequentialTopicIds

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.requests.brokers import BrokerHeartbeatRequest, RegisterBrokerRequest
from tidelog_foundation.requests.configs import ConfigEntry
from tidelog_foundation.requests.features import DescribeFeaturesRequest, FeatureRange
from tidelog_foundation.requests.partitions import ListPartitionReassignmentsRequest
from tidelog_foundation.requests.quorum import DescribeQuorumRequest, DescribeQuorumResponse
from tidelog_foundation.requests.topics import CreatableTopic, CreateTopicsRequest, ReplicaAssignment
from tidelog_foundation.security import ANONYMOUS
from tidelog_node.event_loop import SystemClock
from tidelog_node.handlers import NodeContext
from tidelog_node.kafka.apis.registry import all_apis
from tidelog_node.kafka.protocol.codec import decode, encode
from tidelog_node.kafka.protocol.reader import Reader
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.kafka.served import Caller, KafkaNode, Request
from tidelog_node.partitions import MetadataCache, ReplicationThrottles
from tidelog_node.server.dynamic_config import DynamicNodeConfig
from tidelog_node.shards.events import ClientIdentity
from tidelog_quorum.controller.config import ControllerConfig
from tidelog_quorum.controller.features import describe_features
from tidelog_quorum.controller.reassignment import list_partition_reassignments
from tidelog_quorum.controller.state_machine import Controller
from tidelog_quorum.metadata.features import SUPPORTED_FEATURES
from tidelog_quorum.metadata.records import NoOpRecord

PROPERTIES = {
    "cluster.id": "c1",
    "node.id": "1",
    "listeners": "GRPC://127.0.0.1:9092",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "log.dirs": "/not/used",
}
_FEATURES = [
    FeatureRange(name=f.name, min_level=f.min_level, max_level=f.max_level) for f in SUPPORTED_FEATURES.values()
]


def versions_of(request_class):
    first, last = request_class.VERSIONS
    return range(first, last + 1)


async def ask(node, request, version, response_class, principal=ANONYMOUS):
    """Send a request in this version as bytes to a KafkaNode, and return the decoded response."""
    writer = Writer()
    encode(request, writer, version)
    reader = Reader(memoryview(b"".join(writer.chunks())))
    caller = Caller("PLAINTEXT", ClientIdentity("test", "127.0.0.1"), version, principal)
    api = all_apis()[request.API_KEY]
    assert api.versions == request.VERSIONS == response_class.VERSIONS
    body = await api.begin(node, Request(caller, 1, reader))
    assert not reader.remaining
    answer = Reader(memoryview(b"".join(body)))
    response = decode(response_class, answer, version)
    assert not answer.remaining
    return response


class CoreController:
    """A controller's core that commits requests at once. If set, ``failure`` is raised instead."""

    def __init__(self, cache, **config):
        config = ControllerConfig("c1", 9_000, config.pop("num_partitions", 1), 1, **config)
        self.core = Controller(config, SequentialTopicIds())
        self.core.replay(1, 1, [NoOpRecord()])
        self.core.activate(1, 0)
        self.cache = cache
        self.failure = None
        self.voter_changes = []
        self.quorum = DescribeQuorumResponse()

    def do(self, handle, request):
        if self.failure is not None:
            raise self.failure
        result = handle(request, 0)
        for records in filter(None, (result.preparations, result.records)):
            offset = self.core.next_offset
            self.core.append(offset, 1, records)
            self.core.replay(offset, 1, records)
            self.core.check_invariants()
        self.cache.publish(self.core.latest)
        return result.response

    def begin_brokers(self, *broker_ids):
        for broker_id in broker_ids:
            registration = RegisterBrokerRequest(
                broker_id=broker_id,
                cluster_id="c1",
                incarnation_id=bytes([broker_id]) * 16,
                endpoint=Endpoint(host="h", port=9_092),
                previous_broker_epoch=-1,
                features=tuple(_FEATURES),
            )
            epoch = self.do(self.core.handle, registration).broker_epoch
            self.heartbeat(broker_id, epoch)

    def heartbeat(self, broker_id, epoch, **wants):
        offset = self.core.latest.offset
        heartbeat = BrokerHeartbeatRequest(
            broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=offset, **wants
        )
        self.do(self.core.handle, heartbeat)

    def fence(self, broker_id):
        self.heartbeat(broker_id, self.core.latest.brokers[broker_id].broker_epoch, want_fence=True)

    async def ask(self, request, timeout_s):
        match request:
            case ListPartitionReassignmentsRequest():
                self.do(lambda *_: _NOTHING, None)
                return list_partition_reassignments(self.core.latest, request)
            case DescribeFeaturesRequest():
                return describe_features(self.core.latest, request)
            case DescribeQuorumRequest():
                self.do(lambda *_: _NOTHING, None)
                return self.quorum
        return self.do(self.core.handle, request)

    async def change_quorum(self, request, timeout_s):
        self.do(lambda *_: _NOTHING, None)
        self.voter_changes.append(request)


class AdminNode:
    """Node 1 of a cluster of live brokers, with its own controller. It answers each API in each version."""

    def __init__(self, *broker_ids, **config):
        self.cache = MetadataCache()
        self.controller = CoreController(self.cache, **config)
        self.controller.begin_brokers(*broker_ids or (1,))
        clock = SystemClock()
        self.settings = DynamicNodeConfig(PROPERTIES)
        self.principal = ANONYMOUS
        self.node = KafkaNode(
            context=NodeContext(
                broker_id=1,
                cluster_id="c1",
                rack="",
                partitions=None,
                metadata=self.cache,
                controller=self.controller,
                voters={1: ("c", 1)},
                clock=clock,
                fetch_max_bytes=1 << 20,
                throttles=ReplicationThrottles(clock),
                settings=self.settings,
                producer_ids=None,
                token_key=config.get("delegation_token_secret_key"),
            ),
            groups=None,
        )

    @property
    def image(self):
        return self.cache.image

    def ask(self, request, version, response_class):
        return asyncio.run(ask(self.node, request, version, response_class, self.principal))

    def create(self, name="t", assignments=((1,),), configs=None):
        """Create a topic without the protocol."""
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=tuple(
                ReplicaAssignment(partition_index=i, broker_ids=tuple(ids)) for i, ids in enumerate(assignments)
            ),
            configs=tuple(ConfigEntry(name=n, value=v) for n, v in (configs or {}).items()),
        )
        request = CreateTopicsRequest(topics=(topic,))
        [result] = self.controller.do(self.controller.core.handle, request).topics
        assert result.error is None, result.error
        return result.topic_id


class _Nothing:
    preparations = records = ()
    response = None


_NOTHING = _Nothing()


def name_of(code):
    """Return the name of an error code, or None for no error."""
    return None if code == 0 else ErrorCode.of(code).name

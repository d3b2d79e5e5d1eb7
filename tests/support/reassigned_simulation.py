"""The simulation of a partition with the real controller: five nodes, any of which may become replicas.

In addition to the faults of ``partition_simulation``, the partition is continually reassigned to one to four replicas;
reassignments are cancelled and replaced, and elections requested. The controller is
:class:`~tidelog_quorum.controller.Controller`, whose entries are committed at once; the nodes learn of them late. A
node that is no longer a replica deletes its log only when it learns of that. If it is down meanwhile, it comes back
with its old log.
"""

import random

from partition_model import MemoryLog, Node
from partition_simulation import MAX_LAG_MS, MIN_ISR, Simulation
from request_values import code_of
from topic_ids import SequentialTopicIds

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.requests.brokers import BrokerHeartbeatRequest, RegisterBrokerRequest
from tidelog_foundation.requests.configs import ConfigResourceType
from tidelog_foundation.requests.features import FeatureRange
from tidelog_foundation.requests.partitions import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog_foundation.requests.replicas import (
    AlterPartitionItem,
    AlterPartitionRequest,
    AlterPartitionTopic,
    IsrMember,
)
from tidelog_foundation.requests.topics import CreatableTopic, CreateTopicsRequest, ReplicaAssignment
from tidelog_node.hosting.replicas import brokers_of
from tidelog_node.replication import PartitionState
from tidelog_node.replication.events import (
    IsrChangeAccepted,
    IsrChangeRefused,
    RegistrationChanged,
    TimePassed,
)
from tidelog_quorum.controller.config import ControllerConfig
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state_machine import Controller, PeriodicTask
from tidelog_quorum.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
)
from tidelog_quorum.metadata.records import ConfigRecord, FeatureLevelRecord, NoOpRecord

NODES = (1, 2, 3, 4, 5)
FEATURES = [
    FeatureRange(name=f.name, min_level=f.min_level, max_level=f.max_level) for f in SUPPORTED_FEATURES.values()
]
SESSION_MS = 1 << 40


class RealController:
    """A leading controller. Every entry is committed when it is written. ``history`` has the image after each."""

    def __init__(self, uses_elr):
        config = ControllerConfig("c", SESSION_MS, min_insync_replicas=MIN_ISR)
        self.controller = Controller(config, SequentialTopicIds())
        self.history = []
        self.controller.replay(1, 1, [NoOpRecord()])
        self.controller.activate(1, 0)
        if uses_elr:
            levels = {METADATA_VERSION: 1, ELIGIBLE_LEADER_REPLICAS_VERSION: 1}
            features = [FeatureLevelRecord(name, level) for name, level in levels.items()]
            default = ConfigRecord(ConfigResourceType.BROKER, "", "min.insync.replicas", str(MIN_ISR))
            self.write(Result([*features, default], None))

    @property
    def image(self):
        return self.controller.committed

    @property
    def partition(self):
        return self.image.partition("t", 0)

    @property
    def isr(self):
        return frozenset(self.partition.isr)

    @property
    def unfenced(self):
        return {b for b, registration in self.image.brokers.items() if not registration.fenced}

    def write(self, result):
        if result.records:
            offset = self.controller.next_offset
            self.controller.append(offset, 1, result.records)
            self.controller.replay(offset, 1, result.records)
            self.controller.check_invariants()
            self.history.append(self.image)
        return result.response

    def do(self, handler, request):
        response = self.write(handler(request, 0))
        task: PeriodicTask | None = PeriodicTask.EXPIRE_SESSIONS
        while task is not None:
            result, task = self.controller.tick(task, 0)
            self.write(result)
        return response

    def register(self, broker, incarnation, previous_epoch):
        request = RegisterBrokerRequest(
            broker_id=broker,
            cluster_id="c",
            incarnation_id=incarnation.to_bytes(16, "big"),
            endpoint=Endpoint(host="h", port=1),
            previous_broker_epoch=previous_epoch,
            features=tuple(FEATURES),
        )
        epoch = self.do(self.controller.handle, request).broker_epoch
        self.heartbeat(broker)
        return epoch

    def heartbeat(self, broker, **wants):
        registration = self.image.brokers[broker]
        request = BrokerHeartbeatRequest(
            broker_id=broker,
            broker_epoch=registration.broker_epoch,
            current_metadata_offset=self.image.offset,
            **wants,
        )
        self.do(self.controller.handle, request)

    def fence(self, broker, _):
        # A stop ends its session, as time would.
        self.heartbeat(broker, want_fence=True, want_shut_down=True)

    def unfence(self, broker, _):
        self.heartbeat(broker)

    def create(self, replicas):
        assignment = ReplicaAssignment(partition_index=0, broker_ids=tuple(replicas))
        topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=(assignment,))
        self.do(self.controller.handle, CreateTopicsRequest(topics=(topic,)))

    def reassign(self, target):
        replicas = None if target is None else tuple(target)
        topic = ReassignableTopic(name="t", partitions=(ReassignablePartition(0, replicas),))
        request = AlterPartitionReassignmentsRequest(topics=(topic,))
        response = self.do(self.controller.handle, request)
        return code_of(response.topics[0].partitions[0].error).code

    def elect_preferred(self):
        self.do(self.controller.handle, ElectLeadersRequest(all_partitions=True))

    def alter_partition(self, sender, broker_epoch, proposal):
        members = [IsrMember(broker_id=b, broker_epoch=e) for b, e in proposal.isr]
        item = AlterPartitionItem(
            0, leader_epoch=proposal.leader_epoch, partition_epoch=proposal.partition_epoch, new_isr=tuple(members)
        )
        topic = AlterPartitionTopic(topic_id=self.image.topics["t"].topic_id, partitions=(item,))
        request = AlterPartitionRequest(broker_id=sender, broker_epoch=broker_epoch, topics=(topic,))
        try:
            response = self.do(self.controller.handle, request)
        except TidelogError as error:
            return IsrChangeRefused(proposal.proposal_id, error.code)
        result = response.topics[0].partitions[0]
        if result.error is not None:
            return IsrChangeRefused(proposal.proposal_id, result.error.code)
        return IsrChangeAccepted(
            proposal.proposal_id, result.leader_epoch, result.partition_epoch, frozenset(result.isr)
        )


class ReassignedSimulation(Simulation):
    """The simulation, which begins with the replicas 1, 2 and 3."""

    fetched_records = 30

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.now_ms = 1_000
        self.messages = []
        self.drop = self.rng.choice((0.0, 0.02, 0.1))
        self.faults = self.rng.choice((0.1, 0.3, 1.0))
        self.uses_elr = self.rng.random() < 0.5
        self.committed = []
        self.acknowledged = {}
        self.leader_of_epoch = {}
        self.next_value = 0
        self.next_token = 0
        self.completed = self.cancelled = self.incarnation = 0
        self.controller = RealController(self.uses_elr)
        self.nodes = {i: Node(i) for i in NODES}
        self.previous_epochs = dict.fromkeys(NODES, -1)
        for node in self.nodes.values():
            self.start(node)
        self.controller.create((1, 2, 3))
        for node in self.nodes.values():
            node.metadata_index = len(self.controller.history) - 1
            self.apply_metadata(node)

    def start(self, node):
        self.forget(node, min(node.checkpoint, node.log.end))
        self.incarnation += 1
        previous = self.previous_epochs[node.node_id]
        node.broker_epoch = self.controller.register(node.node_id, self.incarnation, previous)
        self.previous_epochs[node.node_id] = node.broker_epoch
        node.alive = True

    def forget(self, node, high_watermark):
        node.state = PartitionState(node.node_id, high_watermark, MIN_ISR, MAX_LAG_MS)
        node.fetching, node.fetch_in_flight = None, None
        node.waiting.clear()

    def crash(self, node, lossy):
        super().crash(node, lossy)
        if lossy:
            # It will report an unclean stop.
            self.previous_epochs[node.node_id] = -1

    def restart(self, node):
        self.controller.fence(node.node_id, self.rng)
        self.start(node)
        node.metadata_index = len(self.controller.history) - 1
        self.apply_metadata(node)

    def apply_metadata(self, node):
        image = self.controller.history[node.metadata_index]
        partition = image.partition("t", 0)
        if node.node_id not in partition.replicas:
            node.log, node.checkpoint = MemoryLog(), 0
            self.forget(node, 0)
            return
        self.step(node, brokers_of(image))
        self.step(
            node,
            RegistrationChanged(
                partition.replicas,
                frozenset(partition.isr),
                partition.leader,
                partition.leader_epoch,
                partition.partition_epoch,
                node.log.end,
            ),
        )

    def send_proposal(self, node, request):
        broker_epoch, sender = node.broker_epoch, node.node_id

        def answer(event):
            if node.alive and node.broker_epoch == broker_epoch:
                self.step(node, event)

        def arrive():
            before = self.controller.partition
            result = self.controller.alter_partition(sender, broker_epoch, request)
            self.completed += before.is_reassigning and not self.controller.partition.is_reassigning
            self.send(lambda: answer(result), lost=unknown)

        def unknown():
            answer(IsrChangeRefused(request.proposal_id, ErrorCode.REQUEST_TIMED_OUT))

        self.send(arrive, lost=unknown)

    def serve_fetch(self, leader, replica, epoch, offset, last):
        if leader.state.leader is not None and offset > leader.log.end and last < 0:
            raise AssertionError("a follower is ahead of its leader and has no epoch")
        return super().serve_fetch(leader, replica, epoch, offset, last)

    def disturb(self):
        if self.rng.random() < 0.004:
            self.reassign()
        super().disturb()

    def follow_metadata(self, node):
        # There are more entries than in the smaller simulation: heartbeats of five nodes, and the moves.
        for _ in range(self.rng.randint(1, 6)):
            super().follow_metadata(node)

    def move_leader(self, _):
        self.controller.elect_preferred()

    def reassign(self):
        target = None
        if self.rng.random() < 0.8:
            target = self.rng.sample(NODES, self.rng.randint(1, 4))
        was_under_way = self.controller.partition.is_reassigning
        if self.controller.reassign(target) == 0 and target is None:
            assert was_under_way
            self.cancelled += 1

    def heal(self):
        self.drop = 0.0
        for node in self.nodes.values():
            if not node.alive:
                self.restart(node)
            if node.node_id not in self.controller.unfenced:
                self.controller.unfence(node.node_id, node.broker_epoch)
        for round_number in range(500):
            for node in self.nodes.values():
                self.follow_metadata(node)
                self.fetch(node)
                self.step(node, TimePassed())
                if round_number == 250:
                    self.produce(node)
            for _ in range(len(self.messages)):
                self.deliver_one()
            self.now_ms += 1
        for node in self.nodes.values():
            while node.metadata_index + 1 < len(self.controller.history):
                self.follow_metadata(node)

    def check_converged(self):
        """Assert, after :meth:`heal`, that the target's replicas have all acknowledged records and no other node has
        any.
        """
        partition = self.controller.partition
        assert not partition.is_reassigning, f"a reassignment did not end: {partition}"
        assert set(partition.isr) == set(partition.replicas), f"the ISR is not whole again: {partition}"
        logs = [self.nodes[b].log.records for b in partition.replicas]
        assert all(log == logs[0] for log in logs), "the logs differ after healing"
        values = {value: offset for offset, (_, value) in enumerate(logs[0])}
        lost = {v for v, offset in self.acknowledged.items() if values.get(v) != offset}
        assert not lost, f"acknowledged records lost: {sorted(lost)}"
        others = [n for n in self.nodes.values() if n.node_id not in partition.replicas]
        assert all(not n.log.records for n in others), "a node kept a log that is not its own"
        assert {self.nodes[b].state.high_watermark for b in partition.replicas} == {len(logs[0])}

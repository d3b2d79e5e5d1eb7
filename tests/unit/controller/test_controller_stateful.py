"""Random clusters: whatever brokers, clients and elections do, the invariants hold and every replica agrees.

Beside the cluster a model follows the committed log: which replicas of a partition hold all that its clients were told
is safe. Leaders are as bold as they may be: with min.insync.replicas members in the ISR they commit at once what these
hold and nobody else. A crash takes from a replica what others may need. With eligible leader replicas all members of
ISR and ELR must hold it all, and nobody else leads but by an unclean election (KIP-966, LeaderCandidateCompleteness).
"""

from __future__ import annotations

from itertools import count
from typing import Any

import hypothesis
import pytest
from example_counts import examples, steps
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from request_values import code_of
from seeds import reproducible, seeds
from topic_ids import SequentialTopicIds

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.ids import LOST_DIRECTORY, BrokerEpoch, BrokerId, TopicId
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.requests.brokers import BrokerHeartbeatRequest, RegisterBrokerRequest
from tidelog_foundation.requests.cluster import UnregisterBrokerRequest
from tidelog_foundation.requests.configs import (
    ConfigOperation,
    ConfigOperationType,
    ConfigResourceChange,
    ConfigResourceName,
    ConfigResourceType,
    IncrementalAlterConfigsRequest,
)
from tidelog_foundation.requests.features import FeatureRange
from tidelog_foundation.requests.replicas import (
    AlterPartitionItem,
    AlterPartitionRequest,
    AlterPartitionTopic,
    AssignReplicasToDirsRequest,
    DirectoryAssignment,
    DirectoryAssignmentTopic,
    IsrMember,
)
from tidelog_foundation.requests.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from tidelog_quorum.controller.config import ControllerConfig
from tidelog_quorum.controller.elections import rules_of
from tidelog_quorum.controller.partition_queue import PartitionQueue
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.sessions import BrokerRefused
from tidelog_quorum.controller.state_machine import Controller, PeriodicTask
from tidelog_quorum.metadata.codec import decode_batch, encode_batch
from tidelog_quorum.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    uses_elr,
)
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from tidelog_quorum.metadata.registrations import PartitionRegistration

SESSION_MS = 1_000
BROKERS = st.integers(1, 4)
DIRECTORIES = {broker_id: [bytes([broker_id, d]) * 8 for d in (1, 2)] for broker_id in range(1, 5)}
NAMES = st.sampled_from(["a", "b", "c.d", "c_d"])
FEATURES = [
    FeatureRange(name=f.name, min_level=f.min_level, max_level=f.max_level) for f in SUPPORTED_FEATURES.values()
]
Entry = tuple[int, int, list[MetadataRecord]]


class Cluster(RuleBasedStateMachine):
    """One leading controller whose entries commit later or, when the leadership moves, perhaps never."""

    def __init__(self) -> None:
        super().__init__()
        self.topic_ids = SequentialTopicIds()
        self.config = ControllerConfig("c1", SESSION_MS, 2, 2)
        self.controller = Controller(self.config, self.topic_ids)
        # So few that an event often takes several entries.
        self.controller.queue = PartitionQueue(self.config.topic_config(), max_changes=2)
        self.holders: dict[tuple[TopicId, int], frozenset[BrokerId]] = {}
        self.crashed: set[tuple[int, int]] = set()
        self.log: list[Entry] = []
        self.committed = 0
        self.now_ms = 0
        self.epoch = 0
        self.incarnations = count(1)
        self.previous = MetadataImage()

    @initialize(elr=st.booleans(), min_isr=st.integers(1, 3))
    def first_election(self, elr: bool, min_isr: int) -> None:
        self.elect(0)
        levels = [FeatureLevelRecord(METADATA_VERSION, 1)]
        self.write(Result([*levels, FeatureLevelRecord(ELIGIBLE_LEADER_REPLICAS_VERSION, 1)] if elr else levels, None))
        self.write(Result([ConfigRecord(ConfigResourceType.BROKER, "", "min.insync.replicas", str(min_isr))], None))
        for broker_id in (1, 2, 3):
            self.register(broker_id, 0, False)
            self.live(broker_id)
        self.create("a", 2, 3)
        self.commit(10)

    @rule(lost=st.integers(0, 3))
    def elect(self, lost: int) -> None:
        """The leadership moves to a replica that lacks the last ``lost`` entries that were not committed."""
        self.controller.resign()
        del self.log[max(self.committed, len(self.log) - lost) :]
        self.epoch += 1
        self.log.append((len(self.log) + 1, self.epoch, [NoOpRecord()]))
        self.commit(len(self.log))
        self.controller.activate(self.epoch, self.now_ms)

    @rule(entries=st.integers(1, 4))
    def commit(self, entries: int) -> None:
        for offset, epoch, records in self.log[self.committed :][:entries]:
            before = self.controller.committed
            self.controller.replay(offset, epoch, records)
            self.committed += 1
            for record in records:
                if isinstance(record, RegisterBrokerRecord) and (record.broker_id, record.broker_epoch) in self.crashed:
                    self.forget(record.broker_id)
                if isinstance(record, UnregisterBrokerRecord):
                    self.forget(record.broker_id)
            self.follow(before, self.controller.committed)

    def forget(self, broker_id: BrokerId) -> None:
        """A broker lost what it had not synced; or is gone, and what comes back under its id is another one."""
        self.holders = {key: holders - {broker_id} for key, holders in self.holders.items()}

    def follow(self, before: MetadataImage, after: MetadataImage) -> None:
        """Check what an entry made of each partition, and let the leaders commit."""
        if not uses_elr(after):
            return
        for topic, index, partition in after.partitions():
            key = topic.topic_id, index
            isr, leader = frozenset(partition.isr), partition.leader
            old = before.topic_by_id(topic.topic_id)
            former = None if old is None else old.partitions.get(index)
            holders = self.holders.get(key, isr)
            if former is not None:
                holders -= {b for b in holders if _begins_anew(before, former, partition, b)}
            rules = rules_of(after, topic.name, self.config.topic_config())
            if former is None or (leader != former.leader and leader != -1 and leader not in holders):
                is_last_known = former is not None and former.last_known_elr == (leader,)
                assert former is None or is_last_known or rules.allows_unclean, (former, partition, holders)
                holders = isr
            elif leader != -1:
                # Who joins has everything; and a leader that was elected uncleanly defines what there is.
                holders |= isr
            elr = frozenset(partition.eligible_leader_replicas)
            assert isr | elr <= holders, (former, partition, holders)
            may_commit = leader != -1 and len(isr) >= min(rules.min_isr, len(partition.replicas))
            self.holders[key] = isr if may_commit else holders

    @rule(elapsed_ms=st.integers(1, 700))
    def pass_time(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms

    @rule()
    def expire(self) -> None:
        gone = self.write(self.controller.tick(PeriodicTask.EXPIRE_SESSIONS, self.now_ms)[0])
        assert all(self.image.brokers[b].fenced for b in gone)

    @rule(silent=st.sets(BROKERS))
    def outage(self, silent: set[int]) -> None:
        """A session goes by in which only the others are heard."""
        self.now_ms += SESSION_MS
        for broker_id in set(self.image.brokers) - silent:
            self.live(broker_id)
        self.expire()

    @rule(broker_id=BROKERS, age=st.integers(0, 1), since_ms=st.integers(0, 50))
    def refuse(self, broker_id: int, age: int, since_ms: int) -> None:
        """Nobody listens at a broker's address, be it gone or only out of the controller's reach."""
        before = self.image.brokers.get(BrokerId(broker_id))
        if before is None:
            return
        epoch = BrokerEpoch(before.broker_epoch - age)
        refused = BrokerRefused(BrokerId(broker_id), epoch, self.now_ms - since_ms)
        is_settled = self.write(self.controller.handle(refused, self.now_ms))
        assert self.image.brokers[BrokerId(broker_id)].fenced == (before.fenced or (is_settled and not age))

    @rule()
    def tick(self) -> None:
        task: PeriodicTask | None = PeriodicTask.EXPIRE_SESSIONS
        while task is not None:
            result, task = self.controller.tick(task, self.now_ms)
            self.write(result)

    @rule(broker_id=BROKERS, directories=st.integers(0, 2), clean=st.booleans())
    def register(self, broker_id: int, directories: int, clean: bool) -> None:
        existing = self.image.brokers.get(BrokerId(broker_id))
        request = RegisterBrokerRequest(
            broker_id=broker_id,
            cluster_id="c1",
            incarnation_id=next(self.incarnations).to_bytes(16, "big"),
            endpoint=Endpoint(host="h", port=1),
            log_dirs=tuple(DIRECTORIES[broker_id][:directories]),
            previous_broker_epoch=existing.broker_epoch if clean and existing is not None else -1,
            features=tuple(FEATURES),
        )
        try:
            answer = self.write(self.controller.handle(request, self.now_ms))
        except TidelogError as error:
            if error.code is not ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                raise
            return
        assert answer.broker_epoch == self.image.offset
        if not clean:
            self.crashed.add((broker_id, answer.broker_epoch))

    @rule(broker_id=BROKERS)
    def unregister(self, broker_id: int) -> None:
        """A cluster of which somebody has given up a broker; mostly the wrong one."""
        request = UnregisterBrokerRequest(broker_id=broker_id)
        if broker_id in self.image.brokers:
            self.write(self.controller.handle(request, self.now_ms))
        assert broker_id not in self.image.brokers

    @rule(name=st.sampled_from(["a", "b", ""]), value=st.none() | st.integers(1, 3))
    def set_min_isr(self, name: str, value: int | None) -> None:
        self.configure(name, "min.insync.replicas", None if value is None else str(value))

    @rule(name=st.sampled_from(["a", "b", ""]), value=st.none() | st.booleans())
    def set_unclean(self, name: str, value: bool | None) -> None:
        self.configure(name, "unclean.leader.election.enable", None if value is None else str(value).lower())

    def configure(self, name: str, key: str, value: str | None) -> None:
        kind = ConfigOperationType.DELETE if value is None else ConfigOperationType.SET
        resource_type = ConfigResourceType.TOPIC if name else ConfigResourceType.BROKER
        change = ConfigResourceChange(
            resource=ConfigResourceName(type=int(resource_type), name=name),  # type: ignore[arg-type]
            operations=(ConfigOperation(name=key, type=kind, value=value or ""),),
        )
        request = IncrementalAlterConfigsRequest(resources=(change,))
        self.write(self.controller.handle(request, self.now_ms))

    @rule(
        broker_id=BROKERS,
        behind=st.integers(0, 3),
        want_fence=st.booleans(),
        want_shut_down=st.booleans(),
        failed=st.sets(st.sampled_from([0, 1])),
    )
    def heartbeat(self, broker_id: int, behind: int, want_fence: bool, want_shut_down: bool, failed: set[int]) -> None:
        broker = self.image.brokers.get(broker_id)  # type: ignore[call-overload]
        if broker is None:
            return
        offline = [DIRECTORIES[broker_id][i] for i in sorted(failed)]
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=broker.broker_epoch,
            current_metadata_offset=self.image.offset - behind,
            want_fence=want_fence,
            want_shut_down=want_shut_down,
            offline_log_dirs=tuple(offline),
        )
        answer = self.write(self.controller.handle(request, self.now_ms))
        assert answer.is_fenced == self.image.brokers[broker_id].fenced  # type: ignore[index]
        assert not answer.should_shut_down or answer.is_fenced
        after = self.image.brokers[broker_id]  # type: ignore[index]
        assert after.fenced or not set(after.log_dirs).intersection(offline)

    @rule(broker_id=BROKERS)
    def live(self, broker_id: int) -> None:
        """Send a healthy broker's heartbeat. The rule is drawn often enough for the others to make progress."""
        self.heartbeat(broker_id, 0, False, False, set())

    @rule(broker_id=BROKERS, data=st.data())
    def assign(self, broker_id: int, data: st.DataObject) -> None:
        """A broker says where one of its replicas is, or that it has it nowhere."""
        directory = data.draw(st.sampled_from([*DIRECTORIES[broker_id], LOST_DIRECTORY]))
        held = [(t, i) for t, i, p in self.image.partitions() if broker_id in p.replicas]
        broker = self.image.brokers.get(broker_id)  # type: ignore[call-overload]
        if not held or broker is None:
            return
        topic, index = data.draw(st.sampled_from(held))
        named = DirectoryAssignmentTopic(topic_id=topic.topic_id, partitions=(index,))
        request = AssignReplicasToDirsRequest(
            broker_id=broker_id,
            broker_epoch=broker.broker_epoch,
            directories=(DirectoryAssignment(directory_id=directory, topics=(named,)),),
        )
        self.write(self.controller.handle(request, self.now_ms))
        after = self.image.partition(topic.name, index)
        assert after is not None
        assert after.directory_of(broker.broker_id) == directory

    @rule(name=NAMES, partitions=st.integers(1, 3), factor=st.integers(1, 3))
    def create(self, name: str, partitions: int, factor: int) -> None:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor)
        request = CreateTopicsRequest(topics=(topic,))
        existed = name in self.image.topics
        result = self.write(self.controller.handle(request, self.now_ms)).topics[0]
        assert (code_of(result.error) is ErrorCode.TOPIC_ALREADY_EXISTS) == existed
        assert result.error is not None or name in self.image.topics

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.write(self.controller.handle(DeleteTopicsRequest(topic_names=(name,)), self.now_ms))
        assert name not in self.image.topics

    @rule(data=st.data(), age=st.integers(0, 1))
    def alter(self, data: st.DataObject, age: int) -> None:
        led = [(t, i, p) for t, i, p in self.image.partitions() if p.leader in self.image.brokers]
        if not led:
            return
        topic, index, partition = data.draw(st.sampled_from(led))
        isr = data.draw(st.lists(st.sampled_from(partition.replicas), unique=True))
        item = AlterPartitionItem(
            index=index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch - age,
            new_isr=tuple(IsrMember(broker_id=b, broker_epoch=-1) for b in isr),
        )
        request = AlterPartitionRequest(
            broker_id=partition.leader,
            broker_epoch=self.image.brokers[partition.leader].broker_epoch,
            topics=(AlterPartitionTopic(topic_id=topic.topic_id, partitions=(item,)),),
        )
        answer = self.write(self.controller.handle(request, self.now_ms)).topics[0].partitions[0]
        assert not age or code_of(answer.error) is ErrorCode.INVALID_UPDATE_VERSION
        if answer.error is None:
            after = self.image.partition(topic.name, index)
            assert after is not None
            assert list(after.isr) == list(answer.isr) == isr
            assert (after.leader, after.leader_epoch) == (answer.leader_id, answer.leader_epoch)

    @invariant()
    def state_is_sound(self) -> None:
        self.controller.check_invariants()

    @invariant()
    def epochs_never_go_back_in_the_committed_log(self) -> None:
        image = self.controller.committed
        assert image.offset >= self.previous.offset
        for topic, index, before in self.previous.partitions():
            now = image.topic_by_id(topic.topic_id)
            if now is not None:
                after = now.partitions[index]
                assert after.leader_epoch >= before.leader_epoch
                assert after.partition_epoch >= before.partition_epoch
                assert after.leader == before.leader or after.leader_epoch > before.leader_epoch
                assert after == before or after.partition_epoch > before.partition_epoch
        self.previous = image

    @invariant()
    def another_replica_has_the_same_image(self) -> None:
        image = MetadataImage()
        for offset, epoch, records in self.log[: self.committed]:
            image = image.apply(offset, epoch, records)
        assert image == self.controller.committed
        if image.offset >= 0:
            assert MetadataImage().apply(image.offset, image.epoch, image.to_records()) == image

    @property
    def image(self) -> MetadataImage:
        return self.controller.latest

    def write(self, result: Result[Any]) -> Any:
        if result.records:
            offset = self.controller.next_offset
            assert offset == len(self.log) + 1
            self.log.append((offset, self.epoch, decode_batch(encode_batch(result.records))))
            self.controller.append(offset, self.epoch, result.records)
        return result.response


def _begins_anew(
    before: MetadataImage, former: PartitionRegistration, partition: PartitionRegistration, replica: BrokerId
) -> bool:
    """Return whether a replica is in another directory and could not be copied because its own was offline."""
    directory = former.directory_of(replica)
    broker = before.brokers.get(replica)
    return partition.directory_of(replica) != directory and (broker is None or not broker.has_online(directory))


@pytest.mark.sim
@pytest.mark.parametrize("seed", seeds(1, cost=100))
def test_controller_keeps_its_invariants_whatever_happens(seed: int) -> None:
    machine = hypothesis.seed(seed)(type("SeededCluster", (Cluster,), {}))
    limits = settings(max_examples=examples(150), stateful_step_count=steps(40), deadline=None, print_blob=False)
    with reproducible(seed):
        run_state_machine_as_test(machine, settings=limits)


def test_replay_refuses_what_this_leader_did_not_write() -> None:
    controller = Controller(ControllerConfig("c1"), SequentialTopicIds())
    controller.replay(1, 1, [NoOpRecord()])
    controller.activate(1, 0)
    controller.append(2, 1, [NoOpRecord()])
    with pytest.raises(AssertionError, match="not what this leader wrote"):
        controller.replay(2, 2, [NoOpRecord()])


def test_resigned_controller_sees_only_what_is_committed() -> None:
    controller = Controller(ControllerConfig("c1"), SequentialTopicIds())
    controller.replay(1, 1, [NoOpRecord()])
    controller.activate(1, 0)
    controller.append(2, 1, [NoOpRecord()])
    assert controller.latest.offset == 2
    controller.resign()
    assert controller.latest.offset == controller.committed.offset == 1
    assert not controller.is_active

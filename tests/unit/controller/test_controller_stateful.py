"""Random clusters: whatever brokers, clients and elections do, the invariants hold and every replica agrees."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import hypothesis
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from seeds import reproducible, seeds

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import LOST_DIRECTORY, TopicId
from tidelog.v1 import admin_service_pb2 as admin
from tidelog.v1 import common_pb2
from tidelog.v1 import controller_service_pb2 as pb
from tidelog_quorum.controller import Controller, ControllerConfig, Result
from tidelog_quorum.metadata import MetadataImage, MetadataRecord, NoOpRecord, decode_batch, encode_batch

SESSION_MS = 1_000
BROKERS = st.integers(1, 4)
DIRECTORIES = [bytes([d]) * 16 for d in (1, 2)]
NAMES = st.sampled_from(["a", "b", "c.d", "c_d"])
Entry = tuple[int, int, list[MetadataRecord]]


class Cluster(RuleBasedStateMachine):
    """One leading controller whose entries commit later or, when the leadership moves, perhaps never."""

    def __init__(self) -> None:
        super().__init__()
        ids = count(1)
        self.topic_ids: Callable[[], TopicId] = lambda: TopicId(next(ids).to_bytes(16, "big"))
        self.config = ControllerConfig("c1", SESSION_MS, 2, 2)
        self.controller = Controller(self.config, self.topic_ids)
        self.log: list[Entry] = []
        self.committed = 0
        self.now_ms = 0
        self.epoch = 0
        self.incarnations = count(1)
        self.previous = MetadataImage()

    @initialize()
    def first_election(self) -> None:
        self.elect(0)
        for broker_id in (1, 2, 3):
            self.register(broker_id, broker_id)
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
            self.controller.replay(offset, epoch, records)
            self.committed += 1

    @rule(elapsed_ms=st.integers(1, 700))
    def pass_time(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms

    @rule()
    def expire(self) -> None:
        gone = self.write(self.controller.expire_sessions(self.now_ms))
        assert all(self.image.brokers[b].fenced for b in gone)

    @rule(silent=st.sets(BROKERS))
    def outage(self, silent: set[int]) -> None:
        """A session goes by in which only the others are heard."""
        self.now_ms += SESSION_MS
        for broker_id in set(self.image.brokers) - silent:
            self.live(broker_id)
        self.expire()

    @rule(broker_id=BROKERS, directories=st.integers(0, 2))
    def register(self, broker_id: int, directories: int) -> None:
        request = pb.RegisterBrokerRequest(
            broker_id=broker_id,
            cluster_id="c1",
            incarnation_id=next(self.incarnations).to_bytes(16, "big"),
            endpoint=common_pb2.Endpoint(host="h", port=1),
            log_dirs=DIRECTORIES[:directories],
        )
        try:
            answer = self.write(self.controller.handle_register_broker(request, self.now_ms))
        except TidelogError as error:
            if error.code is not ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                raise
            return
        assert answer.broker_epoch == self.image.offset

    @rule(
        broker_id=BROKERS,
        behind=st.integers(0, 3),
        want_fence=st.booleans(),
        want_shut_down=st.booleans(),
        offline=st.lists(st.sampled_from(DIRECTORIES), unique=True),
    )
    def heartbeat(
        self, broker_id: int, behind: int, want_fence: bool, want_shut_down: bool, offline: list[bytes]
    ) -> None:
        broker = self.image.brokers.get(broker_id)  # type: ignore[call-overload]
        if broker is None:
            return
        request = pb.BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=broker.broker_epoch,
            current_metadata_offset=self.image.offset - behind,
            want_fence=want_fence,
            want_shut_down=want_shut_down,
            offline_log_dirs=offline,
        )
        answer = self.write(self.controller.handle_broker_heartbeat(request, self.now_ms))
        assert answer.is_fenced == self.image.brokers[broker_id].fenced  # type: ignore[index]
        assert not answer.should_shut_down or answer.is_fenced
        after = self.image.brokers[broker_id]  # type: ignore[index]
        assert after.fenced or not set(after.log_dirs).intersection(offline)

    @rule(broker_id=BROKERS)
    def live(self, broker_id: int) -> None:
        """What a healthy broker does, often enough for others to get somewhere."""
        self.heartbeat(broker_id, 0, False, False, [])

    @rule(broker_id=BROKERS, directory=st.sampled_from([*DIRECTORIES, LOST_DIRECTORY]), data=st.data())
    def assign(self, broker_id: int, directory: bytes, data: st.DataObject) -> None:
        """A broker says where one of its replicas is, or that it has it nowhere."""
        held = [(t, i) for t, i, p in self.image.partitions() if broker_id in p.replicas]
        broker = self.image.brokers.get(broker_id)  # type: ignore[call-overload]
        if not held or broker is None:
            return
        topic, index = data.draw(st.sampled_from(held))
        named = pb.DirectoryAssignmentTopic(topic_id=topic.topic_id, partitions=[index])
        request = pb.AssignReplicasToDirsRequest(
            broker_id=broker_id,
            broker_epoch=broker.broker_epoch,
            directories=[pb.DirectoryAssignment(directory_id=directory, topics=[named])],
        )
        self.write(self.controller.handle_assign_replicas_to_dirs(request, self.now_ms))
        after = self.image.partition(topic.name, index)
        assert after is not None
        assert after.directory_of(broker.broker_id) == directory

    @rule(name=NAMES, partitions=st.integers(1, 3), factor=st.integers(1, 3))
    def create(self, name: str, partitions: int, factor: int) -> None:
        topic = admin.CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor)
        request = admin.CreateTopicsRequest(topics=[topic])
        existed = name in self.image.topics
        result = self.write(self.controller.handle_create_topics(request, self.now_ms)).topics[0]
        assert (result.error.code == ErrorCode.TOPIC_ALREADY_EXISTS.code) == existed
        assert result.HasField("error") or name in self.image.topics

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.write(self.controller.handle_delete_topics(admin.DeleteTopicsRequest(topic_names=[name]), self.now_ms))
        assert name not in self.image.topics

    @rule(data=st.data(), age=st.integers(0, 1))
    def alter(self, data: st.DataObject, age: int) -> None:
        led = [(t, i, p) for t, i, p in self.image.partitions() if p.leader != -1]
        if not led:
            return
        topic, index, partition = data.draw(st.sampled_from(led))
        isr = data.draw(st.lists(st.sampled_from(partition.replicas), unique=True))
        item = pb.AlterPartitionItem(
            index=index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch - age,
            new_isr=[pb.IsrMember(broker_id=b, broker_epoch=-1) for b in isr],
        )
        request = pb.AlterPartitionRequest(
            broker_id=partition.leader,
            broker_epoch=self.image.brokers[partition.leader].broker_epoch,
            topics=[pb.AlterPartitionTopic(topic_id=topic.topic_id, partitions=[item])],
        )
        answer = self.write(self.controller.handle_alter_partition(request, self.now_ms)).topics[0].partitions[0]
        assert not age or answer.error.code == ErrorCode.INVALID_UPDATE_VERSION.code
        if not answer.HasField("error"):
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
            assert MetadataImage.from_records(image.offset, image.epoch, image.to_records()) == image

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


@pytest.mark.sim
@pytest.mark.parametrize("seed", seeds(1, cost=100))
def test_controller_keeps_its_invariants_whatever_happens(seed: int) -> None:
    machine = hypothesis.seed(seed)(type("SeededCluster", (Cluster,), {}))
    limits = settings(max_examples=150, stateful_step_count=40, deadline=None, print_blob=False)
    with reproducible(seed):
        run_state_machine_as_test(machine, settings=limits)


def test_replay_refuses_what_this_leader_did_not_write() -> None:
    controller = Controller(ControllerConfig("c1"), lambda: TopicId(bytes(16)))
    controller.replay(1, 1, [NoOpRecord()])
    controller.activate(1, 0)
    controller.append(2, 1, [NoOpRecord()])
    with pytest.raises(AssertionError, match="not what this leader wrote"):
        controller.replay(2, 2, [NoOpRecord()])


def test_resigned_controller_sees_only_what_is_committed() -> None:
    controller = Controller(ControllerConfig("c1"), lambda: TopicId(bytes(16)))
    controller.replay(1, 1, [NoOpRecord()])
    controller.activate(1, 0)
    controller.append(2, 1, [NoOpRecord()])
    assert controller.latest.offset == 2
    controller.resign()
    assert controller.latest.offset == controller.committed.offset == 1
    assert not controller.is_active

"""A controller with its log: what it writes is committed at once, unless a test says otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from request_values import code_of
from topic_ids import SequentialTopicIds

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.requests.brokers import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from tidelog_foundation.requests.cluster import UnregisterBrokerRequest
from tidelog_foundation.requests.configs import ConfigEntry, ConfigResourceType
from tidelog_foundation.requests.features import FeatureRange
from tidelog_foundation.requests.replicas import (
    AlterPartitionItem,
    AlterPartitionItemResult,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    AssignReplicasToDirsRequest,
    DirectoryAssignment,
    DirectoryAssignmentTopic,
    IsrMember,
)
from tidelog_foundation.requests.topics import CreatableTopic, CreateTopicsRequest, ReplicaAssignment
from tidelog_quorum.controller.config import ControllerConfig
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state_machine import Controller, PeriodicTask
from tidelog_quorum.metadata.codec import decode_batch, encode_batch
from tidelog_quorum.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION, METADATA_VERSION, SUPPORTED_FEATURES
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import ConfigRecord, FeatureLevelRecord, MetadataRecord, NoOpRecord
from tidelog_quorum.metadata.registrations import PartitionRegistration

SESSION_MS = 9_000
FEATURES = [
    FeatureRange(name=f.name, min_level=f.min_level, max_level=f.max_level) for f in SUPPORTED_FEATURES.values()
]


def directory_on(broker_id: int, directory: bytes) -> bytes:
    """Return the id of a directory of a broker, as no two share one; what is no id, or reserved, stays as it is."""
    is_plain = len(directory) == 16 and any(directory[:15])
    return bytes([broker_id]) + directory[1:] if is_plain else directory


class Driver:
    """Leads a controller in epoch 1; time stands still unless ``now_ms`` is set."""

    def __init__(self, replication_factor: int = 1, min_isr: int | None = None, **config_fields: Any) -> None:
        """With ``min_isr`` eligible leader replicas are in use, and that is min.insync.replicas."""
        config = ControllerConfig("c1", SESSION_MS, 1, replication_factor, **config_fields)
        self.controller = Controller(config, SequentialTopicIds())
        self.log: list[tuple[int, int, list[MetadataRecord]]] = []
        self.committed = 0
        self.now_ms = 0
        self.epoch = 0
        self.lead()
        if min_isr is not None:
            self.set_levels({METADATA_VERSION: 1, ELIGIBLE_LEADER_REPLICAS_VERSION: 1})
            self.set_config("", "min.insync.replicas", str(min_isr))

    def lead(self) -> None:
        """Win an election: what was not committed is lost."""
        self.controller.resign()
        del self.log[self.committed :]
        self.epoch += 1
        offset = self.log[-1][0] + 1 if self.log else 1
        self.log.append((offset, self.epoch, [NoOpRecord()]))
        self.commit()
        self.controller.activate(self.epoch, self.now_ms)

    def write(self, handler: Callable[[Any, int], Result[Any]], request: Any) -> Any:
        """Handle and append, do not commit."""
        result = handler(request, self.now_ms)
        return self.append(result)

    def append(self, result: Result[Any]) -> Any:
        for records in filter(None, (result.preparations, result.records)):
            offset = self.controller.next_offset
            self.log.append((offset, self.epoch, decode_batch(encode_batch(records))))
            self.controller.append(offset, self.epoch, records)
            self.controller.check_invariants()
        return result.response

    def commit(self, entries: int | None = None) -> None:
        end = len(self.log) if entries is None else min(len(self.log), self.committed + entries)
        for offset, epoch, records in self.log[self.committed : end]:
            self.controller.replay(offset, epoch, records)
            self.committed += 1
            self.controller.check_invariants()

    def put(self, *records: MetadataRecord) -> None:
        """Write and commit records as they are."""
        self.append(Result(records, None))
        self.commit()

    def set_levels(self, levels: Mapping[str, int]) -> None:
        self.put(*(FeatureLevelRecord(name, level) for name, level in levels.items()))

    def set_config(self, topic: str, key: str, value: str) -> None:
        """Set what holds for a topic, or for all ("")."""
        kind = ConfigResourceType.TOPIC if topic else ConfigResourceType.BROKER
        self.put(ConfigRecord(kind, topic, key, value))

    def tick(self) -> int:
        """Do what is due; returns how many entries that took."""
        before = len(self.log)
        task: PeriodicTask | None = PeriodicTask.EXPIRE_SESSIONS
        while task is not None:
            result, task = self.controller.tick(task, self.now_ms)
            self.append(result)
        self.commit()
        return len(self.log) - before

    def do(self, handler: Callable[[Any, int], Result[Any]], request: Any) -> Any:
        response = self.write(handler, request)
        self.commit()
        return response

    def register(self, broker_id: int, incarnation: int = 1, rack: str = "", **fields: Any) -> int:
        """Return the broker epoch."""
        request = RegisterBrokerRequest(
            broker_id=broker_id,
            cluster_id=fields.get("cluster_id", "c1"),
            incarnation_id=bytes([incarnation]) * 16,
            endpoint=Endpoint(host=fields.get("host", "h"), port=fields.get("port", 9092)),
            rack=rack,
            previous_broker_epoch=fields.get("previous", -1),
            log_dirs=tuple(directory_on(broker_id, d) for d in fields.get("log_dirs", ())),
            features=tuple(fields.get("features", FEATURES)),
            listeners=tuple(fields.get("listeners", ())),
        )
        response: RegisterBrokerResponse = self.do(self.controller.handle, request)
        return response.broker_epoch

    def heartbeat(
        self, broker_id: int, *, offset: int | None = None, epoch: int | None = None, **wants: Any
    ) -> BrokerHeartbeatResponse:
        offline = [directory_on(broker_id, d) for d in wants.pop("offline_log_dirs", ())]
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            offline_log_dirs=tuple(offline),
            broker_epoch=self.image.brokers[broker_id].broker_epoch if epoch is None else epoch,  # type: ignore[index]
            current_metadata_offset=self.image.offset if offset is None else offset,
            **wants,
        )
        response: BrokerHeartbeatResponse = self.do(self.controller.handle, request)
        return response

    def assign(
        self, broker_id: int, directory: bytes, name: str = "t", index: int = 0, *, keeps_logs: bool = False
    ) -> ErrorCode | None:
        """Say where a broker's replica is; returns the partition's error."""
        topic = DirectoryAssignmentTopic(topic_id=self.image.topics[name].topic_id, partitions=(index,))
        request = AssignReplicasToDirsRequest(
            broker_id=broker_id,
            broker_epoch=self.image.brokers[broker_id].broker_epoch,  # type: ignore[index]
            directories=(
                DirectoryAssignment(
                    directory_id=directory_on(broker_id, directory), topics=(topic,), keeps_logs=keeps_logs
                ),
            ),
        )
        response = self.do(self.controller.handle, request)
        result = response.topics[0].partitions[0]
        return code_of(result.error) if result.error is not None else None

    def restart(self, broker_id: int, incarnation: int = 2, clean: bool = True, **fields: Any) -> None:
        """Register another process, which has stopped cleanly before or not; it stays fenced."""
        previous = self.image.brokers[broker_id].broker_epoch if clean else -1  # type: ignore[index]
        self.register(broker_id, incarnation, previous=previous, **fields)

    def unregister(self, broker_id: int) -> None:
        self.do(self.controller.handle, UnregisterBrokerRequest(broker_id=broker_id))

    def up(self, *broker_ids: int, incarnation: int = 1, log_dirs: Sequence[bytes] = (), **fields: Any) -> None:
        """Register and unfence."""
        for broker_id in broker_ids:
            self.register(broker_id, incarnation, log_dirs=log_dirs, **fields)
            assert not self.heartbeat(broker_id).is_fenced

    def expire(self) -> frozenset[int]:
        response: frozenset[int] = self.append(self.controller.tick(PeriodicTask.EXPIRE_SESSIONS, self.now_ms)[0])
        self.commit()
        return response

    def create(self, name: str = "t", assignments: Sequence[Sequence[int]] = (), **fields: Any) -> Any:
        """Return the topic's result."""
        response = self.do(
            self.controller.handle,
            CreateTopicsRequest(
                topics=(self.creatable(name, assignments, **fields),), validate_only=fields.get("validate_only", False)
            ),
        )
        return response.topics[0]

    def creatable(self, name: str, assignments: Sequence[Sequence[int]] = (), **fields: Any) -> CreatableTopic:
        return CreatableTopic(
            name=name,
            num_partitions=fields.get("partitions", -1),
            replication_factor=fields.get("factor", -1),
            assignments=tuple(
                ReplicaAssignment(partition_index=i, broker_ids=tuple(ids)) for i, ids in enumerate(assignments)
            ),
            configs=tuple(ConfigEntry(name=n, value=v) for n, v in fields.get("configs", {}).items()),
        )

    def alter(
        self, broker_id: int, isr: Sequence[int], name: str = "t", index: int = 0, **fields: Any
    ) -> AlterPartitionItemResult:
        """Ask for an ISR; epochs are right unless given."""
        partition = self.partition(name, index)
        epochs = fields.get("epochs", {})
        item = AlterPartitionItem(
            index=index,
            leader_epoch=fields.get("leader_epoch", partition.leader_epoch),
            partition_epoch=fields.get("partition_epoch", partition.partition_epoch),
            new_isr=tuple(IsrMember(broker_id=b, broker_epoch=epochs.get(b, -1)) for b in isr),
        )
        topic = AlterPartitionTopic(topic_id=self.image.topics[name].topic_id, partitions=(item,))
        broker_epoch = self.image.brokers[broker_id].broker_epoch  # type: ignore[index]
        request = AlterPartitionRequest(
            broker_id=broker_id, broker_epoch=fields.get("broker_epoch", broker_epoch), topics=(topic,)
        )
        response: AlterPartitionResponse = self.do(self.controller.handle, request)
        return response.topics[0].partitions[0]

    @property
    def image(self) -> MetadataImage:
        return self.controller.latest

    def partition(self, name: str = "t", index: int = 0) -> PartitionRegistration:
        partition = self.image.partition(name, index)
        assert partition is not None
        return partition

    def state(self, name: str = "t", index: int = 0) -> tuple[int, tuple[int, ...]]:
        """(leader, ISR)"""
        partition = self.partition(name, index)
        return partition.leader, partition.isr

    def elr_state(
        self, name: str = "t", index: int = 0
    ) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """(leader, ISR, ELR, last known leader)"""
        p = self.partition(name, index)
        return p.leader, p.isr, p.eligible_leader_replicas, p.last_known_elr


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def new_driver() -> Callable[..., Driver]:
    return Driver

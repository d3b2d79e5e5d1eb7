"""The topics of the fake and the checks that a controller makes before it creates or deletes one."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidelog.testing.fake.partition import FakePartition
from tidelog.testing.fake.producers import AppendResult
from tidelog.v1.admin_service_pb2 import NewPartitions
from tidelog_foundation.config import TopicConfig, parse_config
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import TopicId, is_topic_of_request, topic_id_of_request
from tidelog_foundation.topic_names import collision_key, validate_topic_name

NODE_ID = 1


@dataclass(slots=True)
class FakeTopic:
    """One topic: its id, its partitions by index, its settings, and those of them that were given."""

    name: str
    topic_id: TopicId
    partitions: list[FakePartition]
    config: TopicConfig
    configs: dict[str, str]


class TopicTable:
    """All topics, guarded by ``changed``: hold it for every call, notify it after every append."""

    def __init__(self, default_partitions: int) -> None:
        self.changed = threading.Condition()
        self._topics: dict[str, FakeTopic] = {}
        self.group_configs: dict[str, dict[str, str]] = {}
        """What is set on groups, by their ids."""
        self._default_partitions = default_partitions

    def names(self) -> list[str]:
        """Return the names in alphabetical order."""
        return sorted(self._topics)

    def topic(self, name: str) -> FakeTopic:
        """Return a topic. Raises UNKNOWN_TOPIC_OR_PARTITION, or INVALID_TOPIC_EXCEPTION for an impossible name."""
        validate_topic_name(name)
        if name not in self._topics:
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f'there is no topic "{name}"')
        return self._topics[name]

    def partition(self, name: str, index: int) -> FakePartition:
        """Return a partition. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        partitions = self._topics[name].partitions if name in self._topics else []
        if not 0 <= index < len(partitions):
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{index}")
        return partitions[index]

    def append(self, name: str, index: int, records: bytes) -> AppendResult:
        """Append one produced batch, stamped with the time of now when the topic says LogAppendTime.

        Raises:
            TidelogError: UNKNOWN_TOPIC_OR_PARTITION, or why the partition refuses the batch.
        """
        return self.partition(name, index).append(records, self._topics[name].config, int(time.time() * 1000))

    def delete_records(self, name: str, index: int, offset: int) -> int:
        """Delete the records of a partition below ``offset``, all for -1; return where its log starts then.

        Raises:
            TidelogError: UNKNOWN_TOPIC_OR_PARTITION, POLICY_VIOLATION for a topic that is only compacted,
                OFFSET_OUT_OF_RANGE.
        """
        partition = self.partition(name, index)
        if not self._topics[name].config.is_deleted:
            text = f"{name}-{index}: records are deleted only where cleanup.policy has delete"
            raise error_for(ErrorCode.POLICY_VIOLATION, text)
        partition.delete_records(partition.log_end_offset if offset == -1 else offset)
        return partition.log_start_offset

    def create(
        self,
        name: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
        request_id: bytes = b"",
    ) -> FakeTopic:
        """Check everything as a controller does, then create the topic unless ``validate_only``.

        What an earlier attempt of the request with this id created is returned as it is.

        Raises:
            TidelogError: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS,
                INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_REQUEST, INVALID_CONFIG.
        """
        earlier = self._topics.get(name)
        if earlier is not None and is_topic_of_request(earlier.topic_id, request_id):
            return earlier
        validate_topic_name(name)
        self._check_absent(name)
        given = dict(configs or {})
        config = parse_config(TopicConfig, given)
        count = self._count_partitions(name, num_partitions, replication_factor, assignments or {})
        partitions = [FakePartition() for _ in range(count)]
        topic_id = topic_id_of_request(request_id, TopicId(uuid.uuid4().bytes))
        topic = FakeTopic(name, topic_id, partitions, config, given)
        if not validate_only:
            self._topics[name] = topic
        return topic

    def add_partitions(self, wanted: NewPartitions, validate_only: bool) -> None:
        """Check everything as a controller does, then add partitions to a topic unless ``validate_only``.

        Raises:
            TidelogError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT.
        """
        partitions = self.topic(wanted.name).partitions
        if wanted.count <= len(partitions):
            text = (
                f"The topic {wanted.name} currently has {len(partitions)} partition(s); {wanted.count} would not be an "
                f"increase."
            )
            raise error_for(ErrorCode.INVALID_PARTITIONS, text)
        added = wanted.count - len(partitions)
        if wanted.assignments and len(wanted.assignments) != added:
            text = f"topic {wanted.name!r} gets {added} more partitions, but {len(wanted.assignments)} are assigned"
            raise error_for(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        for index, assignment in enumerate(wanted.assignments, len(partitions)):
            _check_replicas(wanted.name, index, assignment.broker_ids)
        if not validate_only:
            partitions += [FakePartition() for _ in range(added)]

    def change_configs(self, name: str, configs: Mapping[str, str], validate_only: bool) -> None:
        """Replace what is set on a topic, unless ``validate_only``. Raises INVALID_CONFIG."""
        topic = self.topic(name)
        config = parse_config(TopicConfig, configs)
        if not validate_only:
            topic.config, topic.configs = config, dict(configs)

    def delete(self, name: str) -> FakeTopic:
        """Remove a topic and its records. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        topic = self.topic(name)
        del self._topics[name]
        return topic

    def check_invariants(self) -> None:
        """Assert the invariants of every partition."""
        for topic in self._topics.values():
            for partition in topic.partitions:
                partition.check_invariants()

    def _check_absent(self, name: str) -> None:
        if name in self._topics:
            raise error_for(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        for other in self._topics:
            if collision_key(other) == collision_key(name):
                text = f"Topic '{name}' collides with existing topic: {other}"
                raise error_for(ErrorCode.INVALID_TOPIC_EXCEPTION, text)

    def _count_partitions(
        self, name: str, num_partitions: int, replication_factor: int, assignments: Mapping[int, Sequence[int]]
    ) -> int:
        if assignments:
            return _check_assignments(name, num_partitions, replication_factor, assignments)
        if num_partitions == 0 or num_partitions < -1:
            raise error_for(ErrorCode.INVALID_PARTITIONS, f'topic "{name}": {num_partitions} partitions; at least 1')
        if replication_factor == 0 or replication_factor < -1 or replication_factor > 1:
            raise error_for(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f'topic "{name}": a replication factor of {replication_factor} cannot be reached by 1 node',
            )
        return self._default_partitions if num_partitions == -1 else num_partitions


def _check_assignments(
    name: str, num_partitions: int, replication_factor: int, assignments: Mapping[int, Sequence[int]]
) -> int:
    if num_partitions != -1 or replication_factor != -1:
        raise error_for(
            ErrorCode.INVALID_REQUEST,
            f'topic "{name}": partitions and replication factor must be -1 when assignments are given',
        )
    if sorted(assignments) != list(range(len(assignments))):
        raise error_for(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f'topic "{name}": partitions must be 0, 1, 2 ...')
    for index, brokers in assignments.items():
        _check_replicas(name, index, brokers)
    return len(assignments)


def _check_replicas(name: str, index: int, brokers: Sequence[int]) -> None:
    if list(brokers) != [NODE_ID]:
        raise error_for(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{name}-{index}: brokers {list(brokers)}; the only node is {NODE_ID}",
        )

"""The replicas on their nodes' disks, with the names of Kafka's Java client (KIP-113, KIP-827)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidelog.admin.operations import Future, Operations, Outcomes
from tidelog.cluster.answers import error_of
from tidelog.message import TopicPartition
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError


@dataclass(frozen=True, slots=True, order=True)
class TopicPartitionReplica:
    """A replica of a partition on one node."""

    topic: str
    partition: int
    broker_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.broker_id}"


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """A replica in a log directory: its size in bytes, and the number of offsets that it is behind.

    ``is_future`` marks the copy of a replica that is moving to this directory and will replace it.
    """

    size: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log directory of a node. ``error`` is the reason if it is offline. Bytes are those of its file system, -1 if
    unknown.

    A directory contains a replica or the copy that will replace it, never both.
    """

    error: TidelogError | None = None
    replica_infos: dict[TopicPartition, ReplicaInfo] = field(default_factory=dict)
    total_bytes: int = -1
    usable_bytes: int = -1

    @classmethod
    def from_proto(cls, message: pb.LogDirResult) -> LogDirDescription:
        """Return the description in a response."""
        replicas = {
            TopicPartition(topic.name, p.index): ReplicaInfo(p.size_bytes, p.offset_lag, p.is_future)
            for topic in message.topics
            for p in topic.partitions
        }
        return cls(error_of(message), replicas, message.total_bytes, message.usable_bytes)


class LogDirAdmin(Operations):
    """Operations on log directories."""

    def describe_log_dirs(
        self, broker_ids: Iterable[int], *, request_timeout: float | None = None
    ) -> dict[int, Future[dict[str, LogDirDescription]]]:
        """Describe the log directories of nodes, for each node by path (KIP-113)."""
        ids = list(broker_ids)

        async def describe(broker_id: int) -> Outcomes[int, dict[str, LogDirDescription]]:
            timeout_ms = self._request_ms(request_timeout)
            connection = await self._node(broker_id, timeout_ms, ErrorCode.BROKER_NOT_AVAILABLE)
            request = pb.DescribeLogDirsRequest()
            response = await connection.call(lambda c: c.log.DescribeLogDirs(request, timeout=timeout_ms / 1000))
            return {broker_id: {message.path: LogDirDescription.from_proto(message) for message in response.log_dirs}}

        return {broker_id: self._futures([broker_id], describe(broker_id))[broker_id] for broker_id in ids}

    def alter_replica_log_dirs(
        self, replica_assignment: Mapping[TopicPartitionReplica, str], *, request_timeout: float | None = None
    ) -> dict[TopicPartitionReplica, Future[None]]:
        """Move replicas to other log directories of their nodes, each given as a path of ``log.dirs`` (KIP-113).

        A future is done when the move has started; :meth:`describe_log_dirs` shows its progress.
        """
        by_node: dict[int, dict[TopicPartitionReplica, str]] = {}
        for replica, path in replica_assignment.items():
            by_node.setdefault(replica.broker_id, {})[replica] = path

        async def move(broker_id: int) -> Outcomes[TopicPartitionReplica, None]:
            timeout_ms = self._request_ms(request_timeout)
            connection = await self._node(broker_id, timeout_ms, ErrorCode.BROKER_NOT_AVAILABLE)
            request = _move_request(by_node[broker_id])
            response = await connection.call(lambda c: c.log.AlterReplicaLogDirs(request, timeout=timeout_ms / 1000))
            return {
                TopicPartitionReplica(topic.name, p.index, broker_id): error_of(p)
                for topic in response.topics
                for p in topic.partitions
            }

        futures: dict[TopicPartitionReplica, Future[None]] = {}
        for broker_id, replicas in by_node.items():
            futures |= self._futures(list(replicas), move(broker_id))
        return futures


def _move_request(targets: Mapping[TopicPartitionReplica, str]) -> pb.AlterReplicaLogDirsRequest:
    by_path: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for replica, path in targets.items():
        by_path[path][replica.topic].append(replica.partition)
    directories = [
        pb.AlterReplicaLogDir(
            path=path,
            topics=[pb.AlterReplicaLogDirTopic(name=name, partitions=indexes) for name, indexes in topics.items()],
        )
        for path, topics in by_path.items()
    ]
    return pb.AlterReplicaLogDirsRequest(log_dirs=directories)

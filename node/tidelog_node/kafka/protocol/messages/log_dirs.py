"""DescribeLogDirs and AlterReplicaLogDirs (KIP-113, KIP-827)."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import INT32, Message, Structure, array, boolean, int16, int32, int64, string


@dataclass(slots=True)
class DescribableLogDirTopic(Structure):
    """Partitions of a topic."""

    topic: str = string()
    partitions: list[int] = array(INT32)


@dataclass(slots=True)
class DescribeLogDirsRequest(Message):
    """A request for replicas: null for all of the node, an empty list for none."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.DESCRIBE_LOG_DIRS, (1, 4), 2

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable=0)


@dataclass(slots=True)
class DescribeLogDirsPartition(Structure):
    """A replica. A future one will replace the replica that is being moved."""

    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


@dataclass(slots=True)
class DescribeLogDirsTopic(Structure):
    """The replicas of a topic in a directory."""

    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


@dataclass(slots=True)
class DescribeLogDirsResult(Structure):
    """A log directory, and the space of its file system, -1 if unknown."""

    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(default=-1, since=4)
    usable_bytes: int = int64(default=-1, since=4)


@dataclass(slots=True)
class DescribeLogDirsResponse(Message):
    """The log directories of the node."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.DESCRIBE_LOG_DIRS, (1, 4), 2

    throttle_time_ms: int = int32()
    error_code: int = int16(since=3)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)


@dataclass(slots=True)
class AlterReplicaLogDirTopic(Structure):
    """Partitions of a topic."""

    name: str = string()
    partitions: list[int] = array(INT32)


@dataclass(slots=True)
class AlterReplicaLogDir(Structure):
    """A directory, and the replicas to move to it."""

    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


@dataclass(slots=True)
class AlterReplicaLogDirsRequest(Message):
    """Moves of replicas between the directories of the node."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.ALTER_REPLICA_LOG_DIRS, (1, 2), 2

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


@dataclass(slots=True)
class AlterReplicaLogDirPartitionResult(Structure):
    """The result of one move."""

    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True)
class AlterReplicaLogDirTopicResult(Structure):
    """The moves of a topic's replicas."""

    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


@dataclass(slots=True)
class AlterReplicaLogDirsResponse(Message):
    """One result per replica."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.ALTER_REPLICA_LOG_DIRS, (1, 2), 2

    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)

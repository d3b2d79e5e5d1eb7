"""DescribeLogDirs and AlterReplicaLogDirs (KIP-113, KIP-827)."""

from __future__ import annotations

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import INT32, Message, Structure, array, boolean, int16, int32, int64, string


class DescribableLogDirTopic(Structure):
    """Partitions of a topic."""

    topic: str = string()
    partitions: list[int] = array(INT32)


class DescribeLogDirsRequest(Message, api=ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 4), flexible=2):
    """A request for replicas: null for all of the node, an empty list for none."""

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable=0)


class DescribeLogDirsPartition(Structure):
    """A replica. A future one will replace the replica that is being moved."""

    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


class DescribeLogDirsTopic(Structure):
    """The replicas of a topic in a directory."""

    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Structure):
    """A log directory, and the space of its file system, -1 if unknown."""

    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(default=-1, since=4)
    usable_bytes: int = int64(default=-1, since=4)


class DescribeLogDirsResponse(Message, answers=DescribeLogDirsRequest):
    """The log directories of the node."""

    throttle_time_ms: int = int32()
    error_code: int = int16(since=3)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)


class AlterReplicaLogDirTopic(Structure):
    """Partitions of a topic."""

    name: str = string()
    partitions: list[int] = array(INT32)


class AlterReplicaLogDir(Structure):
    """A directory, and the replicas to move to it."""

    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


class AlterReplicaLogDirsRequest(Message, api=ApiKey.ALTER_REPLICA_LOG_DIRS, versions=(1, 2), flexible=2):
    """Moves of replicas between the directories of the node."""

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


class AlterReplicaLogDirPartitionResult(Structure):
    """The result of one move."""

    partition_index: int = int32()
    error_code: int = int16()


class AlterReplicaLogDirTopicResult(Structure):
    """The moves of a topic's replicas."""

    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


class AlterReplicaLogDirsResponse(Message, answers=AlterReplicaLogDirsRequest):
    """One result per replica."""

    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)

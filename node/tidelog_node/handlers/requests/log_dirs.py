"""Requests about a node's log directories: DescribeLogDirs and AlterReplicaLogDirs."""

from __future__ import annotations

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.requests.partitions import TopicPartitions


@dataclass(frozen=True, slots=True)
class DescribeLogDirsRequest:
    """A request for the log directories with these replicas, or with all replicas if there are no topics."""

    topics: tuple[TopicPartitions, ...] = ()


@dataclass(frozen=True, slots=True)
class LogDirPartition:
    """A replica in a directory.

    ``offset_lag`` is the lag of a copy, ``is_future``, behind the replica that it will replace. For other replicas it
    is the distance from the log's end to the high watermark.
    """

    index: int
    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirTopic:
    """The replicas of one topic."""

    name: str
    partitions: tuple[LogDirPartition, ...]


@dataclass(frozen=True, slots=True)
class LogDirResult:
    """A directory and its file system's size, -1 if unknown. With an error it is offline and has no known replicas."""

    path: str
    topics: tuple[LogDirTopic, ...]
    total_bytes: int
    usable_bytes: int
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class DescribeLogDirsResponse:
    """The log directories."""

    log_dirs: tuple[LogDirResult, ...]


@dataclass(frozen=True, slots=True)
class AlterReplicaLogDir:
    """A path of ``log.dirs``, and the replicas to move to it."""

    path: str
    topics: tuple[TopicPartitions, ...]


@dataclass(frozen=True, slots=True)
class AlterReplicaLogDirsRequest:
    """A request to move replicas."""

    log_dirs: tuple[AlterReplicaLogDir, ...]


@dataclass(frozen=True, slots=True)
class AlterReplicaLogDirPartitionResult:
    """The result for one replica: no error if its move has begun."""

    index: int
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class AlterReplicaLogDirTopicResult:
    """The results for one topic."""

    name: str
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...]


@dataclass(frozen=True, slots=True)
class AlterReplicaLogDirsResponse:
    """The results, sorted by topic and partition."""

    topics: tuple[AlterReplicaLogDirTopicResult, ...]

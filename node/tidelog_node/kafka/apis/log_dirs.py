"""DescribeLogDirs and AlterReplicaLogDirs of this node."""

from __future__ import annotations

from collections.abc import Generator

from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node import handlers
from tidelog_node.handlers.requests import log_dirs as values
from tidelog_node.kafka.apis.errors import code_of
from tidelog_node.kafka.protocol.messages.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tidelog_node.kafka.served import Api, Caller, KafkaNode, MessageApi


async def describe_log_dirs(
    node: KafkaNode, request: DescribeLogDirsRequest, caller: Caller
) -> DescribeLogDirsResponse:
    """Describe the log directories with all, the requested, or no replicas."""
    slices = TimeSlices()
    topics = [TopicPartitions(topic.topic, tuple(topic.partitions)) async for topic in slices.of(request.topics or ())]
    response = await handlers.describe_log_dirs(node.context, values.DescribeLogDirsRequest(tuple(topics)))
    shows_replicas = request.topics is None or bool(request.topics)
    return DescribeLogDirsResponse(
        results=[await slices.result_of(_directory(d, shows_replicas)) for d in response.log_dirs]
    )


async def alter_replica_log_dirs(
    node: KafkaNode, request: AlterReplicaLogDirsRequest, caller: Caller
) -> AlterReplicaLogDirsResponse:
    """Begin to move replicas to other log directories."""
    slices = TimeSlices()
    directories: list[values.AlterReplicaLogDir] = []
    async for directory in slices.of(request.dirs):
        topics = [TopicPartitions(topic.name, tuple(topic.partitions)) async for topic in slices.of(directory.topics)]
        directories.append(values.AlterReplicaLogDir(directory.path, tuple(topics)))
    asked = values.AlterReplicaLogDirsRequest(tuple(directories))
    response = await handlers.alter_replica_log_dirs(node.context, asked)
    results = [
        AlterReplicaLogDirTopicResult(
            t.name,
            [AlterReplicaLogDirPartitionResult(p.index, code_of(p.error)) async for p in slices.of(t.partitions)],
        )
        async for t in slices.of(response.topics)
    ]
    return AlterReplicaLogDirsResponse(results=results)


def _directory(directory: values.LogDirResult, shows_replicas: bool) -> Generator[None, None, DescribeLogDirsResult]:
    """Return a directory with its replicas, one a step."""
    result = DescribeLogDirsResult(
        error_code=code_of(directory.error),
        log_dir=directory.path,
        topics=[],
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
    )
    for topic in directory.topics if shows_replicas else ():
        replicas: list[DescribeLogDirsPartition] = []
        result.topics.append(DescribeLogDirsTopic(topic.name, replicas))
        for p in topic.partitions:
            replicas.append(DescribeLogDirsPartition(p.index, p.size_bytes, p.offset_lag, p.is_future))
            yield
    return result


APIS: tuple[Api, ...] = (
    MessageApi(DescribeLogDirsRequest, describe_log_dirs),
    MessageApi(AlterReplicaLogDirsRequest, alter_replica_log_dirs),
)

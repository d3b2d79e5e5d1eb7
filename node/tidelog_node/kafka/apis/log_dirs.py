"""DescribeLogDirs and AlterReplicaLogDirs of this node."""

from __future__ import annotations

from collections.abc import Generator

from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node import handlers
from tidelog_node.handlers.requests import log_dirs as values
from tidelog_node.kafka.apis.errors import code_of
from tidelog_node.kafka.protocol.messages import log_dirs as wire
from tidelog_node.kafka.served import Api, Caller, KafkaNode, MessageApi


async def describe_log_dirs(
    node: KafkaNode, request: wire.DescribeLogDirsRequest, caller: Caller
) -> wire.DescribeLogDirsResponse:
    """Describe the log directories with all, the requested, or no replicas."""
    slices = TimeSlices()
    topics = [TopicPartitions(topic.topic, tuple(topic.partitions)) async for topic in slices.of(request.topics or ())]
    response = await handlers.describe_log_dirs(node.context, values.DescribeLogDirsRequest(tuple(topics)))
    shows_replicas = request.topics is None or bool(request.topics)
    return wire.DescribeLogDirsResponse(
        results=[await slices.result_of(_directory(d, shows_replicas)) for d in response.log_dirs]
    )


async def alter_replica_log_dirs(
    node: KafkaNode, request: wire.AlterReplicaLogDirsRequest, caller: Caller
) -> wire.AlterReplicaLogDirsResponse:
    """Begin to move replicas to other log directories."""
    slices = TimeSlices()
    directories: list[values.AlterReplicaLogDir] = []
    async for directory in slices.of(request.dirs):
        topics = [TopicPartitions(topic.name, tuple(topic.partitions)) async for topic in slices.of(directory.topics)]
        directories.append(values.AlterReplicaLogDir(directory.path, tuple(topics)))
    asked = values.AlterReplicaLogDirsRequest(tuple(directories))
    response = await handlers.alter_replica_log_dirs(node.context, asked)
    results = [
        wire.AlterReplicaLogDirTopicResult(
            t.name,
            [wire.AlterReplicaLogDirPartitionResult(p.index, code_of(p.error)) async for p in slices.of(t.partitions)],
        )
        async for t in slices.of(response.topics)
    ]
    return wire.AlterReplicaLogDirsResponse(results=results)


def _directory(
    directory: values.LogDirResult, shows_replicas: bool
) -> Generator[None, None, wire.DescribeLogDirsResult]:
    """Return a directory with its replicas, one a step."""
    result = wire.DescribeLogDirsResult(
        error_code=code_of(directory.error),
        log_dir=directory.path,
        topics=[],
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
    )
    for topic in directory.topics if shows_replicas else ():
        replicas: list[wire.DescribeLogDirsPartition] = []
        result.topics.append(wire.DescribeLogDirsTopic(topic.name, replicas))
        for p in topic.partitions:
            replicas.append(wire.DescribeLogDirsPartition(p.index, p.size_bytes, p.offset_lag, p.is_future))
            yield
    return result


APIS: tuple[Api, ...] = (
    MessageApi(wire.DescribeLogDirsRequest, describe_log_dirs),
    MessageApi(wire.AlterReplicaLogDirsRequest, alter_replica_log_dirs),
)

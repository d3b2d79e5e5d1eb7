"""DescribeLogDirs and AlterReplicaLogDirs of this node."""

from __future__ import annotations

from tidelog.v1 import log_service_pb2 as pb
from tidelog_node import handlers
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
from tidelog_node.partitions.time_slices import TimeSlices


async def describe_log_dirs(
    node: KafkaNode, request: DescribeLogDirsRequest, caller: Caller
) -> DescribeLogDirsResponse:
    """Describe the log directories with all, the requested, or no replicas."""
    topics = [pb.DescribableLogDirTopic(name=t.topic, partitions=t.partitions) for t in request.topics or ()]
    response = await handlers.describe_log_dirs(node.context, pb.DescribeLogDirsRequest(topics=topics))
    shows_replicas = request.topics is None or bool(request.topics)
    return DescribeLogDirsResponse(results=[_directory(d, shows_replicas) for d in response.log_dirs])


async def alter_replica_log_dirs(
    node: KafkaNode, request: AlterReplicaLogDirsRequest, caller: Caller
) -> AlterReplicaLogDirsResponse:
    """Begin to move replicas to other log directories."""
    call = pb.AlterReplicaLogDirsRequest(
        log_dirs=[
            pb.AlterReplicaLogDir(
                path=d.path,
                topics=[pb.AlterReplicaLogDirTopic(name=t.name, partitions=t.partitions) for t in d.topics],
            )
            for d in request.dirs
        ]
    )
    response = await handlers.alter_replica_log_dirs(node.context, call)
    slices = TimeSlices()
    results = [
        AlterReplicaLogDirTopicResult(
            t.name,
            [AlterReplicaLogDirPartitionResult(p.index, p.error.code) async for p in slices.of(t.partitions)],
        )
        async for t in slices.of(response.topics)
    ]
    return AlterReplicaLogDirsResponse(results=results)


def _directory(directory: pb.LogDirResult, shows_replicas: bool) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(
        error_code=directory.error.code,
        log_dir=directory.path,
        topics=[_topic(t) for t in directory.topics] if shows_replicas else [],
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
    )


def _topic(topic: pb.LogDirTopic) -> DescribeLogDirsTopic:
    replicas = [DescribeLogDirsPartition(p.index, p.size_bytes, p.offset_lag, p.is_future) for p in topic.partitions]
    return DescribeLogDirsTopic(topic.name, replicas)


APIS: tuple[Api, ...] = (
    MessageApi(DescribeLogDirsRequest, describe_log_dirs),
    MessageApi(AlterReplicaLogDirsRequest, alter_replica_log_dirs),
)

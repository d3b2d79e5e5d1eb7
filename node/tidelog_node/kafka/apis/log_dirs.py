"""DescribeLogDirs and AlterReplicaLogDirs of this node."""

from __future__ import annotations

from collections.abc import Generator

from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.time_slices import TimeSlices
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


async def describe_log_dirs(
    node: KafkaNode, request: DescribeLogDirsRequest, caller: Caller
) -> DescribeLogDirsResponse:
    """Describe the log directories with all, the requested, or no replicas."""
    call = pb.DescribeLogDirsRequest()
    slices = TimeSlices()
    async for topic in slices.of(request.topics or ()):
        call.topics.add(name=topic.topic, partitions=topic.partitions)
    response = await handlers.describe_log_dirs(node.context, call)
    shows_replicas = request.topics is None or bool(request.topics)
    return DescribeLogDirsResponse(
        results=[await slices.result_of(_directory(d, shows_replicas)) for d in response.log_dirs]
    )


async def alter_replica_log_dirs(
    node: KafkaNode, request: AlterReplicaLogDirsRequest, caller: Caller
) -> AlterReplicaLogDirsResponse:
    """Begin to move replicas to other log directories."""
    call = pb.AlterReplicaLogDirsRequest()
    slices = TimeSlices()
    async for directory in slices.of(request.dirs):
        asked = call.log_dirs.add(path=directory.path)
        async for topic in slices.of(directory.topics):
            asked.topics.add(name=topic.name, partitions=topic.partitions)
    response = await handlers.alter_replica_log_dirs(node.context, call)
    results = [
        AlterReplicaLogDirTopicResult(
            t.name,
            [AlterReplicaLogDirPartitionResult(p.index, p.error.code) async for p in slices.of(t.partitions)],
        )
        async for t in slices.of(response.topics)
    ]
    return AlterReplicaLogDirsResponse(results=results)


def _directory(directory: pb.LogDirResult, shows_replicas: bool) -> Generator[None, None, DescribeLogDirsResult]:
    """Return a directory with its replicas, one a step."""
    result = DescribeLogDirsResult(
        error_code=directory.error.code,
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

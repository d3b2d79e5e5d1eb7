"""DescribeLogDirs and AlterReplicaLogDirs: the location of this node's replicas on its disks (KIP-113, KIP-827)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Set

from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.handlers.context import NodeContext, error_message
from tidelog_node.partitions.descriptions import LogDirectoryDescription
from tidelog_node.partitions.time_slices import TimeSlices


async def describe_log_dirs(context: NodeContext, request: pb.DescribeLogDirsRequest) -> pb.DescribeLogDirsResponse:
    """Describe every log directory with all or the requested replicas."""
    wanted = {t.name: set(t.partitions) for t in request.topics} or None
    directories = await context.partitions.describe_log_dirs()
    return pb.DescribeLogDirsResponse(log_dirs=[_describe(directory, wanted) for directory in directories])


async def alter_replica_log_dirs(
    context: NodeContext, request: pb.AlterReplicaLogDirsRequest
) -> pb.AlterReplicaLogDirsResponse:
    """Begin to move each replica to its new directory; errors are in the results."""
    targets = [(t.name, index, d.path) for d in request.log_dirs for t in d.topics for index in t.partitions]
    response = pb.AlterReplicaLogDirsResponse()
    slices = TimeSlices()
    for name, moves in itertools.groupby(sorted(targets), lambda target: target[0]):
        topic = response.topics.add(name=name)
        async for index, of_one in slices.of(itertools.groupby(moves, lambda target: target[1])):
            error = await _move(context, name, index, [path for _, _, path in of_one])
            topic.partitions.add(index=index, error=None if error is None else error_message(error))
    return response


async def _move(context: NodeContext, topic: str, index: int, paths: list[str]) -> TidelogError | None:
    try:
        if len(paths) > 1:
            raise error_for(ErrorCode.INVALID_REQUEST, f"{topic}-{index} cannot move to {' and '.join(paths)} at once")
        await context.partitions.move(topic, index, paths[0])
    except TidelogError as error:
        return error
    return None


def _describe(directory: LogDirectoryDescription, wanted: Mapping[str, Set[int]] | None) -> pb.LogDirResult:
    result = pb.LogDirResult(
        error=None if directory.error is None else error_message(directory.error),
        path=str(directory.path),
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
    )
    replicas = sorted(directory.replicas, key=lambda r: (r.topic, r.partition, r.is_future))
    for name, of_topic in itertools.groupby(replicas, lambda replica: replica.topic):
        shown = [r for r in of_topic if wanted is None or r.partition in wanted.get(name, ())]
        if shown:
            partitions = [
                pb.LogDirPartition(
                    index=r.partition, size_bytes=r.size_in_bytes, offset_lag=r.offset_lag, is_future=r.is_future
                )
                for r in shown
            ]
            result.topics.add(name=name, partitions=partitions)
    return result

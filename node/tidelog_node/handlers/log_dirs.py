"""DescribeLogDirs and AlterReplicaLogDirs: the location of this node's replicas on its disks (KIP-113, KIP-827)."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Set

from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.handlers.context import NodeContext, error_message
from tidelog_node.partitions.directories.descriptions import LogDirectoryDescription


async def describe_log_dirs(context: NodeContext, request: pb.DescribeLogDirsRequest) -> pb.DescribeLogDirsResponse:
    """Describe every log directory with all or the requested replicas."""
    slices = TimeSlices()
    wanted = {t.name: set(t.partitions) async for t in slices.of(request.topics)} or None
    directories = await context.partitions.describe_log_dirs()
    response = pb.DescribeLogDirsResponse()
    for directory in directories:
        await slices.result_of(_describe(response.log_dirs.add(), directory, wanted))
    return response


async def alter_replica_log_dirs(
    context: NodeContext, request: pb.AlterReplicaLogDirsRequest
) -> pb.AlterReplicaLogDirsResponse:
    """Begin to move each replica to its new directory; errors are in the results."""
    slices = TimeSlices()
    paths: dict[str, dict[int, list[str]]] = {}
    async for directory in slices.of(request.log_dirs):
        async for topic in slices.of(directory.topics):
            async for index in slices.of(topic.partitions):
                paths.setdefault(topic.name, {}).setdefault(index, []).append(directory.path)
    response = pb.AlterReplicaLogDirsResponse()
    async for name in slices.of(sorted(paths)):
        results = response.topics.add(name=name).partitions
        async for index in slices.of(sorted(paths[name])):
            error = await _move(context, name, index, sorted(paths[name][index]))
            results.add(index=index, error=None if error is None else error_message(error))
    return response


async def _move(context: NodeContext, topic: str, index: int, paths: list[str]) -> TidelogError | None:
    try:
        if len(paths) > 1:
            raise error_for(ErrorCode.INVALID_REQUEST, f"{topic}-{index} cannot move to {' and '.join(paths)} at once")
        await context.partitions.move(topic, index, paths[0])
    except TidelogError as error:
        return error
    return None


def _describe(
    result: pb.LogDirResult, directory: LogDirectoryDescription, wanted: Mapping[str, Set[int]] | None
) -> Generator[None, None, None]:
    """Write a directory with its replicas, one a step."""
    if directory.error is not None:
        result.error.CopyFrom(error_message(directory.error))
    result.path = str(directory.path)
    result.total_bytes, result.usable_bytes = directory.total_bytes, directory.usable_bytes
    topic = None
    for replica in sorted(directory.replicas, key=lambda r: (r.topic, r.partition, r.is_future)):
        yield
        if wanted is not None and replica.partition not in wanted.get(replica.topic, ()):
            continue
        if topic is None or topic.name != replica.topic:
            topic = result.topics.add(name=replica.topic)
        topic.partitions.add(
            index=replica.partition,
            size_bytes=replica.size_in_bytes,
            offset_lag=replica.offset_lag,
            is_future=replica.is_future,
        )

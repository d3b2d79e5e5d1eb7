"""DescribeLogDirs and AlterReplicaLogDirs: the location of this node's replicas on its disks (KIP-113, KIP-827)."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Set

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.handlers.context import NodeContext
from tidelog_node.handlers.requests import log_dirs as requests
from tidelog_node.partitions.directories.descriptions import LogDirectoryDescription


async def describe_log_dirs(
    context: NodeContext, request: requests.DescribeLogDirsRequest
) -> requests.DescribeLogDirsResponse:
    """Describe every log directory with all or the requested replicas."""
    slices = TimeSlices()
    wanted = {t.name: set(t.partitions) async for t in slices.of(request.topics)} or None
    directories = await context.partitions.describe_log_dirs()
    return requests.DescribeLogDirsResponse(
        tuple([await slices.result_of(_describe(each, wanted)) for each in directories])
    )


async def alter_replica_log_dirs(
    context: NodeContext, request: requests.AlterReplicaLogDirsRequest
) -> requests.AlterReplicaLogDirsResponse:
    """Begin to move each replica to its new directory; errors are in the results."""
    slices = TimeSlices()
    paths: dict[str, dict[int, list[str]]] = {}
    async for directory in slices.of(request.log_dirs):
        async for topic in slices.of(directory.topics):
            async for index in slices.of(topic.partitions):
                paths.setdefault(topic.name, {}).setdefault(index, []).append(directory.path)
    topics: list[requests.AlterReplicaLogDirTopicResult] = []
    async for name in slices.of(sorted(paths)):
        results = [
            requests.AlterReplicaLogDirPartitionResult(
                index, await _move(context, name, index, sorted(paths[name][index]))
            )
            async for index in slices.of(sorted(paths[name]))
        ]
        topics.append(requests.AlterReplicaLogDirTopicResult(name, tuple(results)))
    return requests.AlterReplicaLogDirsResponse(tuple(topics))


async def _move(context: NodeContext, topic: str, index: int, paths: list[str]) -> TidelogError | None:
    try:
        if len(paths) > 1:
            raise error_for(ErrorCode.INVALID_REQUEST, f"{topic}-{index} cannot move to {' and '.join(paths)} at once")
        if context.settings.current.cordoned_log_dirs:
            text = f"{topic}-{index} cannot move to {paths[0]}: it is cordoned (KIP-1066)"
            raise error_for(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        await context.partitions.move(topic, index, paths[0])
    except TidelogError as error:
        return error.detached()
    return None


def _describe(
    directory: LogDirectoryDescription, wanted: Mapping[str, Set[int]] | None
) -> Generator[None, None, requests.LogDirResult]:
    """Return a directory with its replicas, one a step."""
    topics: dict[str, list[requests.LogDirPartition]] = {}
    for replica in sorted(directory.replicas, key=lambda r: (r.topic, r.partition, r.is_future)):
        yield
        if wanted is None or replica.partition in wanted.get(replica.topic, ()):
            topics.setdefault(replica.topic, []).append(
                requests.LogDirPartition(
                    replica.partition, replica.size_in_bytes, replica.offset_lag, replica.is_future
                )
            )
    return requests.LogDirResult(
        str(directory.path),
        tuple(requests.LogDirTopic(name, tuple(replicas)) for name, replicas in topics.items()),
        directory.total_bytes,
        directory.usable_bytes,
        directory.error,
    )

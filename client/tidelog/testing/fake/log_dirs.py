"""DescribeLogDirs and AlterReplicaLogDirs of the fake: one directory, in memory, that never fails."""

from __future__ import annotations

from tidelog.testing.fake.faults import error_message
from tidelog.testing.fake.topics import TopicTable
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

LOG_DIR = "/fake"


def describe_log_dirs(table: TopicTable, request: pb.DescribeLogDirsRequest) -> pb.DescribeLogDirsResponse:
    """Describe the directory with all replicas, or those that are asked for."""
    wanted = {topic.name: set(topic.partitions) for topic in request.topics}
    directory = pb.LogDirResult(path=LOG_DIR, total_bytes=-1, usable_bytes=-1)
    with table.changed:
        for name in table.names():
            partitions = [
                pb.LogDirPartition(index=index, size_bytes=partition.size_in_bytes)
                for index, partition in enumerate(table.topic(name).partitions)
                if not wanted or index in wanted.get(name, ())
            ]
            if partitions:
                directory.topics.add(name=name, partitions=partitions)
    return pb.DescribeLogDirsResponse(log_dirs=[directory])


def alter_replica_log_dirs(table: TopicTable, request: pb.AlterReplicaLogDirsRequest) -> pb.AlterReplicaLogDirsResponse:
    """Say of each replica whether it could be moved to where it is."""
    response = pb.AlterReplicaLogDirsResponse()
    with table.changed:
        for directory in request.log_dirs:
            for topic in directory.topics:
                results = response.topics.add(name=topic.name)
                for index in topic.partitions:
                    error = _move_error(table, topic.name, index, directory.path)
                    results.partitions.add(index=index, error=None if error is None else error_message(error))
    return response


def _move_error(table: TopicTable, topic: str, index: int, path: str) -> TidelogError | None:
    if path != LOG_DIR:
        return error_for(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not in log.dirs")
    try:
        table.partition(topic, index)
    except TidelogError:
        return error_for(ErrorCode.REPLICA_NOT_AVAILABLE, f"this node has no replica of {topic}-{index}")
    return None

"""Elections and reassignments of the fake, whose only node leads every partition and holds the only replica."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tidelog.testing.fake.faults import error_message
from tidelog.testing.fake.topics import NODE_ID, TopicTable
from tidelog.v1 import admin_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for


def elect_leaders(table: TopicTable, request: pb.ElectLeadersRequest) -> pb.ElectLeadersResponse:
    """Say of each partition that is there that its leader leads; of all, none needs an election."""
    if request.election_type not in pb.ElectionType.values():
        raise error_for(ErrorCode.INVALID_REQUEST, f"there is no election type {request.election_type}")
    response = pb.ElectLeadersResponse()
    for topic in () if request.all_partitions else request.topics:
        results = response.topics.add(name=topic.name)
        for index in dict.fromkeys(topic.partitions):
            try:
                with table.changed:
                    table.partition(topic.name, index)
                error = error_for(ErrorCode.ELECTION_NOT_NEEDED, f"{topic.name}-{index} is led by {NODE_ID}")
            except TidelogError as unknown:
                error = unknown
            results.partitions.add(index=index, error=error_message(error))
    return response


def alter_partition_reassignments(
    table: TopicTable, request: pb.AlterPartitionReassignmentsRequest
) -> pb.AlterPartitionReassignmentsResponse:
    """Accept for each partition the replica that it has, and nothing else."""
    counts = Counter((topic.name, p.index) for topic in request.topics for p in topic.partitions)
    response = pb.AlterPartitionReassignmentsResponse()
    for topic in request.topics:
        results = response.topics.add(name=topic.name)
        for asked in topic.partitions:
            result = results.partitions.add(index=asked.index)
            where = f"{topic.name}-{asked.index}"
            try:
                if counts[topic.name, asked.index] > 1:
                    text = f"{where} is named {counts[topic.name, asked.index]} times"
                    raise error_for(ErrorCode.INVALID_REQUEST, text)
                with table.changed:
                    table.partition(topic.name, asked.index)
                if not asked.HasField("replicas"):
                    text = f"no reassignment of {where} is in progress"
                    raise error_for(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, text)
                _check_target(where, asked.replicas.ids)
            except TidelogError as error:
                result.error.CopyFrom(error_message(error))
    return response


def _check_target(where: str, wanted: Iterable[int]) -> None:
    replicas = list(wanted)
    unknown = [broker for broker in replicas if broker != NODE_ID]
    problem = ""
    if not replicas:
        problem = "it has no replica"
    elif unknown:
        problem = f"it names brokers that are not registered: {unknown}"
    elif len(replicas) > 1:
        problem = f"it names a broker twice: {replicas}"
    if problem:
        raise error_for(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"reassignment of {where}: {problem}")

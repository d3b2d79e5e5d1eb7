"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments, forwarded to the leading controller.

An error of the call is in the top-level field and in each result, if there are results.
"""

from __future__ import annotations

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.requests import partitions as requests
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node import handlers
from tidelog_node.kafka.apis.errors import code_of, text_of
from tidelog_node.kafka.protocol.messages import replicas as wire
from tidelog_node.kafka.refusals import refused_election, refused_reassignment
from tidelog_node.kafka.served import Api, Caller, KafkaNode, MessageApi

_ELECTION_TYPES = {0: requests.ElectionType.PREFERRED, 1: requests.ElectionType.UNCLEAN}


async def elect_leaders(
    node: KafkaNode, request: wire.ElectLeadersRequest, caller: Caller
) -> wire.ElectLeadersResponse:
    """Elect leaders for the named partitions, or for all."""
    try:
        response = await handlers.forward(node.context, _election(request))
    except TidelogError as error:
        return await refused_election(request, error.code.code, error.message)
    slices = TimeSlices()
    results = [
        wire.ReplicaElectionResult(
            t.name,
            [wire.PartitionResult(p.index, code_of(p.error), text_of(p.error)) async for p in slices.of(t.partitions)],
        )
        async for t in slices.of(response.topics)
    ]
    return wire.ElectLeadersResponse(replica_election_results=results)


async def alter_partition_reassignments(
    node: KafkaNode, request: wire.AlterPartitionReassignmentsRequest, caller: Caller
) -> wire.AlterPartitionReassignmentsResponse:
    """Begin, replace or cancel reassignments."""
    is_allowed = request.allow_replication_factor_change
    slices = TimeSlices()
    topics = [
        requests.ReassignableTopic(t.name, tuple([_reassignable(p) async for p in slices.of(t.partitions)]))
        async for t in slices.of(request.topics)
    ]
    call = requests.AlterPartitionReassignmentsRequest(tuple(topics), request.timeout_ms, not is_allowed)
    try:
        response = await handlers.forward(node.context, call)
    except TidelogError as error:
        return await refused_reassignment(request, error.code.code, error.message)
    results = [
        wire.ReassignableTopicResponse(
            t.name,
            [
                wire.ReassignablePartitionResponse(p.index, code_of(p.error), text_of(p.error))
                async for p in slices.of(t.partitions)
            ],
        )
        async for t in slices.of(response.topics)
    ]
    return wire.AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=is_allowed, error_message=None, responses=results
    )


async def list_partition_reassignments(
    node: KafkaNode, request: wire.ListPartitionReassignmentsRequest, caller: Caller
) -> wire.ListPartitionReassignmentsResponse:
    """List the reassignments in progress of the named partitions, of none for an empty list, or of all for null."""
    topics = tuple(requests.TopicPartitions(t.name, tuple(t.partition_indexes)) for t in request.topics or ())
    if request.topics is not None and not topics:
        return wire.ListPartitionReassignmentsResponse(error_message=None)
    call = requests.ListPartitionReassignmentsRequest(topics=topics)
    try:
        response = await handlers.forward(node.context, call)
    except TidelogError as error:
        return wire.ListPartitionReassignmentsResponse(error_code=error.code.code, error_message=error.message)
    results = [wire.OngoingTopicReassignment(t.name, [_ongoing(p) for p in t.partitions]) for t in response.topics]
    return wire.ListPartitionReassignmentsResponse(error_message=None, topics=results)


def _election(request: wire.ElectLeadersRequest) -> requests.ElectLeadersRequest:
    kind = _ELECTION_TYPES.get(request.election_type)
    if kind is None:
        text = f"unknown election type {request.election_type}, expected 0 (preferred) or 1 (unclean)"
        raise error_for(ErrorCode.INVALID_REQUEST, text)
    topics = tuple(requests.TopicPartitions(t.topic, tuple(t.partitions)) for t in request.topic_partitions or ())
    return requests.ElectLeadersRequest(kind, topics, request.topic_partitions is None, request.timeout_ms)


def _reassignable(partition: wire.ReassignablePartition) -> requests.ReassignablePartition:
    replicas = None if partition.replicas is None else tuple(partition.replicas)
    return requests.ReassignablePartition(partition.partition_index, replicas)


def _ongoing(partition: requests.OngoingPartitionReassignment) -> wire.OngoingPartitionReassignment:
    return wire.OngoingPartitionReassignment(
        partition_index=partition.index,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding_replicas),
        removing_replicas=list(partition.removing_replicas),
    )


APIS: tuple[Api, ...] = (
    MessageApi(wire.ElectLeadersRequest, elect_leaders),
    MessageApi(wire.AlterPartitionReassignmentsRequest, alter_partition_reassignments),
    MessageApi(wire.ListPartitionReassignmentsRequest, list_partition_reassignments),
)

"""Responses with one error for every partition that a request names, as Kafka's requests make them."""

from __future__ import annotations

from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.kafka.protocol.messages import replicas as wire


async def refused_election(request: wire.ElectLeadersRequest, code: int, text: str) -> wire.ElectLeadersResponse:
    """Return the response to an election that failed as a whole."""
    slices = TimeSlices()
    results = [
        wire.ReplicaElectionResult(
            t.topic, [wire.PartitionResult(i, code, text) async for i in slices.of(t.partitions)]
        )
        async for t in slices.of(request.topic_partitions or ())
    ]
    return wire.ElectLeadersResponse(error_code=code, replica_election_results=results)


async def refused_reassignment(
    request: wire.AlterPartitionReassignmentsRequest, code: int, text: str
) -> wire.AlterPartitionReassignmentsResponse:
    """Return the response to reassignments that failed as a whole."""
    slices = TimeSlices()
    return wire.AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=code,
        error_message=text,
        responses=[
            wire.ReassignableTopicResponse(
                t.name,
                [
                    wire.ReassignablePartitionResponse(p.partition_index, code, text)
                    async for p in slices.of(t.partitions)
                ],
            )
            async for t in slices.of(request.topics)
        ],
    )

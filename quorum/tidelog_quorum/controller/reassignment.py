"""Moves partitions to other replicas (KIP-455)."""

from __future__ import annotations

from tidelog.v1 import admin_service_pb2 as pb
from tidelog_quorum.metadata.image import MetadataImage


def list_partition_reassignments(
    image: MetadataImage, request: pb.ListPartitionReassignmentsRequest
) -> pb.ListPartitionReassignmentsResponse:
    """List the reassignments under way."""
    return pb.ListPartitionReassignmentsResponse()

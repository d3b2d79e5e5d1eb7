"""Requests that only the leading controller can answer, forwarded by this node."""

from __future__ import annotations

from tidelog.v1 import admin_service_pb2 as pb
from tidelog.v1 import quorum_service_pb2 as quorum_pb
from tidelog_node.handlers.context import DEFAULT_TIMEOUT_MS, NodeContext, timeout_ms

_DEFAULT_TIMEOUT_S = DEFAULT_TIMEOUT_MS / 1000


async def elect_leaders(context: NodeContext, request: pb.ElectLeadersRequest) -> pb.ElectLeadersResponse:
    """Elect leaders.

    Raises:
        TidelogError: The controllers did not answer in time, or refused.
    """
    return await context.controller.elect_leaders(request, timeout_ms(request.timeout_ms) / 1000)


async def alter_partition_reassignments(
    context: NodeContext, request: pb.AlterPartitionReassignmentsRequest
) -> pb.AlterPartitionReassignmentsResponse:
    """Begin or cancel reassignments.

    Raises:
        TidelogError: The controllers did not answer in time, or refused.
    """
    return await context.controller.alter_partition_reassignments(request, timeout_ms(request.timeout_ms) / 1000)


async def update_features(context: NodeContext, request: pb.UpdateFeaturesRequest) -> pb.UpdateFeaturesResponse:
    """Change the levels of features.

    Raises:
        TidelogError: The controllers did not answer in time, or refused.
    """
    return await context.controller.update_features(request, timeout_ms(request.timeout_ms) / 1000)


async def unregister_broker(context: NodeContext, request: pb.UnregisterBrokerRequest) -> pb.UnregisterBrokerResponse:
    """Unregister a broker.

    Raises:
        TidelogError: The controllers did not answer in time, or refused.
    """
    return await context.controller.unregister_broker(request, _DEFAULT_TIMEOUT_S)


async def list_partition_reassignments(
    context: NodeContext, request: pb.ListPartitionReassignmentsRequest
) -> pb.ListPartitionReassignmentsResponse:
    """List the reassignments in progress.

    Raises:
        TidelogError: The controllers did not answer in time, or refused.
    """
    return await context.controller.list_partition_reassignments(request, _DEFAULT_TIMEOUT_S)


async def describe_features(context: NodeContext, request: pb.DescribeFeaturesRequest) -> pb.DescribeFeaturesResponse:
    """Describe the features.

    Raises:
        TidelogError: The controllers did not answer in time, or refused.
    """
    return await context.controller.describe_features(request, _DEFAULT_TIMEOUT_S)


async def describe_quorum(
    context: NodeContext, request: quorum_pb.DescribeQuorumRequest
) -> quorum_pb.DescribeQuorumResponse:
    """Describe the quorum of the controllers as its leader sees it.

    Raises:
        TidelogError: The controllers did not answer in time.
    """
    return await context.controller.describe_quorum(request, _DEFAULT_TIMEOUT_S)


async def add_raft_voter(context: NodeContext, request: quorum_pb.AddRaftVoterRequest) -> None:
    """Make a controller a voter, and return when the change is committed.

    Raises:
        TidelogError: The controllers did not answer in time, or refused. After NOT_CONTROLLER and REQUEST_TIMED_OUT the
            change may have been made.
    """
    await context.controller.add_raft_voter(request, timeout_ms(request.timeout_ms) / 1000)


async def remove_raft_voter(context: NodeContext, request: quorum_pb.RemoveRaftVoterRequest) -> None:
    """Remove a controller from the voters. Return and raise as :func:`add_raft_voter`."""
    await context.controller.remove_raft_voter(request, timeout_ms(request.timeout_ms) / 1000)


async def update_raft_voter(context: NodeContext, request: quorum_pb.UpdateRaftVoterRequest) -> None:
    """Change a controller's address. Return and raise as :func:`add_raft_voter`."""
    await context.controller.update_raft_voter(request, timeout_ms(request.timeout_ms) / 1000)

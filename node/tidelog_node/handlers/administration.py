"""What only the leading controller can do or knows: this node passes it on."""

from __future__ import annotations

from tidelog.v1 import admin_service_pb2 as pb
from tidelog.v1 import quorum_service_pb2 as quorum_pb
from tidelog_node.handlers.context import DEFAULT_TIMEOUT_MS, NodeContext, timeout_ms

_DEFAULT_TIMEOUT_S = DEFAULT_TIMEOUT_MS / 1000


async def elect_leaders(context: NodeContext, request: pb.ElectLeadersRequest) -> pb.ElectLeadersResponse:
    """Elect leaders.

    Raises:
        TidelogError: the controllers could not be asked in time, or refuse.
    """
    return await context.controller.elect_leaders(request, timeout_ms(request.timeout_ms) / 1000)


async def alter_partition_reassignments(
    context: NodeContext, request: pb.AlterPartitionReassignmentsRequest
) -> pb.AlterPartitionReassignmentsResponse:
    """Begin or cancel reassignments.

    Raises:
        TidelogError: the controllers could not be asked in time, or refuse.
    """
    return await context.controller.alter_partition_reassignments(request, timeout_ms(request.timeout_ms) / 1000)


async def update_features(context: NodeContext, request: pb.UpdateFeaturesRequest) -> pb.UpdateFeaturesResponse:
    """Change the levels of features.

    Raises:
        TidelogError: the controllers could not be asked in time, or refuse.
    """
    return await context.controller.update_features(request, timeout_ms(request.timeout_ms) / 1000)


async def unregister_broker(context: NodeContext, request: pb.UnregisterBrokerRequest) -> pb.UnregisterBrokerResponse:
    """Forget a broker.

    Raises:
        TidelogError: the controllers could not be asked in time, or refuse.
    """
    return await context.controller.unregister_broker(request, _DEFAULT_TIMEOUT_S)


async def list_partition_reassignments(
    context: NodeContext, request: pb.ListPartitionReassignmentsRequest
) -> pb.ListPartitionReassignmentsResponse:
    """List the reassignments under way.

    Raises:
        TidelogError: the controllers could not be asked in time, or refuse.
    """
    return await context.controller.list_partition_reassignments(request, _DEFAULT_TIMEOUT_S)


async def describe_features(context: NodeContext, request: pb.DescribeFeaturesRequest) -> pb.DescribeFeaturesResponse:
    """Describe the features.

    Raises:
        TidelogError: the controllers could not be asked in time, or refuse.
    """
    return await context.controller.describe_features(request, _DEFAULT_TIMEOUT_S)


async def describe_quorum(
    context: NodeContext, request: quorum_pb.DescribeQuorumRequest
) -> quorum_pb.DescribeQuorumResponse:
    """Describe the quorum of the controllers, as its leader sees it.

    Raises:
        TidelogError: the controllers could not be asked in time.
    """
    return await context.controller.describe_quorum(request, _DEFAULT_TIMEOUT_S)


async def add_raft_voter(context: NodeContext, request: quorum_pb.AddRaftVoterRequest) -> None:
    """Give a controller a vote; returns when that is committed.

    Raises:
        TidelogError: the controllers could not be asked in time, or refuse; after NOT_CONTROLLER and REQUEST_TIMED_OUT
            the change may have been made.
    """
    await context.controller.add_raft_voter(request, timeout_ms(request.timeout_ms) / 1000)


async def remove_raft_voter(context: NodeContext, request: quorum_pb.RemoveRaftVoterRequest) -> None:
    """Take a controller's vote. Returns and raises as :func:`add_raft_voter`."""
    await context.controller.remove_raft_voter(request, timeout_ms(request.timeout_ms) / 1000)


async def update_raft_voter(context: NodeContext, request: quorum_pb.UpdateRaftVoterRequest) -> None:
    """Change a controller's address. Returns and raises as :func:`add_raft_voter`."""
    await context.controller.update_raft_voter(request, timeout_ms(request.timeout_ms) / 1000)

"""Calls to the leading controller. They follow NOT_CONTROLLER's hint and try the next controller after a timeout.

Every attempt has its own deadline, so a paused controller costs at most one of them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

import grpc.aio

from tidelog.v1 import admin_service_pb2, controller_service_pb2, quorum_service_pb2
from tidelog.v1.admin_service_pb2_grpc import AdminServiceStub
from tidelog.v1.controller_service_pb2_grpc import ControllerServiceStub
from tidelog.v1.quorum_service_pb2_grpc import QuorumServiceStub
from tidelog_foundation.config.endpoints import format_address
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.transport import error_from_rpc, open_channel
from tidelog_foundation.transport.status import trailing_value
from tidelog_foundation.waiting import ReportedWait
from tidelog_node.broker.lifecycle import UNREACHABLE
from tidelog_node.broker.metadata_stream import voter_addresses

if TYPE_CHECKING:
    from tidelog.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from tidelog.v1.controller_service_pb2_grpc import ControllerServiceAsyncStub
    from tidelog.v1.quorum_service_pb2_grpc import QuorumServiceAsyncStub

logger = logging.getLogger(__name__)
R = TypeVar("R")

_ATTEMPT_TIMEOUT_S = 2.0
_ADMIN_ATTEMPT_TIMEOUT_S = 10.0
_ANSWER_SLACK_S = 1.0
"""Extra time in which the leader itself can report that the timeout of a change has expired."""
_PAUSE_S = 0.05


class ControllerClient:
    """One per node, on its event loop. It opens one channel per controller at first use."""

    def __init__(self, voters: Mapping[int, tuple[str, int]], bootstrap: Sequence[tuple[str, int]] = ()) -> None:
        """``voters`` and ``bootstrap`` are the configured controllers, which remain the last resort."""
        self._configured = configured_addresses(voters, bootstrap)
        self._voters = dict(voters)
        self._addresses = self._configured
        self._next = self._addresses[0]
        self._channels: dict[str, grpc.aio.Channel] = {}
        self.voters: Mapping[int, tuple[str, int]] = MappingProxyType(self._voters)
        """The known voting controllers, a view that follows :meth:`set_voters`."""

    def set_voters(self, voters: Mapping[int, tuple[str, int]]) -> None:
        """Call these controllers from now on, after a change of the committed voters."""
        self._voters.clear()
        self._voters.update(sorted(voters.items()))
        current = voter_addresses(voters)
        self._addresses = current + [address for address in self._configured if address not in current]

    async def register_broker(
        self, request: controller_service_pb2.RegisterBrokerRequest, timeout_s: float
    ) -> controller_service_pb2.RegisterBrokerResponse:
        """Register this node."""
        return await self._call_controller(lambda s, t: s.RegisterBroker(request, timeout=t), timeout_s)

    async def broker_heartbeat(
        self,
        request: controller_service_pb2.BrokerHeartbeatRequest,
        timeout_s: float,
        attempt_timeout_s: float | None = None,
    ) -> controller_service_pb2.BrokerHeartbeatResponse:
        """Send a heartbeat. A controller that does not answer within ``attempt_timeout_s`` is skipped."""
        return await self._call_controller(
            lambda s, t: s.BrokerHeartbeat(request, timeout=t), timeout_s, attempt_timeout_s
        )

    @property
    def address(self) -> str:
        """The first controller to call: the last one that answered, or the one that it pointed to."""
        return self._next

    async def hold_connection(self, address: str, request: controller_service_pb2.HoldConnectionRequest) -> None:
        """Keep a call without an answer open at one controller.

        Raises:
            TidelogError: The reason for its end: NOT_CONTROLLER or a lost connection.
        """
        stub: ControllerServiceAsyncStub = ControllerServiceStub(self.channel(address))
        try:
            await stub.HoldConnection(request)
        except grpc.aio.AioRpcError as rpc_error:
            raise error_from_rpc(rpc_error) from rpc_error

    async def alter_partition(
        self, request: controller_service_pb2.AlterPartitionRequest
    ) -> controller_service_pb2.AlterPartitionResponse:
        """Propose ISRs to one controller. If that fails, the next call goes to another one.

        The caller retries, which the compare-and-set makes safe, since it must know that an outcome was unknown.
        """
        return await self._call_controller(
            lambda s, t: s.AlterPartition(request, timeout=t), _ATTEMPT_TIMEOUT_S, repeats=False
        )

    async def assign_replicas_to_dirs(
        self, request: controller_service_pb2.AssignReplicasToDirsRequest
    ) -> controller_service_pb2.AssignReplicasToDirsResponse:
        """Report the log directories of replicas. Repeated reports are safe."""
        return await self._call_controller(
            lambda s, t: s.AssignReplicasToDirs(request, timeout=t), 3 * _ATTEMPT_TIMEOUT_S
        )

    async def allocate_producer_ids(
        self, request: controller_service_pb2.AllocateProducerIdsRequest, timeout_s: float
    ) -> controller_service_pb2.AllocateProducerIdsResponse:
        """Request a block of producer ids. A block whose answer is lost is never used."""
        return await self._call_controller(lambda s, t: s.AllocateProducerIds(request, timeout=t), timeout_s)

    async def create_topics(
        self, request: admin_service_pb2.CreateTopicsRequest, timeout_s: float
    ) -> admin_service_pb2.CreateTopicsResponse:
        """Create topics."""
        return await self._call_admin(lambda s, t: s.CreateTopics(request, timeout=t), timeout_s)

    async def delete_topics(
        self, request: admin_service_pb2.DeleteTopicsRequest, timeout_s: float
    ) -> admin_service_pb2.DeleteTopicsResponse:
        """Delete topics."""
        return await self._call_admin(lambda s, t: s.DeleteTopics(request, timeout=t), timeout_s)

    async def create_partitions(
        self, request: admin_service_pb2.CreatePartitionsRequest, timeout_s: float
    ) -> admin_service_pb2.CreatePartitionsResponse:
        """Add partitions to topics."""
        return await self._call_admin(lambda s, t: s.CreatePartitions(request, timeout=t), timeout_s)

    async def incremental_alter_configs(
        self, request: admin_service_pb2.IncrementalAlterConfigsRequest, timeout_s: float
    ) -> admin_service_pb2.IncrementalAlterConfigsResponse:
        """Change settings."""
        return await self._call_admin(lambda s, t: s.IncrementalAlterConfigs(request, timeout=t), timeout_s)

    async def elect_leaders(
        self, request: admin_service_pb2.ElectLeadersRequest, timeout_s: float
    ) -> admin_service_pb2.ElectLeadersResponse:
        """Elect leaders."""
        return await self._call_admin(lambda s, t: s.ElectLeaders(request, timeout=t), timeout_s)

    async def alter_partition_reassignments(
        self, request: admin_service_pb2.AlterPartitionReassignmentsRequest, timeout_s: float
    ) -> admin_service_pb2.AlterPartitionReassignmentsResponse:
        """Begin or cancel reassignments."""
        return await self._call_admin(lambda s, t: s.AlterPartitionReassignments(request, timeout=t), timeout_s)

    async def update_features(
        self, request: admin_service_pb2.UpdateFeaturesRequest, timeout_s: float
    ) -> admin_service_pb2.UpdateFeaturesResponse:
        """Change the levels of features."""
        return await self._call_admin(lambda s, t: s.UpdateFeatures(request, timeout=t), timeout_s)

    async def unregister_broker(
        self, request: admin_service_pb2.UnregisterBrokerRequest, timeout_s: float
    ) -> admin_service_pb2.UnregisterBrokerResponse:
        """Unregister a broker."""
        return await self._call_admin(lambda s, t: s.UnregisterBroker(request, timeout=t), timeout_s)

    async def list_partition_reassignments(
        self, request: admin_service_pb2.ListPartitionReassignmentsRequest, timeout_s: float
    ) -> admin_service_pb2.ListPartitionReassignmentsResponse:
        """List the reassignments in progress."""
        return await self._call_admin(lambda s, t: s.ListPartitionReassignments(request, timeout=t), timeout_s)

    async def describe_features(
        self, request: admin_service_pb2.DescribeFeaturesRequest, timeout_s: float
    ) -> admin_service_pb2.DescribeFeaturesResponse:
        """Describe the features."""
        return await self._call_admin(lambda s, t: s.DescribeFeatures(request, timeout=t), timeout_s)

    async def describe_quorum(
        self, request: quorum_service_pb2.DescribeQuorumRequest, timeout_s: float
    ) -> quorum_service_pb2.DescribeQuorumResponse:
        """Describe the quorum."""

        async def call(channel: grpc.aio.Channel, attempt_s: float) -> quorum_service_pb2.DescribeQuorumResponse:
            stub: QuorumServiceAsyncStub = QuorumServiceStub(channel)
            return await stub.DescribeQuorum(request, timeout=attempt_s)

        return await self._call(call, timeout_s, _ADMIN_ATTEMPT_TIMEOUT_S)

    async def add_raft_voter(self, request: quorum_service_pb2.AddRaftVoterRequest, timeout_s: float) -> None:
        """Make a controller a voter."""
        await self._change_quorum(lambda s, t: s.AddRaftVoter(request, timeout=t), timeout_s)

    async def remove_raft_voter(self, request: quorum_service_pb2.RemoveRaftVoterRequest, timeout_s: float) -> None:
        """Remove a controller from the voters."""
        await self._change_quorum(lambda s, t: s.RemoveRaftVoter(request, timeout=t), timeout_s)

    async def update_raft_voter(self, request: quorum_service_pb2.UpdateRaftVoterRequest, timeout_s: float) -> None:
        """Change a controller's address."""
        await self._change_quorum(lambda s, t: s.UpdateRaftVoter(request, timeout=t), timeout_s)

    async def _change_quorum(
        self, call: Callable[[QuorumServiceAsyncStub, float], Awaitable[object]], timeout_s: float
    ) -> None:
        """Call the leader once. It may have made a change without answering, and would refuse a second one."""
        deadline = time.monotonic() + timeout_s
        await self.describe_quorum(quorum_service_pb2.DescribeQuorumRequest(), timeout_s)
        remaining_s = max(0.0, deadline - time.monotonic()) + _ANSWER_SLACK_S
        await self._call(lambda c, t: call(QuorumServiceStub(c), t), remaining_s, remaining_s, repeats=False)

    def channel(self, address: str) -> grpc.aio.Channel:
        """Return the channel to a controller."""
        if address not in self._channels:
            self._channels[address] = open_channel(address)
        return self._channels[address]

    async def close(self) -> None:
        """Close all channels."""
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()

    async def _call_controller(
        self,
        call: Callable[[ControllerServiceAsyncStub, float], Awaitable[R]],
        timeout_s: float,
        attempt_timeout_s: float | None = None,
        *,
        repeats: bool = True,
    ) -> R:
        attempt_s = _ATTEMPT_TIMEOUT_S if attempt_timeout_s is None else attempt_timeout_s
        return await self._call(lambda c, t: call(ControllerServiceStub(c), t), timeout_s, attempt_s, repeats=repeats)

    async def _call_admin(self, call: Callable[[AdminServiceAsyncStub, float], Awaitable[R]], timeout_s: float) -> R:
        return await self._call(lambda c, t: call(AdminServiceStub(c), t), timeout_s, _ADMIN_ATTEMPT_TIMEOUT_S)

    async def _call(
        self,
        call: Callable[[grpc.aio.Channel, float], Awaitable[R]],
        timeout_s: float,
        attempt_timeout_s: float,
        *,
        repeats: bool = True,
    ) -> R:
        """Call one controller after another, or only one.

        Raises:
            TidelogError: The leading controller's own error, or REQUEST_TIMED_OUT if none answered in time. Without
                ``repeats``, any error of the called controller.
        """
        with ReportedWait("a controller to answer") as wait:
            deadline = time.monotonic() + timeout_s
            failures = 0
            reason = "no time was left"
            while (remaining_s := deadline - time.monotonic()) > 0:
                address = self._next
                try:
                    return await call(self.channel(address), min(attempt_timeout_s, remaining_s))
                except grpc.aio.AioRpcError as rpc_error:
                    error = error_from_rpc(rpc_error)
                    if error.code not in UNREACHABLE:
                        raise error from rpc_error
                    reason = f"{address}: {error.message}"
                    wait.note(reason)
                    self._turn_to(trailing_value(rpc_error, "tidelog-leader-endpoint"), address)
                    if not repeats:
                        raise error from rpc_error
                failures += 1
                if failures % len(self._addresses) == 0:
                    await asyncio.sleep(min(_PAUSE_S * failures, 0.5))
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, f"no controller answered within {timeout_s:.1f} s ({reason})")

    def _turn_to(self, hint: str | None, asked: str) -> None:
        """Call the hinted leader next, even one that joined after this node last learned the voters."""
        if hint is not None and hint != asked:
            self._next = hint
            return
        position = self._addresses.index(asked) + 1 if asked in self._addresses else 0
        self._next = self._addresses[position % len(self._addresses)]


def configured_addresses(voters: Mapping[int, tuple[str, int]], bootstrap: Sequence[tuple[str, int]]) -> list[str]:
    """Return the configured addresses of controllers, each once and at least one."""
    return list(dict.fromkeys([*voter_addresses(voters), *(format_address(*address) for address in bootstrap)]))

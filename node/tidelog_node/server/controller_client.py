"""Calls to whichever controller leads: follows NOT_CONTROLLER's hint, tries the next one when one is silent.

Every attempt has its own deadline, so a paused controller costs one of them and no more.
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
"""The leader of the quorum is let say itself that the time of a change is over."""
_PAUSE_S = 0.05


class ControllerClient:
    """One per node, on its event loop; a channel per controller, opened at first use."""

    def __init__(self, voters: Mapping[int, tuple[str, int]], bootstrap: Sequence[tuple[str, int]] = ()) -> None:
        """``voters`` and ``bootstrap`` are the configured controllers, which stay the last resort."""
        self._configured = configured_addresses(voters, bootstrap)
        self._voters = dict(voters)
        self._addresses = self._configured
        self._next = self._addresses[0]
        self._channels: dict[str, grpc.aio.Channel] = {}
        self.voters: Mapping[int, tuple[str, int]] = MappingProxyType(self._voters)
        """The controllers that have a vote, as far as this node knows: a view that follows :meth:`set_voters`."""

    def set_voters(self, voters: Mapping[int, tuple[str, int]]) -> None:
        """Call these controllers from now on, as the committed voters have changed."""
        self._voters.clear()
        self._voters.update(sorted(voters.items()))
        current = voter_addresses(voters)
        self._addresses = current + [address for address in self._configured if address not in current]

    async def register_broker(
        self, request: controller_service_pb2.RegisterBrokerRequest, timeout_s: float
    ) -> controller_service_pb2.RegisterBrokerResponse:
        """Introduce this node."""
        return await self._call_controller(lambda s, t: s.RegisterBroker(request, timeout=t), timeout_s)

    async def broker_heartbeat(
        self,
        request: controller_service_pb2.BrokerHeartbeatRequest,
        timeout_s: float,
        attempt_timeout_s: float | None = None,
    ) -> controller_service_pb2.BrokerHeartbeatResponse:
        """Show that this node lives; a controller that is silent for ``attempt_timeout_s`` is passed over."""
        return await self._call_controller(
            lambda s, t: s.BrokerHeartbeat(request, timeout=t), timeout_s, attempt_timeout_s
        )

    @property
    def address(self) -> str:
        """The controller that is asked first: the one that answered last, unless it has pointed to another."""
        return self._next

    async def hold_connection(self, address: str, request: controller_service_pb2.HoldConnectionRequest) -> None:
        """Leave a call open at one controller, which has no answer.

        Raises:
            TidelogError: why it ended: NOT_CONTROLLER, or the connection is gone.
        """
        stub: ControllerServiceAsyncStub = ControllerServiceStub(self.channel(address))
        try:
            await stub.HoldConnection(request)
        except grpc.aio.AioRpcError as rpc_error:
            raise error_from_rpc(rpc_error) from rpc_error

    async def alter_partition(
        self, request: controller_service_pb2.AlterPartitionRequest
    ) -> controller_service_pb2.AlterPartitionResponse:
        """Propose ISRs to one controller; the next call goes to another one if that fails.

        The caller asks again, which is safe by the compare-and-set: it must know that an outcome was unknown.
        """
        return await self._call_controller(
            lambda s, t: s.AlterPartition(request, timeout=t), _ATTEMPT_TIMEOUT_S, repeats=False
        )

    async def assign_replicas_to_dirs(
        self, request: controller_service_pb2.AssignReplicasToDirsRequest
    ) -> controller_service_pb2.AssignReplicasToDirsResponse:
        """Say in which log directories replicas are; the same may be said again."""
        return await self._call_controller(
            lambda s, t: s.AssignReplicasToDirs(request, timeout=t), 3 * _ATTEMPT_TIMEOUT_S
        )

    async def allocate_producer_ids(
        self, request: controller_service_pb2.AllocateProducerIdsRequest, timeout_s: float
    ) -> controller_service_pb2.AllocateProducerIdsResponse:
        """Get a block of producer ids; one whose answer is lost is never used."""
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
        """Forget a broker."""
        return await self._call_admin(lambda s, t: s.UnregisterBroker(request, timeout=t), timeout_s)

    async def list_partition_reassignments(
        self, request: admin_service_pb2.ListPartitionReassignmentsRequest, timeout_s: float
    ) -> admin_service_pb2.ListPartitionReassignmentsResponse:
        """List the reassignments under way."""
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
        """Give a controller a vote."""
        await self._change_quorum(lambda s, t: s.AddRaftVoter(request, timeout=t), timeout_s)

    async def remove_raft_voter(self, request: quorum_service_pb2.RemoveRaftVoterRequest, timeout_s: float) -> None:
        """Take a controller's vote."""
        await self._change_quorum(lambda s, t: s.RemoveRaftVoter(request, timeout=t), timeout_s)

    async def update_raft_voter(self, request: quorum_service_pb2.UpdateRaftVoterRequest, timeout_s: float) -> None:
        """Change a controller's address."""
        await self._change_quorum(lambda s, t: s.UpdateRaftVoter(request, timeout=t), timeout_s)

    async def _change_quorum(
        self, call: Callable[[QuorumServiceAsyncStub, float], Awaitable[object]], timeout_s: float
    ) -> None:
        """Ask the leader once: it may have made a change that it did not answer, and a second one would be refused."""
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
        """Ask one controller after the other, or only one.

        Raises:
            TidelogError: the leading controller's own error; REQUEST_TIMED_OUT when none answered in time. Without
                ``repeats`` any error of the one that was asked.
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
        """Ask the leader that was named next, also one that has joined since this node heard of the voters."""
        if hint is not None and hint != asked:
            self._next = hint
            return
        position = self._addresses.index(asked) + 1 if asked in self._addresses else 0
        self._next = self._addresses[position % len(self._addresses)]


def configured_addresses(voters: Mapping[int, tuple[str, int]], bootstrap: Sequence[tuple[str, int]]) -> list[str]:
    """Return where to look for controllers first: each address once, at least one."""
    return list(dict.fromkeys([*voter_addresses(voters), *(format_address(*address) for address in bootstrap)]))

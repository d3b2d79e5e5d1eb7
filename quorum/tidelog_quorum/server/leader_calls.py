"""Questions of this controller to the leading one, which may be itself."""

from __future__ import annotations

import asyncio

import grpc.aio

from tidelog.v1 import admin_service_pb2 as pb
from tidelog.v1.admin_service_pb2_grpc import AdminServiceStub
from tidelog_foundation.config.endpoints import format_address
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.requests.stop_safety import DescribeStopSafetyRequest, DescribeStopSafetyResponse
from tidelog_foundation.transport.channels import Channels, ChannelSecurity
from tidelog_foundation.transport.message_codec import MessageCodec
from tidelog_foundation.transport.services import OF_NODE
from tidelog_foundation.transport.status import closed_channel_error, released
from tidelog_quorum.server.quorum_controller import QuorumController

_TIMEOUT_S = 3.0
_REQUEST = MessageCodec(DescribeStopSafetyRequest, pb.DescribeStopSafetyRequest)
_RESPONSE = MessageCodec(DescribeStopSafetyResponse, pb.DescribeStopSafetyResponse)


class LeaderCalls:
    """Calls the leader at its listener with the name of this controller's first one."""

    def __init__(self, node_id: int, quorum: QuorumController, listener: str, security: ChannelSecurity) -> None:
        self._node_id = node_id
        self._quorum = quorum
        self._listener = listener
        self._channels = Channels(security)

    async def describe_own_stop(self) -> DescribeStopSafetyResponse:
        """Return what stands against stopping this controller.

        Raises:
            TidelogError: NOT_CONTROLLER, no leader is known or it has just changed; or the call failed.
        """
        request = DescribeStopSafetyRequest(self._node_id, is_controller=True)
        leader = self._quorum.leader
        if leader.is_self:
            return await self._quorum.describe_stop_safety(request)
        voter = None if leader.leader_id is None else self._quorum.voters.get(leader.leader_id)
        address = None if voter is None else voter.endpoints.address(self._listener)
        if address is None:
            raise error_for(ErrorCode.NOT_CONTROLLER, "no leader of the quorum is known")
        where = format_address(*address)
        stub = AdminServiceStub(self._channels.get(where))
        try:
            answer = await stub.DescribeStopSafety(_REQUEST.to_message(request), timeout=_TIMEOUT_S, metadata=OF_NODE)
        except grpc.aio.AioRpcError as rpc_error:
            raise await self._channels.error_of(where, rpc_error) from released(rpc_error)
        except asyncio.CancelledError:
            raise closed_channel_error() from None
        return _RESPONSE.from_message(answer)

    async def close(self) -> None:
        """Close the connections."""
        await self._channels.close()

"""The transport of followers' fetches over gRPC."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc.aio

from tidelog.v1.log_service_pb2_grpc import LogServiceStub
from tidelog_foundation.transport.channels import OPEN, Channels, ChannelSecurity
from tidelog_foundation.transport.services import OF_NODE
from tidelog_foundation.transport.status import closed_channel_error, released
from tidelog_node.fetching import FetchRequest, FetchResponse
from tidelog_node.server.fetch_messages import request_to_proto, response_from_proto

if TYPE_CHECKING:
    from tidelog.v1.log_service_pb2_grpc import LogServiceAsyncStub


class GrpcReplicaTransport:
    """A transport over gRPC with one channel per node, opened at first use."""

    def __init__(self, security: ChannelSecurity = OPEN) -> None:
        self._channels = Channels(security)
        self._stubs: dict[str, tuple[grpc.aio.Channel, LogServiceAsyncStub]] = {}

    async def fetch(self, address: str, request: FetchRequest, timeout_s: float) -> FetchResponse:
        """Send one fetch to ``host:port``.

        Raises:
            TidelogError: The leader refused the call, or the transport failed.
        """
        try:
            response = await self._stub(address).Fetch(request_to_proto(request), timeout=timeout_s, metadata=OF_NODE)
        except grpc.aio.AioRpcError as error:
            raise await self._channels.error_of(address, error) from released(error)
        except asyncio.CancelledError:
            raise closed_channel_error() from None
        return response_from_proto(response)

    async def close(self) -> None:
        """Close all channels."""
        await self._channels.close()

    def _stub(self, address: str) -> LogServiceAsyncStub:
        channel = self._channels.get(address)
        known = self._stubs.get(address)
        if known is None or known[0] is not channel:
            known = self._stubs[address] = (channel, LogServiceStub(channel))
        return known[1]

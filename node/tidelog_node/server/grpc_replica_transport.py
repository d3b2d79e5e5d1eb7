"""The transport of followers' fetches over gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc.aio

from tidelog.v1.log_service_pb2_grpc import LogServiceStub
from tidelog_foundation.transport import error_from_rpc, open_channel
from tidelog_node.fetching import FetchRequest, FetchResponse
from tidelog_node.server.fetch_messages import request_to_proto, response_from_proto

if TYPE_CHECKING:
    from tidelog.v1.log_service_pb2_grpc import LogServiceAsyncStub


class GrpcReplicaTransport:
    """A transport over gRPC with one channel per node, opened at first use."""

    def __init__(self) -> None:
        self._channels: dict[str, tuple[grpc.aio.Channel, LogServiceAsyncStub]] = {}

    async def fetch(self, address: str, request: FetchRequest, timeout_s: float) -> FetchResponse:
        """Send one fetch to ``host:port``.

        Raises:
            TidelogError: The leader refused the call, or the transport failed.
        """
        if address not in self._channels:
            channel = open_channel(address)
            self._channels[address] = (channel, LogServiceStub(channel))
        try:
            response = await self._channels[address][1].Fetch(request_to_proto(request), timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error) from error
        return response_from_proto(response)

    async def close(self) -> None:
        """Close all channels."""
        channels = [channel for channel, _ in self._channels.values()]
        self._channels.clear()
        for channel in channels:
            await channel.close()

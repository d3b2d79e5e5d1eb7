"""The requests of transactions and cluster links to other nodes over gRPC."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import grpc.aio

from tidelog.v1 import log_service_pb2, transaction_service_pb2
from tidelog_foundation.transport.channels import OPEN, Channels, ChannelSecurity
from tidelog_foundation.transport.message_codec import MessageCodec
from tidelog_foundation.transport.services import OF_NODE
from tidelog_foundation.transport.status import closed_channel_error, released
from tidelog_node.handlers.requests.offsets import ListOffsetsRequest, ListOffsetsResponse
from tidelog_node.handlers.requests.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_MARKERS: Final = (
    "/tidelog.v1.LogService/WriteTxnMarkers",
    MessageCodec(WriteTxnMarkersRequest, log_service_pb2.WriteTxnMarkersRequest),
    MessageCodec(WriteTxnMarkersResponse, log_service_pb2.WriteTxnMarkersResponse),
)
_PARTITIONS: Final = (
    "/tidelog.v1.TransactionService/AddPartitionsToTxn",
    MessageCodec(AddPartitionsToTxnRequest, transaction_service_pb2.AddPartitionsToTxnRequest),
    MessageCodec(AddPartitionsToTxnResponse, transaction_service_pb2.AddPartitionsToTxnResponse),
)
_OFFSETS: Final = (
    "/tidelog.v1.LogService/ListOffsets",
    MessageCodec(ListOffsetsRequest, log_service_pb2.ListOffsetsRequest),
    MessageCodec(ListOffsetsResponse, log_service_pb2.ListOffsetsResponse),
)


class GrpcNodeCalls:
    """Calls over gRPC with one channel per node, opened at first use."""

    def __init__(self, security: ChannelSecurity = OPEN) -> None:
        self._channels = Channels(security)

    async def write_txn_markers(
        self, address: str, request: WriteTxnMarkersRequest, timeout_s: float
    ) -> WriteTxnMarkersResponse:
        """Write markers to partitions that the node at ``host:port`` leads.

        Raises:
            TidelogError: The call failed.
        """
        response: WriteTxnMarkersResponse = await self._call(address, _MARKERS, request, timeout_s)
        return response

    async def add_partitions_to_txn(
        self, address: str, request: AddPartitionsToTxnRequest, timeout_s: float
    ) -> AddPartitionsToTxnResponse:
        """Add partitions to transactions that the node at ``host:port`` coordinates, or verify that they have them.

        Raises:
            TidelogError: The call failed.
        """
        response: AddPartitionsToTxnResponse = await self._call(address, _PARTITIONS, request, timeout_s)
        return response

    async def list_offsets(self, address: str, request: ListOffsetsRequest, timeout_s: float) -> ListOffsetsResponse:
        """Look up offsets of partitions that the node at ``host:port`` leads.

        Raises:
            TidelogError: The call failed.
        """
        response: ListOffsetsResponse = await self._call(address, _OFFSETS, request, timeout_s)
        return response

    async def close(self) -> None:
        """Close all channels."""
        await self._channels.close()

    async def _call(self, address: str, method: tuple[str, Any, Any], request: object, timeout_s: float) -> Any:
        path, to_message, from_message = method
        call: Any = self._channels.get(address).unary_unary(
            path, response_deserializer=from_message.message_type.FromString
        )
        try:
            message = await call(
                to_message.to_message(request).SerializeToString(), timeout=timeout_s, metadata=OF_NODE
            )
        except grpc.aio.AioRpcError as error:
            raise await self._channels.error_of(address, error) from released(error)
        except asyncio.CancelledError:
            raise closed_channel_error() from None
        return from_message.from_message(message)

"""The requests of transactions and cluster links from one node to another, and the sender of markers over them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import BrokerId
from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_node.handlers.context import DEFAULT_TIMEOUT_MS, NodeContext
from tidelog_node.handlers.requests import transactions as requests
from tidelog_node.handlers.requests.offsets import ListOffsetsRequest, ListOffsetsResponse
from tidelog_node.handlers.transaction_markers import write_txn_markers
from tidelog_node.transactions.markers import MarkersRequest, PartitionMarkers
from tidelog_node.transactions.states import TopicPartition

_ANSWER_S: Final = DEFAULT_TIMEOUT_MS / 1000 + 5
"""The timeout of a call. The leader itself answers after DEFAULT_TIMEOUT_MS if replicas are slow."""


class NodeCalls(Protocol):
    """Calls to the inter-broker listeners of other nodes. Each raises TidelogError if the call failed as a whole."""

    async def write_txn_markers(
        self, address: str, request: requests.WriteTxnMarkersRequest, timeout_s: float
    ) -> requests.WriteTxnMarkersResponse:
        """Write markers to partitions that the node at ``host:port`` leads."""
        ...

    async def add_partitions_to_txn(
        self, address: str, request: requests.AddPartitionsToTxnRequest, timeout_s: float
    ) -> requests.AddPartitionsToTxnResponse:
        """Add partitions to transactions that the node at ``host:port`` coordinates, or verify that they have them."""
        ...

    async def list_offsets(self, address: str, request: ListOffsetsRequest, timeout_s: float) -> ListOffsetsResponse:
        """Look up offsets of partitions that the node at ``host:port`` leads."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class NodeMarkerSender:
    """The sender of a coordinator's markers. It writes to partitions that this node leads without a connection."""

    def __init__(self, context: NodeContext, calls: NodeCalls) -> None:
        self._context = context
        self._calls = calls

    async def send(self, request: MarkersRequest) -> Mapping[tuple[int, TopicPartition], ErrorCode]:
        """Send a request and return the results by the id of the markers and the partition.

        Raises:
            TidelogError: The call failed: it is unknown which markers were written.
        """
        markers = requests.WriteTxnMarkersRequest(tuple(_marker(item) for item in request.transactions))
        response = await self._write(BrokerId(request.node_id), markers)
        if len(response.markers) != len(request.transactions):
            text = f"node {request.node_id} answered {len(request.transactions)} markers with {len(response.markers)}"
            raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"{text} results")
        return {
            (item.markers_id, (topic.name, partition.index)): ErrorCode.NONE
            if partition.error is None
            else partition.error.code
            for item, result in zip(request.transactions, response.markers, strict=True)
            for topic in result.topics
            for partition in topic.partitions
        }

    async def _write(
        self, node_id: BrokerId, request: requests.WriteTxnMarkersRequest
    ) -> requests.WriteTxnMarkersResponse:
        context = self._context
        if node_id == context.broker_id:
            return await write_txn_markers(context, request)
        address = context.metadata.broker_address(node_id)
        if address is None:
            text = f"node {node_id} has no address on the inter-broker listener"
            raise error_for(ErrorCode.BROKER_NOT_AVAILABLE, text)
        return await self._calls.write_txn_markers(address, request, _ANSWER_S)


def _marker(item: PartitionMarkers) -> requests.WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for topic, index in item.partitions:
        topics.setdefault(topic, []).append(index)
    markers = item.markers
    return requests.WritableTxnMarker(
        markers.producer.id,
        markers.producer.epoch,
        markers.committed,
        tuple(TopicPartitions(name, tuple(indexes)) for name, indexes in topics.items()),
        item.coordinator_epoch,
        markers.version,
    )

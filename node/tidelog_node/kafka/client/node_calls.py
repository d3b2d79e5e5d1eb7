"""The requests of transactions and cluster links to other nodes through their Kafka listeners."""

from __future__ import annotations

from typing import Final

from tidelog_foundation.errors import TidelogError, error_for
from tidelog_foundation.ids import NO_EPOCH, LeaderEpoch
from tidelog_foundation.sasl import SaslLogin
from tidelog_foundation.security.certificate_store import CertificateStore, client_contexts
from tidelog_node.handlers.requests import offsets as offset_values
from tidelog_node.handlers.requests import transactions as values
from tidelog_node.kafka.client.calls import call
from tidelog_node.kafka.client.connections import PeerConnections
from tidelog_node.kafka.protocol.messages import offsets
from tidelog_node.kafka.protocol.messages import transactions as wire

_BATCHED: Final = (4, wire.AddPartitionsToTxnRequest.VERSIONS[1])
"""The versions of AddPartitionsToTxn between nodes, with several transactions and verification (KIP-890)."""


class KafkaNodeCalls:
    """Calls to the Kafka listeners of other nodes, each on a connection of its own while it lasts."""

    def __init__(
        self, client_id: str, certificates: CertificateStore | None = None, login: SaslLogin | None = None
    ) -> None:
        self._connections = PeerConnections(client_id, client_contexts(certificates), login)

    async def write_txn_markers(
        self, address: str, request: values.WriteTxnMarkersRequest, timeout_s: float
    ) -> values.WriteTxnMarkersResponse:
        """Write markers to partitions that the node at ``host:port`` leads.

        Raises:
            TidelogError: The call failed.
        """
        message = wire.WriteTxnMarkersRequest([_marker(marker) for marker in request.markers])
        response = await call(self._connections, address, message, wire.WriteTxnMarkersResponse, timeout_s)
        return values.WriteTxnMarkersResponse(tuple(_marker_result(result) for result in response.markers))

    async def add_partitions_to_txn(
        self, address: str, request: values.AddPartitionsToTxnRequest, timeout_s: float
    ) -> values.AddPartitionsToTxnResponse:
        """Add partitions to transactions that the node at ``host:port`` coordinates, or verify that they have them.

        Raises:
            TidelogError: The call failed.
        """
        message = wire.AddPartitionsToTxnRequest([_transaction(each) for each in request.transactions])
        answer = wire.AddPartitionsToTxnResponse
        response = await call(self._connections, address, message, answer, timeout_s, _BATCHED)
        if response.error_code:
            raise error_for(response.error_code)
        return values.AddPartitionsToTxnResponse(tuple(_added(result) for result in response.results_by_transaction))

    async def list_offsets(
        self, address: str, request: offset_values.ListOffsetsRequest, timeout_s: float
    ) -> offset_values.ListOffsetsResponse:
        """Look up offsets of partitions that the node at ``host:port`` leads.

        Raises:
            TidelogError: The call failed.
        """
        message = offsets.ListOffsetsRequest(
            isolation_level=int(request.isolation_level == offset_values.IsolationLevel.READ_COMMITTED),
            topics=[_looked_up(topic) for topic in request.topics],
        )
        response = await call(self._connections, address, message, offsets.ListOffsetsResponse, timeout_s)
        return offset_values.ListOffsetsResponse(tuple(_found(topic) for topic in response.topics))

    async def close(self) -> None:
        """Close all connections."""
        self._connections.close()


def _marker(marker: values.WritableTxnMarker) -> wire.WritableTxnMarker:
    return wire.WritableTxnMarker(
        marker.producer_id,
        marker.producer_epoch,
        marker.committed,
        [wire.WritableTxnMarkerTopic(topic.name, list(topic.partitions)) for topic in marker.topics],
        marker.coordinator_epoch,
        marker.transaction_version,
    )


def _marker_result(result: wire.WritableTxnMarkerResult) -> values.WritableTxnMarkerResult:
    topics = (
        values.WritableTxnMarkerTopicResult(
            topic.name,
            tuple(
                values.WritableTxnMarkerPartitionResult(p.partition_index, _error(p.error_code))
                for p in topic.partitions
            ),
        )
        for topic in result.topics
    )
    return values.WritableTxnMarkerResult(result.producer_id, tuple(topics))


def _transaction(transaction: values.AddPartitionsToTxnTransaction) -> wire.AddPartitionsToTxnTransaction:
    return wire.AddPartitionsToTxnTransaction(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.verify_only,
        [wire.AddPartitionsToTxnTopic(topic.name, list(topic.partitions)) for topic in transaction.topics],
    )


def _added(result: wire.AddPartitionsToTxnResult) -> values.AddPartitionsToTxnResult:
    topics = (
        values.AddPartitionsToTxnTopicResult(
            topic.name,
            tuple(
                values.AddPartitionsToTxnPartitionResult(p.partition_index, _error(p.partition_error_code))
                for p in topic.results_by_partition
            ),
        )
        for topic in result.topic_results
    )
    return values.AddPartitionsToTxnResult(result.transactional_id, None, tuple(topics))


def _looked_up(topic: offset_values.ListOffsetsTopic) -> offsets.ListOffsetsTopic:
    partitions = [
        offsets.ListOffsetsPartition(
            p.index, NO_EPOCH if p.current_leader_epoch is None else p.current_leader_epoch, p.timestamp_ms
        )
        for p in topic.partitions
    ]
    return offsets.ListOffsetsTopic(topic.name, partitions)


def _found(topic: offsets.ListOffsetsTopicResponse) -> offset_values.ListOffsetsTopicResult:
    results = (
        offset_values.ListOffsetsPartitionResult(
            p.partition_index, _error(p.error_code), p.timestamp, p.offset, LeaderEpoch(p.leader_epoch)
        )
        for p in topic.partitions
    )
    return offset_values.ListOffsetsTopicResult(topic.name, tuple(results))


def _error(code: int) -> TidelogError | None:
    return error_for(code) if code else None

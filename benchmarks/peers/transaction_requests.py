"""Requests of transactions in Kafka's protocol to the nodes of a cluster, for thousands of producers in one process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_node.kafka.client.calls import ANY_VERSION, call
from tidelog_node.kafka.client.connections import PeerConnections
from tidelog_node.kafka.protocol.messages import transactions as wire
from tidelog_node.kafka.protocol.messages.group_admin import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog_node.kafka.protocol.messages.producers import InitProducerIdRequest, InitProducerIdResponse

_TIMEOUT_S = 30.0
_TRANSACTION_MS = 900_000
_TRANSACTIONAL_ID = 1
_BATCHED = (4, ANY_VERSION[1])
"""The versions of FindCoordinator and AddPartitionsToTxn with several keys and transactions."""


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The node that coordinates a transactional id."""

    node_id: int
    address: str


class TransactionRequests:
    """Requests of clients, without their state and their retries, on the connections of a node's own requests."""

    def __init__(self) -> None:
        self._connections = PeerConnections("benchmark")

    async def close(self) -> None:
        """Close all connections."""
        self._connections.close()

    async def coordinators(self, address: str, ids: Sequence[str]) -> dict[str, Coordinator]:
        """Return the coordinators of transactional ids.

        Raises:
            TidelogError: The call failed, or an id has no coordinator.
        """
        request = FindCoordinatorRequest(key_type=_TRANSACTIONAL_ID, coordinator_keys=list(ids))
        response = await call(self._connections, address, request, FindCoordinatorResponse, _TIMEOUT_S, _BATCHED)
        error_code = max(found.error_code for found in response.coordinators)
        if error_code:
            raise error_for(error_code)
        return {found.key: Coordinator(found.node_id, f"{found.host}:{found.port}") for found in response.coordinators}

    async def initialize(self, address: str, transactional_id: str) -> tuple[int, int]:
        """Initialize a producer at its coordinator, and return its id and epoch.

        Raises:
            TidelogError: The call or the request failed.
        """
        request = InitProducerIdRequest(transactional_id, _TRANSACTION_MS)
        response = await call(self._connections, address, request, InitProducerIdResponse, _TIMEOUT_S)
        if response.error_code:
            raise error_for(response.error_code)
        return response.producer_id, response.producer_epoch

    async def begin(self, address: str, transactional_id: str, topic: str, partitions: int) -> None:
        """Initialize a producer, and add the first partitions of a topic to a transaction, which stays open.

        Raises:
            TidelogError: A call or a request failed.
        """
        producer = await self.initialize(address, transactional_id)
        added = wire.AddPartitionsToTxnTopic(topic, list(range(partitions)))
        transaction = wire.AddPartitionsToTxnTransaction(transactional_id, *producer, False, [added])
        request = wire.AddPartitionsToTxnRequest([transaction])
        response = await call(
            self._connections, address, request, wire.AddPartitionsToTxnResponse, _TIMEOUT_S, _BATCHED
        )
        [result] = response.results_by_transaction
        codes = {p.partition_error_code for each in result.topic_results for p in each.results_by_partition}
        if response.error_code or codes != {ErrorCode.NONE.code}:
            raise error_for(response.error_code or max(codes), f"{transactional_id} has no transaction: {codes}")

    async def states(self, address: str, ids: Sequence[str]) -> list[tuple[ErrorCode, str]]:
        """Return the error or the state of transactional ids at a node.

        Raises:
            TidelogError: The call failed.
        """
        request = wire.DescribeTransactionsRequest(list(ids))
        response = await call(self._connections, address, request, wire.DescribeTransactionsResponse, _TIMEOUT_S)
        return [(ErrorCode.of(found.error_code), found.transaction_state) for found in response.transaction_states]

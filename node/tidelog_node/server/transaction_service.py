"""The gRPC service of the transaction coordinator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidelog.v1 import transaction_service_pb2 as pb
from tidelog_foundation.transport.services import Call, Service, types_of
from tidelog_node.handlers import transactions
from tidelog_node.handlers.context import NodeContext

Q = TypeVar("Q")
R = TypeVar("R")


def transaction_service(context: NodeContext) -> Service:
    """Return the service of transactional producers and of administrators of transactions."""

    def call(handler: Callable[[NodeContext, Q], Awaitable[R]]) -> Call[Q, R]:
        return Call(lambda request, _: handler(context, request), *types_of(handler))

    return Service(
        pb.DESCRIPTOR.services_by_name["TransactionService"],
        {
            "AddPartitionsToTxn": call(transactions.add_partitions_to_txn),
            "AddOffsetsToTxn": call(transactions.add_offsets_to_txn),
            "EndTxn": call(transactions.end_txn),
            "DescribeTransactions": call(transactions.describe_transactions),
            "ListTransactions": call(transactions.list_transactions),
        },
    )

"""The rules of the service of transactions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from tidelog_foundation.authorization import Access
from tidelog_foundation.authorization.rules import CLUSTER, GROUP, TOPIC, TRANSACTIONAL_ID, Handle, Rule, per_item
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.requests.acls import AclOperation
from tidelog_node.handlers.requests import transactions


async def _add_partitions(access: Access, request: transactions.AddPartitionsToTxnRequest, handle: Handle) -> Any:
    """Clients add partitions to one transaction; nodes ask for several, or only verify, and act for the cluster."""
    asked = request.transactions
    if len(asked) != 1 or asked[0].verify_only:
        access.require(AclOperation.CLUSTER_ACTION, CLUSTER)
        return await handle(request)
    transaction = asked[0]
    name = transaction.transactional_id
    if not access.allows(AclOperation.WRITE, TRANSACTIONAL_ID, name):
        error = access.denial(AclOperation.WRITE, TRANSACTIONAL_ID, name)
        return transactions.AddPartitionsToTxnResponse((transactions.AddPartitionsToTxnResult(name, error),))
    allowed = await access.allowed(AclOperation.WRITE, TOPIC, (topic.name for topic in transaction.topics))
    if all(topic.name in allowed for topic in transaction.topics):
        return await handle(request)
    return _not_added(transaction, lambda topic: _why_not_added(access, topic, is_allowed=topic in allowed))


def _why_not_added(access: Access, topic: str, *, is_allowed: bool) -> TidelogError:
    """Return the error of a topic: one that is denied refuses the transaction's other partitions as well."""
    if is_allowed:
        return error_for(ErrorCode.OPERATION_NOT_ATTEMPTED, "another topic of the request is denied")
    return access.denial(AclOperation.WRITE, TOPIC, topic)


def _not_added(
    transaction: transactions.AddPartitionsToTxnTransaction, error_of: Callable[[str], TidelogError]
) -> transactions.AddPartitionsToTxnResponse:
    topics = tuple(
        transactions.AddPartitionsToTxnTopicResult(
            topic.name,
            tuple(
                transactions.AddPartitionsToTxnPartitionResult(index, error_of(topic.name))
                for index in topic.partitions
            ),
        )
        for topic in transaction.topics
    )
    result = transactions.AddPartitionsToTxnResult(transaction.transactional_id, topics=topics)
    return transactions.AddPartitionsToTxnResponse((result,))


async def _add_offsets(access: Access, request: transactions.AddOffsetsToTxnRequest, handle: Handle) -> Any:
    for operation, kind, name in (
        (AclOperation.WRITE, TRANSACTIONAL_ID, request.transactional_id),
        (AclOperation.READ, GROUP, request.group_id),
    ):
        if not access.allows(operation, kind, name):
            return transactions.AddOffsetsToTxnResponse(access.denial(operation, kind, name))
    return await handle(request)


async def _end(access: Access, request: transactions.EndTxnRequest, handle: Handle) -> Any:
    name = request.transactional_id
    if access.allows(AclOperation.WRITE, TRANSACTIONAL_ID, name):
        return await handle(request)
    return transactions.EndTxnResponse(access.denial(AclOperation.WRITE, TRANSACTIONAL_ID, name))


async def _describe(access: Access, request: transactions.DescribeTransactionsRequest, handle: Handle) -> Any:
    """Topics that the caller may not describe are left out of transactions."""
    response = await _DESCRIPTIONS(access, request, handle)
    names = (topic.name for state in response.transactions for topic in state.topics)
    shown = await access.allowed(AclOperation.DESCRIBE, TOPIC, names, log=False)
    return replace(
        response,
        transactions=tuple(
            replace(state, topics=tuple(topic for topic in state.topics if topic.name in shown))
            for state in response.transactions
        ),
    )


async def _list(access: Access, request: transactions.ListTransactionsRequest, handle: Handle) -> Any:
    response = await handle(request)
    names = (transaction.transactional_id for transaction in response.transactions)
    shown = await access.allowed(AclOperation.DESCRIBE, TRANSACTIONAL_ID, names, log=False)
    return replace(response, transactions=tuple(t for t in response.transactions if t.transactional_id in shown))


_DESCRIPTIONS: Final = per_item(
    AclOperation.DESCRIBE,
    TRANSACTIONAL_ID,
    "transactional_ids",
    "transactions",
    transactions.TransactionDescription,
    str,
    lambda state: state.transactional_id,
)
TRANSACTION_RULES: Final[Mapping[str, Rule]] = {
    "AddPartitionsToTxn": _add_partitions,
    "AddOffsetsToTxn": _add_offsets,
    "EndTxn": _end,
    "DescribeTransactions": _describe,
    "ListTransactions": _list,
}

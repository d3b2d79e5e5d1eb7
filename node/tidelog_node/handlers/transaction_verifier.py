"""The questions of this node's partition leaders to transaction coordinators, on this node and on others.

The shell of :class:`VerificationQueue`. A produce request waits for the answer, at most REQUEST_TIMEOUT_S.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerId
from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_node.handlers.node_calls import NodeCalls
from tidelog_node.handlers.requests.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)
from tidelog_node.partitions import MetadataCache
from tidelog_node.transactions.states import EPOCH_BUMP_VERSION
from tidelog_node.transactions.verification import Answer, Question, VerificationQueue, VerificationRequest

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_S: Final = 30.0
"""The value of request.timeout.ms."""
_OLDER_VERSION: Final = 1


class TransactionVerifier:
    """Sends a node's questions to coordinators, in the task :meth:`run`.

    ``coordinator_of`` returns the node that coordinates a transactional id. ``own`` answers requests to this node.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        metadata: MetadataCache,
        coordinator_of: Callable[[str], BrokerId | None],
        calls: NodeCalls,
        own: Callable[[AddPartitionsToTxnRequest], Awaitable[AddPartitionsToTxnResponse]],
    ) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._coordinator_of = coordinator_of
        self._calls = calls
        self._own = own
        self._queue = VerificationQueue()
        self._futures: dict[int, asyncio.Future[Answer]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Send questions until cancelled. Those that wait are then answered with COORDINATOR_NOT_AVAILABLE."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                await asyncio.get_running_loop().create_future()
        finally:
            self._tasks = None
            for future in self._futures.values():
                future.cancel()

    async def ask(self, question: Question) -> Answer:
        """Return the errors of a question's partitions; a partition without one belongs to the transaction."""
        if self._tasks is None:
            return dict.fromkeys(question.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        question_id = self._queue.ask(question)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._futures[question_id] = future
        try:
            self._advance()
            return await future
        finally:
            del self._futures[question_id]
            self._queue.abandon(question_id, question.transactional_id)

    def _advance(self) -> None:
        if self._tasks is None:
            return
        for request in self._queue.requests(self._coordinator_of):
            self._tasks.create_task(self._call(request), name=f"verify-transactions-{request.node_id}")
        for question_id, answer in self._queue.take_answered().items():
            future = self._futures.get(question_id)
            if future is not None and not future.done():
                future.set_result(answer)

    async def _call(self, request: VerificationRequest) -> None:
        transactions = AddPartitionsToTxnRequest(tuple(_transaction(question) for question in request.questions))
        try:
            response = await self._send(BrokerId(request.node_id), transactions)
        except TidelogError as error:
            code = error.code
            self._queue.fail(request.request_id, code if code.code >= 0 else ErrorCode.NETWORK_EXCEPTION)
        except TimeoutError:
            self._queue.fail(request.request_id)
        except Exception:
            logger.exception("The verification of transactions by node %d failed unexpectedly", request.node_id)
            self._queue.fail(request.request_id, ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            errors = {result.transactional_id: _errors(result) for result in response.transactions}
            asked = {question.transactional_id: question for question in request.questions}
            whole = {
                result.transactional_id: dict.fromkeys(asked[result.transactional_id].partitions, result.error.code)
                for result in response.transactions
                if result.error is not None and result.transactional_id in asked
            }
            self._queue.answer(request.request_id, errors | whole)
        self._advance()

    async def _send(self, node_id: BrokerId, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        if node_id == self._broker_id:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return await self._own(request)
        address = self._metadata.broker_address(node_id)
        if address is None:
            text = f"node {node_id} has no address on the inter-broker listener"
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
        return await self._calls.add_partitions_to_txn(address, request, REQUEST_TIMEOUT_S)


def _transaction(question: Question) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(question.partitions):
        topics.setdefault(topic, []).append(index)
    return AddPartitionsToTxnTransaction(
        question.transactional_id,
        question.producer.id,
        question.producer.epoch,
        not question.adds,
        tuple(TopicPartitions(name, tuple(indexes)) for name, indexes in topics.items()),
        EPOCH_BUMP_VERSION if question.adds else _OLDER_VERSION,
    )


def _errors(result: AddPartitionsToTxnResult) -> Answer:
    return {
        (topic.name, partition.index): ErrorCode.NONE if partition.error is None else partition.error.code
        for topic in result.topics
        for partition in topic.partitions
    }

"""A leader appends to a transaction after the coordinator has confirmed it (KIP-890)."""

import asyncio
import dataclasses

import pytest

from tests.support.toy_listener import until
from tests.support.transactional_appends import append_verified
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.records import ControlType, RecordBatchBuilder, control_batch
from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_node.handlers.context import VerificationSettings
from tidelog_node.handlers.requests import transactions as values
from tidelog_node.handlers.transaction_verifier import TransactionVerifier
from tidelog_node.server import log_service
from tidelog_node.transactions.states import Producer
from tidelog_node.transactions.verification import Question

PRODUCER_ID = 9
ABSENT_COORDINATOR = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class FakeCoordinator:
    """Answers questions with ``codes`` in turn, the last one repeatedly, while ``may_answer`` is set."""

    def __init__(self, *codes):
        self.codes = list(codes) or [ErrorCode.NONE]
        self.questions = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def ask(self, question):
        self.questions.append(question)
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        await self.may_answer.wait()
        return {} if code is ErrorCode.NONE else dict.fromkeys(question.partitions, code)


def batch(sequence=0, epoch=0, producer_id=PRODUCER_ID, transactional=True):
    builder = RecordBatchBuilder()
    builder.append(None, b"v", (), 1_000)
    return builder.build(producer_id, epoch, sequence, is_transactional=transactional)


def context_of(cluster, coordinator, **settings):
    context = cluster.nodes[1].context
    verification = VerificationSettings(**settings)
    return dataclasses.replace(context, verifier=coordinator, verification=lambda: verification)


async def produce(context, *batches, version=2, transactional_id="a", acks=pb.ACKS_LEADER):
    items = [pb.ProducePartition(index=index, records=records) for index, records in batches]
    request = pb.ProduceRequest(acks=acks, timeout_ms=5_000, topics=[pb.ProduceTopic(name="t", partitions=items)])
    request.transactional_id, request.transaction_version = transactional_id, version
    response = await log_service.produce(context, request)
    return [ErrorCode.of(item.error.code) for item in response.topics[0].partitions]


def end_transaction(cluster, epoch=0, version=0, index=0):
    marker = control_batch(ControlType.COMMIT, PRODUCER_ID, epoch, 0, 1_000)
    cluster.partition(1, index).append_marker(marker, version)


def run_with(cluster_of, coordinator_of, body, partitions=1, **settings):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=partitions)
            coordinator = coordinator_of()
            await body(cluster, coordinator, context_of(cluster, coordinator, **settings))

    asyncio.run(run())


@pytest.mark.parametrize(("version", "adds"), [(0, False), (1, False), (2, True)])
def test_first_batches_of_a_transaction_are_asked_about_in_one_question(cluster_of, version, adds):
    async def body(cluster, coordinator, context):
        plain = batch(producer_id=5, transactional=False)
        codes = await produce(context, (0, batch()), (1, plain), (2, batch()), version=version)
        assert codes == [ErrorCode.NONE] * 3
        asked = frozenset({("t", 0), ("t", 2)})
        assert coordinator.questions == [Question("a", Producer(PRODUCER_ID, 0), asked, adds)]
        assert await produce(context, (0, batch(1)), (2, batch(1)), version=version) == [ErrorCode.NONE] * 2
        assert len(coordinator.questions) == 1
        end_transaction(cluster)
        await produce(context, (0, batch(2)), (2, batch(2)), version=version)
        assert coordinator.questions[1].partitions == {("t", 0)}

    run_with(cluster_of, FakeCoordinator, body, partitions=3)


@pytest.mark.parametrize(
    ("code", "version", "expected"),
    [
        *((code, version, ErrorCode.NOT_ENOUGH_REPLICAS) for code in ABSENT_COORDINATOR for version in (1, 2)),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 1, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 2, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.PRODUCER_FENCED, 2, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_TXN_STATE, 1, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 1, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 2, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_batch_that_the_coordinator_does_not_confirm_is_refused(cluster_of, code, version, expected):
    async def body(cluster, coordinator, context):
        assert await produce(context, (0, batch()), version=version) == [expected]
        assert cluster.partition(1).log.log_end_offset == 0

    run_with(cluster_of, lambda: FakeCoordinator(code), body, retry_backoff_ms=1, retry_backoff_max_ms=3)


def test_question_is_repeated_while_the_last_transaction_is_being_completed(cluster_of):
    async def body(cluster, coordinator, context):
        append_verified(cluster.partition(1), batch())
        coordinator.codes = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE]
        producing = asyncio.ensure_future(produce(context, (0, batch(epoch=1))))
        await until(lambda: len(coordinator.questions) >= 2)
        end_transaction(cluster, epoch=1, version=2)
        assert await producing == [ErrorCode.NONE]
        assert len(coordinator.questions) == 3

    run_with(cluster_of, FakeCoordinator, body, retry_backoff_ms=1, retry_backoff_max_ms=60_000)


def test_marker_that_overtakes_the_answer_keeps_the_batch_out(cluster_of):
    async def body(cluster, coordinator, context):
        coordinator.may_answer.clear()
        producing = asyncio.ensure_future(produce(context, (0, batch()), version=1))
        await until(lambda: coordinator.questions)
        end_transaction(cluster)
        coordinator.may_answer.set()
        assert await producing == [ErrorCode.INVALID_TXN_STATE]
        log = cluster.partition(1).log
        assert (log.log_end_offset, log.last_stable_offset(1)) == (1, 1)

    run_with(cluster_of, FakeCoordinator, body)


def test_question_is_repeated_at_once_when_a_marker_of_the_last_transaction_overtakes_the_answer(cluster_of):
    """The coordinator may answer as soon as the last transaction is complete: the batch belongs to the next one."""

    async def body(cluster, coordinator, context):
        append_verified(cluster.partition(1), batch())
        coordinator.may_answer.clear()
        producing = asyncio.ensure_future(produce(context, (0, batch(epoch=1))))
        await until(lambda: coordinator.questions)
        end_transaction(cluster, epoch=1, version=2)
        coordinator.may_answer.set()
        async with asyncio.timeout(30):
            assert await producing == [ErrorCode.NONE]
        assert len(coordinator.questions) == 2

    run_with(cluster_of, FakeCoordinator, body, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000)


def test_requests_of_a_producer_keep_their_order_and_others_do_not_wait_for_the_coordinator(cluster_of):
    async def body(cluster, coordinator, context):
        coordinator.may_answer.clear()
        producing = [asyncio.ensure_future(produce(context, (0, batch(sequence)))) for sequence in range(3)]
        await until(lambda: coordinator.questions)
        assert await produce(context, (0, batch(producer_id=5, transactional=False)), transactional_id="") == [
            ErrorCode.NONE
        ]
        assert not any(task.done() for task in producing)
        coordinator.may_answer.set()
        assert await asyncio.gather(*producing) == [[ErrorCode.NONE]] * 3
        assert len(coordinator.questions) == 1

    run_with(cluster_of, FakeCoordinator, body)


def test_cancelled_request_leaves_the_next_one_of_its_producer_free(cluster_of):
    async def body(cluster, coordinator, context):
        coordinator.may_answer.clear()
        first = asyncio.ensure_future(produce(context, (0, batch())))
        second = asyncio.ensure_future(produce(context, (1, batch())))
        await until(lambda: coordinator.questions)
        first.cancel()
        coordinator.may_answer.set()
        assert await second == [ErrorCode.NONE]
        assert context.transaction_turns.is_free("a")
        assert cluster.partition(1).log.log_end_offset == 0

    run_with(cluster_of, FakeCoordinator, body, partitions=2)


def test_request_with_batches_of_two_producers_is_refused(cluster_of):
    async def body(cluster, coordinator, context):
        plain = batch(producer_id=5, transactional=False)
        codes = await produce(context, (0, batch()), (1, batch(producer_id=8)), (2, plain))
        assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 3
        assert not coordinator.questions

    run_with(cluster_of, FakeCoordinator, body, partitions=3)


def test_fenced_producer_is_refused_without_a_question(cluster_of):
    async def body(cluster, coordinator, context):
        end_transaction(cluster, epoch=4)
        assert await produce(context, (0, batch(epoch=3)), (7, batch(epoch=3))) == [
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert not coordinator.questions

    run_with(cluster_of, FakeCoordinator, body)


@pytest.mark.parametrize(("version", "questions"), [(1, 0), (2, 1)])
def test_disabled_verification_still_adds_partitions_of_transaction_version_2(cluster_of, version, questions):
    async def body(cluster, coordinator, context):
        assert await produce(context, (0, batch()), version=version) == [ErrorCode.NONE]
        assert len(coordinator.questions) == questions

    run_with(cluster_of, FakeCoordinator, body, enable=False)


def test_transactional_batch_without_a_transactional_id_begins_no_transaction(cluster_of):
    async def body(cluster, coordinator, context):
        assert await produce(context, (0, batch()), transactional_id="") == [ErrorCode.INVALID_TXN_STATE]
        assert not coordinator.questions

    run_with(cluster_of, FakeCoordinator, body)


class FakeCalls:
    """The calls to other nodes: each is answered by ``answer``, if that does not raise."""

    def __init__(self, answer):
        self.answer = answer
        self.requests = []

    async def add_partitions_to_txn(self, address, request, timeout_s):
        self.requests.append((address, request))
        return self.answer(request)


def added(request, error=None):
    return values.AddPartitionsToTxnResponse(
        tuple(
            values.AddPartitionsToTxnResult(
                transaction.transactional_id,
                None,
                tuple(
                    values.AddPartitionsToTxnTopicResult(
                        topic.name,
                        tuple(values.AddPartitionsToTxnPartitionResult(index, error) for index in topic.partitions),
                    )
                    for topic in transaction.topics
                ),
            )
            for transaction in request.transactions
        )
    )


def verify_through(cluster_of, coordinators, answer, body):
    """Run ``body(ask, calls, own)`` on node 1; ``own`` are the requests to itself."""

    async def run():
        async with cluster_of(1, 2) as cluster:
            context, calls, own = cluster.nodes[1].context, FakeCalls(answer), []

            async def answer_own(request):
                own.append(request)
                return answer(request)

            verifier = TransactionVerifier(1, context.metadata, coordinators.get, calls, answer_own)
            asked = Question("a", Producer(7, 1), frozenset({("t", 0), ("t", 1)}), True)
            assert await verifier.ask(asked) == dict.fromkeys(asked.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            running = asyncio.create_task(verifier.run())
            await asyncio.sleep(0)
            try:
                await body(verifier, asked, calls, own)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())


@pytest.mark.parametrize("node_id", [1, 2])
def test_questions_reach_the_coordinator_on_this_node_or_another(cluster_of, node_id):
    async def body(verifier, asked, calls, own):
        other = dataclasses.replace(asked, transactional_id="b", adds=False)
        assert await asyncio.gather(verifier.ask(asked), verifier.ask(other)) == [{}, {}]
        sent = own if node_id == 1 else [request for _, request in calls.requests]
        topics = (TopicPartitions("t", (0, 1)),)
        first, second = (transaction for request in sent for transaction in request.transactions)
        assert first == values.AddPartitionsToTxnTransaction("a", 7, 1, False, topics, 2)
        assert second == values.AddPartitionsToTxnTransaction("b", 7, 1, True, topics, 1)
        if node_id == 2:
            assert not own
            assert {address for address, _ in calls.requests} == {"node:2"}

    verify_through(cluster_of, {"a": node_id, "b": node_id}, added, body)


def test_errors_of_partitions_and_of_a_transaction_are_those_of_the_questions_partitions(cluster_of):
    results = [error_for(ErrorCode.TRANSACTION_ABORTABLE), None]

    def answer(request):
        error = results.pop(0)
        if error is not None:
            return added(request, error)
        whole = values.AddPartitionsToTxnResult("a", error_for(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        return values.AddPartitionsToTxnResponse((whole,))

    async def body(verifier, asked, calls, own):
        for code in (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
            assert await verifier.ask(asked) == dict.fromkeys(asked.partitions, code)

    verify_through(cluster_of, {"a": 1}, answer, body)


@pytest.mark.parametrize(
    ("coordinator", "failure", "expected"),
    [
        (None, None, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (9, None, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, ErrorCode._TRANSPORT, ErrorCode.NETWORK_EXCEPTION),
        (2, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
        (1, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_question_that_reaches_no_coordinator_is_answered_with_the_error(cluster_of, coordinator, failure, expected):
    def answer(request):
        raise error_for(failure)

    async def body(verifier, asked, calls, own):
        assert await verifier.ask(asked) == dict.fromkeys(asked.partitions, expected)

    verify_through(cluster_of, {"a": coordinator}, answer, body)

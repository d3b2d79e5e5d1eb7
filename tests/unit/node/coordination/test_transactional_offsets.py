"""Offsets of transactions in the coordinator of groups, with its log, its view, markers and failover."""

import asyncio
import contextlib
import dataclasses
import itertools
from types import SimpleNamespace

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.records import ControlType, control_batch, iter_headers
from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_node import handlers
from tidelog_node.coordination import OFFSETS_TOPIC, GroupCoordinator
from tidelog_node.coordination.shard_contents import ShardContents
from tidelog_node.event_loop import SystemClock
from tidelog_node.groups import messages
from tidelog_node.groups.settings import GroupSettings
from tidelog_node.groups.shard import GroupShard
from tidelog_node.handlers.context import VerificationSettings
from tidelog_node.handlers.group_offsets import offset_commit, offset_fetch, txn_offset_commit
from tidelog_node.handlers.requests.transactions import WritableTxnMarker, WriteTxnMarkersRequest
from tidelog_node.kafka.apis import group_offsets as kafka_offsets
from tidelog_node.kafka.protocol.messages import transactions as wire
from tidelog_node.kafka.served import Caller, KafkaNode
from tidelog_node.shards.events import ClientIdentity
from tidelog_node.transactions.states import Producer
from tidelog_node.transactions.verification import Question
from tidelog_quorum.metadata.records import PartitionChangeRecord

CLIENT = ClientIdentity("client", "/127.0.0.1")
OFFSETS_ID = b"0123456789abcdef"
RETRIED = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


class FakeCoordinator:
    """Answers each question with ``code``."""

    def __init__(self, code=ErrorCode.NONE):
        self.code = code
        self.questions = []

    async def ask(self, question):
        self.questions.append(question)
        return {} if self.code is ErrorCode.NONE else dict.fromkeys(question.partitions, self.code)


class Nodes:
    """Nodes with group coordinators; node 1 leads __consumer_offsets at first."""

    def __init__(self, cluster, tasks):
        self.cluster = cluster
        self.coordinator = FakeCoordinator()
        self.enable = True
        self.groups, self.contexts, self.tasks = {}, {}, []
        ids = itertools.count()
        for node_id, node in cluster.nodes.items():

            def new_core(store):
                settings = GroupSettings(group_initial_rebalance_delay_ms=0)
                return GroupShard(settings, store, lambda prefix: f"{prefix}-{next(ids)}", SystemClock().monotonic_ms())

            creation = SimpleNamespace(want=lambda names: None, failure_of=lambda name: None)
            paths = [directory.path for directory in node.directories.online]
            groups = GroupCoordinator(
                node.registry, node.cache, creation, lambda paths=paths: paths, new_core, SystemClock()
            )
            self.groups[node_id] = groups
            self.contexts[node_id] = dataclasses.replace(
                node.context,
                groups=groups,
                verifier=self.coordinator,
                verification=lambda: VerificationSettings(self.enable),
            )
            self.tasks.append(tasks.create_task(groups.run()))

    def log(self, node_id=1):
        return self.cluster.nodes[node_id].registry.get(OFFSETS_TOPIC, 0).log

    async def elect(self, leader):
        await self.cluster.controller.change(PartitionChangeRecord(OFFSETS_ID, 0, leader=leader))

    async def commit(self, offset, node_id=1, producer_id=7, epoch=0, version=2):
        topic = messages.OffsetCommitTopic("t", (messages.OffsetCommitPartition(0, offset),))
        request = messages.TxnOffsetCommitRequest(
            "tx", "g", producer_id, epoch, topics=(topic,), transaction_version=version
        )
        return await self._repeat(
            lambda: txn_offset_commit(self.contexts[node_id], self.groups[node_id], request, CLIENT)
        )

    async def commit_alone(self, offset, node_id=1, group_id="g"):
        topic = messages.OffsetCommitTopic("t", (messages.OffsetCommitPartition(0, offset),))
        request = messages.OffsetCommitRequest(group_id, -1, topics=(topic,))
        return await self._repeat(lambda: offset_commit(self.groups[node_id], request, CLIENT))

    async def _repeat(self, call):
        while True:
            code = code_of((await call()).topics[0].partitions[0])
            if code not in RETRIED:
                return code
            await asyncio.sleep(0.005)

    async def fetch(self, node_id=1, stable=True):
        """Return the committed offset, or the error of the partition."""
        group = messages.OffsetFetchGroup("g", topics=(TopicPartitions("t", (0,)),))
        request = messages.OffsetFetchRequest((group,), require_stable=stable)
        while True:
            [result] = (await offset_fetch(self.groups[node_id], request, CLIENT)).groups
            if result.error is None:
                found = result.topics[0].partitions[0]
                return found.committed_offset if found.error is None else found.error.code
            assert result.error.code in RETRIED, result.error
            await asyncio.sleep(0.005)

    async def end(self, committed=True, node_id=1, producer_id=7, epoch=1, version=2):
        marker = WritableTxnMarker(producer_id, epoch, committed, (TopicPartitions(OFFSETS_TOPIC, (0,)),), 0, version)
        while True:
            response = await handlers.write_txn_markers(self.contexts[node_id], WriteTxnMarkersRequest((marker,)))
            code = code_of(response.markers[0].topics[0].partitions[0])
            if code not in RETRIED:
                return code
            await asyncio.sleep(0.005)


def code_of(result):
    return ErrorCode.NONE if result.error is None else result.error.code


@pytest.fixture
def nodes_of(cluster_of):
    @contextlib.asynccontextmanager
    async def start(*node_ids):
        async with cluster_of(*node_ids) as cluster, asyncio.TaskGroup() as tasks:
            nodes = Nodes(cluster, tasks)
            await cluster.create_topic(OFFSETS_TOPIC, replicas=node_ids)
            await cluster.create_topic("t", replicas=(node_ids[0],), topic_id=b"t" * 16)
            try:
                yield nodes
            finally:
                for task in nodes.tasks:
                    task.cancel()

    return start


@pytest.mark.parametrize("committed", [True, False])
def test_marker_settles_the_offsets_before_it_is_answered(nodes_of, committed):
    async def run():
        async with nodes_of(1) as nodes:
            assert await nodes.commit_alone(2) is ErrorCode.NONE
            assert await nodes.commit(5) is ErrorCode.NONE
            [question] = nodes.coordinator.questions
            assert question == Question("tx", Producer(7, 0), frozenset({(OFFSETS_TOPIC, 0)}), True)
            assert await nodes.fetch() is ErrorCode.UNSTABLE_OFFSET_COMMIT
            assert await nodes.fetch(stable=False) == 2
            assert await nodes.commit(6) is ErrorCode.NONE
            assert len(nodes.coordinator.questions) == 1
            assert await nodes.end(committed) is ErrorCode.NONE
            assert await nodes.fetch() == (6 if committed else 2)
            assert nodes.log().last_stable_offset(nodes.log().log_end_offset) == nodes.log().log_end_offset

    asyncio.run(run())


@pytest.mark.parametrize("ends_before", [True, False])
def test_new_coordinator_knows_pending_and_settled_offsets(nodes_of, ends_before):
    async def run():
        async with nodes_of(1, 2) as nodes:
            await nodes.commit_alone(2)
            await nodes.commit(5)
            if ends_before:
                assert await nodes.end() is ErrorCode.NONE
            await nodes.elect(2)
            if not ends_before:
                assert await nodes.fetch(2) is ErrorCode.UNSTABLE_OFFSET_COMMIT
                assert await nodes.end(node_id=2) is ErrorCode.NONE
            assert await nodes.fetch(2) == 5
            await nodes.commit(6, node_id=2, epoch=1)
            await nodes.elect(1)
            assert await nodes.fetch(1) is ErrorCode.UNSTABLE_OFFSET_COMMIT
            assert await nodes.end(committed=False, epoch=2) is ErrorCode.NONE
            assert await nodes.fetch(1) == 5

    asyncio.run(run())


def test_new_coordinator_reads_no_more_of_the_log_for_a_transaction_that_stays_open(nodes_of, monkeypatch):
    read = []

    class Contents(ShardContents):
        def __init__(self, store, position):
            read.append(position.offset)
            super().__init__(store, position, max_held_records=10)

    monkeypatch.setattr("tidelog_node.coordination.shard_loader.ShardContents", Contents)

    async def run():
        async with nodes_of(1, 2) as nodes:
            await nodes.commit(5)
            for offset in range(50):
                await nodes.commit_alone(offset, group_id="other")
            await nodes.elect(2)
            assert await nodes.fetch(2) is ErrorCode.UNSTABLE_OFFSET_COMMIT
            await nodes.elect(1)
            assert await nodes.fetch(1) is ErrorCode.UNSTABLE_OFFSET_COMMIT
            assert read[0] == read[1] == 0
            assert read[2] == nodes.log().log_end_offset
            assert await nodes.end() is ErrorCode.NONE
            assert await nodes.fetch(1) == 5

    asyncio.run(run())


def test_repeated_marker_ends_no_later_transaction(nodes_of):
    async def run():
        async with nodes_of(1) as nodes:
            await nodes.commit(5)
            assert await nodes.end() is ErrorCode.NONE
            assert await nodes.end() is ErrorCode.NONE
            assert await nodes.commit(6, epoch=1) is ErrorCode.NONE
            assert await nodes.end() is ErrorCode.INVALID_PRODUCER_EPOCH
            assert await nodes.fetch() is ErrorCode.UNSTABLE_OFFSET_COMMIT
            assert await nodes.end(epoch=2) is ErrorCode.NONE
            assert await nodes.fetch() == 6

    asyncio.run(run())


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_offsets_of_a_transaction_that_the_coordinator_does_not_confirm_are_refused(nodes_of, code, expected):
    async def run():
        async with nodes_of(1) as nodes:
            nodes.coordinator.code = code
            assert await nodes.commit(5) is expected
            assert nodes.log().log_end_offset == 0

    asyncio.run(run())


def test_disabled_verification_admits_offsets_of_older_producers(nodes_of):
    async def run():
        async with nodes_of(1) as nodes:
            nodes.enable = False
            assert await nodes.commit(5, version=1) is ErrorCode.NONE
            assert not nodes.coordinator.questions
            assert await nodes.end(epoch=0, version=1) is ErrorCode.NONE
            assert await nodes.fetch() == 5

    asyncio.run(run())


def test_fenced_producer_and_impossible_producer_commit_nothing(nodes_of):
    async def run():
        async with nodes_of(1) as nodes:
            await nodes.commit(5)
            await nodes.end()
            assert await nodes.commit(6, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
            assert await nodes.commit(6, producer_id=-1) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
            assert await nodes.fetch() == 5

    asyncio.run(run())


def test_marker_on_a_node_that_does_not_coordinate_the_group_is_refused(nodes_of):
    async def run():
        async with nodes_of(1, 2) as nodes:
            await nodes.commit(5)
            marker = WritableTxnMarker(7, 1, True, (TopicPartitions(OFFSETS_TOPIC, (0,)),), 0, 2)
            response = await handlers.write_txn_markers(nodes.contexts[2], WriteTxnMarkersRequest((marker,)))
            assert code_of(response.markers[0].topics[0].partitions[0]) is ErrorCode.NOT_COORDINATOR

    asyncio.run(run())


def test_offsets_are_in_transactional_batches_of_the_log(nodes_of):
    async def run():
        async with nodes_of(1) as nodes:
            await nodes.commit(5)
            await nodes.end()
            log = nodes.log()
            [(_, data), (_, marker)] = iter_headers(log.read(0, 1 << 20, log.log_end_offset))
            assert (data.producer_id, data.producer_epoch, data.is_transactional, data.is_control) == (
                7,
                0,
                True,
                False,
            )
            assert (marker.producer_epoch, marker.is_control) == (1, True)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("version", "code", "expected"),
    [
        (0, ErrorCode.NONE, 0),
        (3, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE.code),
        (4, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE.code),
        (5, ErrorCode.NONE, 0),
    ],
)
def test_kafka_request_has_the_version_and_errors_of_its_client(nodes_of, version, code, expected):
    async def run():
        async with nodes_of(1) as nodes:
            assert await nodes.fetch() == -1
            nodes.coordinator.code = code
            topic = wire.TxnOffsetCommitRequestTopic("t", [wire.TxnOffsetCommitRequestPartition(0, 5, -1, None)])
            request = wire.TxnOffsetCommitRequest("tx", "g", 7, 0, -1, "", None, [topic])
            caller = Caller("PLAINTEXT", CLIENT, version)
            node = KafkaNode(nodes.contexts[1], nodes.groups[1])
            response = await kafka_offsets.txn_offset_commit(node, request, caller)
            assert [p.error_code for p in response.topics[0].partitions] == [expected]
            assert [question.adds for question in nodes.coordinator.questions] == [version == 5]

    asyncio.run(run())


class LoadingGroups:
    """A coordinator whose shards are loading."""

    def shard_of(self, group_id):
        return 0

    async def call(self, shard, request, client):
        raise error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the groups are being loaded")


@pytest.mark.parametrize("version", range(6))
def test_old_producer_is_not_told_that_the_groups_are_being_loaded(nodes_of, version):
    async def run():
        async with nodes_of(1) as nodes:
            assert await nodes.fetch() == -1
            topic = wire.TxnOffsetCommitRequestTopic("t", [wire.TxnOffsetCommitRequestPartition(0, 5, -1, None)])
            request = wire.TxnOffsetCommitRequest("tx", "g", 7, 0, -1, "", None, [topic])
            node = KafkaNode(nodes.contexts[1], LoadingGroups())
            response = await kafka_offsets.txn_offset_commit(node, request, Caller("PLAINTEXT", CLIENT, version))
            [partition] = response.topics[0].partitions
            known = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if version >= 2 else ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert ErrorCode.of(partition.error_code) is known

    asyncio.run(run())


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "g" * 100_000}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "é" * 20_000}, ErrorCode.INVALID_GROUP_ID),
        ({"producer_id": -1}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"producer_epoch": -1}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({"producer_epoch": 40_000}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({"transaction_version": -1}, ErrorCode.INVALID_REQUEST),
        ({"transaction_version": 2**31 - 1}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "m" * 100_000}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_commit_with_an_invalid_value_is_refused_and_leaves_no_record(nodes_of, fields, expected):
    async def run():
        async with nodes_of(1) as nodes:
            assert await nodes.fetch() == -1
            topic = messages.OffsetCommitTopic("t", (messages.OffsetCommitPartition(0, 5),))
            valid = {"transactional_id": "tx", "group_id": "g", "producer_id": 7, "producer_epoch": 0}
            request = messages.TxnOffsetCommitRequest(**(valid | fields), topics=(topic,))
            response = await txn_offset_commit(nodes.contexts[1], nodes.groups[1], request, CLIENT)
            assert code_of(response.topics[0].partitions[0]) is expected
            assert nodes.log().log_end_offset == 0

    asyncio.run(run())


def test_more_offsets_than_a_commit_may_have_are_refused(nodes_of):
    async def run():
        async with nodes_of(1) as nodes:
            partitions = tuple(messages.OffsetCommitPartition(index, 1) for index in range(25_001))
            request = messages.TxnOffsetCommitRequest(
                "tx", "g", 7, 0, topics=(messages.OffsetCommitTopic("t", partitions),)
            )
            response = await txn_offset_commit(nodes.contexts[1], nodes.groups[1], request, CLIENT)
            assert {code_of(p) for p in response.topics[0].partitions} == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}

    asyncio.run(run())


def test_call_that_waits_for_a_marker_fails_when_leadership_moves(nodes_of, wait_for):
    async def run():
        async with nodes_of(1, 2) as nodes:
            await nodes.commit(5)
            nodes.cluster.transport.cut_off.add(2)
            end = nodes.log().log_end_offset
            ending = asyncio.ensure_future(nodes.groups[1].end_transaction(0, marker_batch(), 7, 2, committed=True))
            await wait_for(lambda: nodes.log().log_end_offset > end)
            await nodes.elect(2)
            with pytest.raises(TidelogError) as failed:
                await ending
            assert failed.value.code is ErrorCode.NOT_COORDINATOR
            nodes.cluster.transport.cut_off.clear()

    asyncio.run(run())


def marker_batch():
    return control_batch(ControlType.COMMIT, 7, 1, 0, 1_000)


def test_question_is_repeated_when_the_marker_of_the_last_transaction_overtakes_the_answer(nodes_of):
    async def run():
        async with nodes_of(1) as nodes:
            await nodes.commit(5)
            ask, ended, before = nodes.coordinator.ask, [], len(nodes.coordinator.questions)

            async def ask_and_end(question):
                answer = await ask(question)
                if not ended:
                    ended.append(await nodes.end())
                return answer

            nodes.coordinator.ask = ask_and_end
            assert await nodes.commit(6, epoch=1) is ErrorCode.NONE
            assert ended == [ErrorCode.NONE]
            assert len(nodes.coordinator.questions) == before + 2
            assert await nodes.end(epoch=2) is ErrorCode.NONE
            assert await nodes.fetch() == 6

    asyncio.run(run())

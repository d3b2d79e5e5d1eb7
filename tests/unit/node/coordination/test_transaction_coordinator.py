"""The transaction coordinator of nodes in one process, through Kafka's protocol."""

import asyncio
import contextlib

from kafka_transactions import ID, STATE_TOPIC_ID, TOPIC_ID, kafka_transactions

from tests.unit.node.conftest import eventually
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.records import ControlType, iter_headers, read_control, read_records
from tidelog_node.coordination import TRANSACTION_TOPIC, TransactionTopicSettings
from tidelog_node.kafka.protocol.messages import transactions as wire
from tidelog_node.kafka.protocol.messages.group_admin import FindCoordinatorRequest
from tidelog_node.kafka.protocol.messages.producers import InitProducerIdRequest
from tidelog_node.transactions.settings import TransactionSettings
from tidelog_quorum.metadata.delta import delta_between
from tidelog_quorum.metadata.records import PartitionChangeRecord, RemoveTopicRecord

TIMEOUT_MS = 10_000
FENCED = ErrorCode.PRODUCER_FENCED.code


def running(test, path, *node_ids, **settings):
    async def run():
        async with kafka_transactions(path, *node_ids, **settings) as transactions:
            await test(transactions)

    asyncio.run(run())


async def init(transactions, version=5, node_id=1, transactional_id=ID, **fields):
    """Return the error, producer id and epoch of InitProducerId."""
    request = InitProducerIdRequest(transactional_id, TIMEOUT_MS, **fields)
    answer = await transactions.ask(request, version, node_id)
    return ErrorCode.of(answer.error_code).name, answer.producer_id, answer.producer_epoch


async def add(transactions, producer, *indexes, version=3, node_id=1, verify_only=False):
    """Return the errors of AddPartitionsToTxn by partition of t, repeated while the previous transaction ends."""
    topics = [wire.AddPartitionsToTxnTopic("t", list(indexes))]
    if version < 4:
        request = wire.AddPartitionsToTxnRequest([], ID, *producer, topics)
    else:
        each = wire.AddPartitionsToTxnTransaction(ID, *producer, verify_only, topics)
        request = wire.AddPartitionsToTxnRequest([each], "", 0, 0, [])
    while True:
        answer = await transactions.send(request, version, node_id)
        found = answer.results_by_transaction[0].topic_results if version >= 4 else answer.results_by_topic_v3_and_below
        errors = {p.partition_index: ErrorCode.of(p.partition_error_code).name for p in found[0].results_by_partition}
        if "CONCURRENT_TRANSACTIONS" not in errors.values():
            return errors
        await asyncio.sleep(0.005)


async def end(transactions, producer, committed=True, version=5, node_id=1):
    """Return the error of EndTxn, and the producer to use next."""
    answer = await transactions.ask(wire.EndTxnRequest(ID, *producer, committed), version, node_id)
    return ErrorCode.of(answer.error_code).name, (answer.producer_id, answer.producer_epoch)


async def state(transactions, node_id=1):
    request = wire.DescribeTransactionsRequest([ID])
    answer = await transactions.ask(request, 0, node_id)
    return answer.transaction_states[0]


async def until_state(transactions, name, node_id=1):
    async with asyncio.timeout(10):
        while True:
            if (await state(transactions, node_id)).transaction_state == name:
                return
            await asyncio.sleep(0.005)


def markers(transactions, index, node_id=1, topic="t"):
    """Return the markers in a partition of a topic: whether each commits, its producer epoch and coordinator epoch."""
    log = transactions.cluster.nodes[node_id].registry.get(topic, index).log
    batches = log.read(0, 1 << 20, log.log_end_offset)
    found = []
    for position, header in iter_headers(batches):
        if header.is_control:
            control = read_control(batches, position)
            found.append((control.kind is ControlType.COMMIT, header.producer_epoch, control.coordinator_epoch))
    return found


def test_transaction_is_committed_in_every_partition_and_the_epoch_rises(tmp_path):
    async def test(transactions):
        assert await init(transactions) == ("NONE", 100, 0)
        assert await add(transactions, (100, 0), 0, 2) == {0: "NONE", 2: "NONE"}
        described = await state(transactions)
        assert (described.transaction_state, described.transaction_timeout_ms) == ("Ongoing", TIMEOUT_MS)
        assert described.topics == [wire.TransactionTopic("t", [0, 2])]
        assert await end(transactions, (100, 0)) == ("NONE", (100, 1))
        await until_state(transactions, "CompleteCommit")
        assert [markers(transactions, index) for index in range(3)] == [[(True, 1, 0)], [], [(True, 1, 0)]]
        # A repetition has the same answer, and no effect on the next transaction.
        assert await end(transactions, (100, 0)) == ("NONE", (100, 1))
        assert await add(transactions, (100, 1), 1) == {1: "NONE"}
        assert await end(transactions, (100, 1), committed=False) == ("NONE", (100, 2))
        await until_state(transactions, "CompleteAbort")
        assert markers(transactions, 1) == [(False, 2, 0)]

    running(test, tmp_path)


def test_client_of_version_0_keeps_its_epoch(tmp_path):
    async def test(transactions):
        for version in range(5):
            _, producer_id, epoch = await init(transactions, version)
            producer = producer_id, epoch
            assert await add(transactions, producer, 0, version=min(version, 3)) == {0: "NONE"}
            assert await end(transactions, producer, version=version) == ("NONE", (-1, -1))
            await until_state(transactions, "CompleteCommit")
            assert markers(transactions, 0)[-1] == (True, epoch, 0)

    running(test, tmp_path, version=0)


def test_producer_is_fenced_by_a_newer_one_and_told_so_as_its_version_knows(tmp_path):
    async def test(transactions):
        await init(transactions)
        assert await add(transactions, (100, 0), 0) == {0: "NONE"}
        # The open transaction of the older producer is aborted first.
        assert await init(transactions) == ("NONE", 100, 2)
        assert markers(transactions, 0) == [(False, 1, 0)]
        assert await add(transactions, (100, 0), 0, version=2) == {0: "PRODUCER_FENCED"}
        assert await add(transactions, (100, 0), 0, version=1) == {0: "INVALID_PRODUCER_EPOCH"}
        assert await add(transactions, (100, 0), 0, version=5) == {0: "PRODUCER_FENCED"}
        assert (await end(transactions, (100, 0), version=2))[0] == "PRODUCER_FENCED"
        assert (await end(transactions, (100, 0), version=1))[0] == "INVALID_PRODUCER_EPOCH"
        assert (await init(transactions, 4, producer_id=100, producer_epoch=0))[0] == "PRODUCER_FENCED"
        assert (await init(transactions, 3, producer_id=100, producer_epoch=0))[0] == "INVALID_PRODUCER_EPOCH"

    running(test, tmp_path)


def test_partition_that_does_not_exist_keeps_the_others_out(tmp_path):
    async def test(transactions):
        await init(transactions)
        errors = {0: "OPERATION_NOT_ATTEMPTED", 7: "UNKNOWN_TOPIC_OR_PARTITION"}
        for version in (0, 3, 4, 5):
            assert await add(transactions, (100, 0), 0, 7, version=version) == errors
        assert (await state(transactions)).transaction_state == "Empty"

    running(test, tmp_path)


def test_client_adds_no_partition_of_a_coordinators_topic(tmp_path):
    async def test(transactions):
        await init(transactions)
        topics = [wire.AddPartitionsToTxnTopic("t", [0]), wire.AddPartitionsToTxnTopic("__transaction_state", [0])]
        answer = await transactions.ask(wire.AddPartitionsToTxnRequest([], ID, 100, 0, topics), 3)
        errors = [
            result.partition_error_code
            for t in answer.results_by_topic_v3_and_below
            for result in t.results_by_partition
        ]
        assert errors == [ErrorCode.OPERATION_NOT_ATTEMPTED.code, ErrorCode.TOPIC_AUTHORIZATION_FAILED.code]
        assert (await state(transactions)).transaction_state == "Empty"

    running(test, tmp_path)


def test_verification_tells_which_partitions_are_in_the_transaction(tmp_path):
    async def test(transactions):
        await init(transactions)
        assert await add(transactions, (100, 0), 0, version=4, verify_only=True) == {0: "TRANSACTION_ABORTABLE"}
        assert await add(transactions, (100, 0), 1, version=5) == {1: "NONE"}
        found = await add(transactions, (100, 0), 0, 1, version=5, verify_only=True)
        assert found == {0: "TRANSACTION_ABORTABLE", 1: "NONE"}

    running(test, tmp_path)


def test_offsets_are_added_once_their_topic_exists(tmp_path):
    async def test(transactions):
        await init(transactions)
        request = wire.AddOffsetsToTxnRequest(ID, 100, 0, "group")
        answer = await transactions.send(request, 4)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE.code
        assert transactions.wanted == ["__consumer_offsets"]
        await transactions.cluster.create_topic("__consumer_offsets", (1,), partitions=5, topic_id=b"o" * 16)
        for version in range(5):
            assert (await transactions.ask(request, version)).error_code == 0
        assert [t.topic for t in (await state(transactions)).topics] == ["__consumer_offsets"]

    running(test, tmp_path)


def test_group_with_a_long_id_is_refused_without_being_hashed(tmp_path):
    async def test(transactions):
        await init(transactions)
        answer = await transactions.send(wire.AddOffsetsToTxnRequest(ID, 100, 0, "g" * 32_768), 4)
        assert answer.error_code == ErrorCode.INVALID_GROUP_ID.code

    running(test, tmp_path)


def test_marker_is_repeated_until_its_leader_has_it(tmp_path):
    async def test(transactions):
        await init(transactions)
        await add(transactions, (100, 0), 0, 1)
        await transactions.cluster.controller.change(PartitionChangeRecord(TOPIC_ID, 1, leader=2))
        transactions.calls.cut_off.add(2)
        assert await end(transactions, (100, 0)) == ("NONE", (100, 1))
        await eventually(lambda: len(transactions.calls.markers) > 2)
        assert (await state(transactions)).transaction_state == "PrepareCommit"
        assert markers(transactions, 0) == [(True, 1, 0)], "the other leader has it already"
        transactions.calls.cut_off.clear()
        await until_state(transactions, "CompleteCommit")
        assert markers(transactions, 1, node_id=2) == [(True, 1, 0)]

    running(test, tmp_path, 1, 2)


def test_markers_of_a_prepared_transaction_are_written_by_the_next_coordinator(tmp_path):
    async def test(transactions):
        await init(transactions)
        await add(transactions, (100, 0), 0)
        await transactions.cluster.controller.change(PartitionChangeRecord(TOPIC_ID, 0, leader=2))
        transactions.calls.cut_off.add(2)
        assert await end(transactions, (100, 0)) == ("NONE", (100, 1))
        await transactions.lead(2)
        refused = await transactions.send(wire.EndTxnRequest(ID, 100, 0, True), 5)
        assert refused.error_code == ErrorCode.NOT_COORDINATOR.code
        # The next coordinator writes to its own partitions without a connection.
        await until_state(transactions, "CompleteCommit", node_id=2)
        assert markers(transactions, 0, node_id=2) == [(True, 1, 1)], "the coordinator epoch is the new leader epoch"
        assert await end(transactions, (100, 0), node_id=2) == ("NONE", (100, 1)), (
            "a repetition at the next coordinator"
        )

    running(test, tmp_path, 1, 2)


def test_new_coordinator_knows_the_topics_that_the_former_one_knew(tmp_path):
    async def test(transactions):
        cluster = transactions.cluster
        await init(transactions)
        # Node 2 applies the next changes late and all at once: a new topic, and its own leadership.
        node, cluster.controller.nodes = cluster.nodes[2], {1: cluster.nodes[1]}
        await cluster.create_topic("new", replicas=(1,), topic_id=b"n" * 16)
        await add(transactions, (100, 0), 0)
        request = wire.AddPartitionsToTxnRequest([], ID, 100, 0, [wire.AddPartitionsToTxnTopic("new", [0])])
        await transactions.send(request, 3)
        await transactions.lead(2)
        image = cluster.controller.image
        node.cache.publish_brokers(image)
        await node.registry.apply(image, delta_between(node.image, image))
        # The partitions have the image, but it is not published yet.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await transactions.ask(wire.EndTxnRequest(ID, 100, 0, True), 5, node_id=2)
                await until_state(transactions, "CompleteCommit", node_id=2)
        node.image = image
        node.cache.publish(image)
        assert await end(transactions, (100, 0), node_id=2) == ("NONE", (100, 1))
        await until_state(transactions, "CompleteCommit", node_id=2)
        assert markers(transactions, 0) == [(True, 1, 1)]
        assert markers(transactions, 0, topic="new") == [(True, 1, 1)]

    running(test, tmp_path, 1, 2)


def test_transaction_that_is_open_for_too_long_is_aborted(tmp_path):
    async def test(transactions):
        request = InitProducerIdRequest(ID, 50)
        assert (await transactions.ask(request, 5)).error_code == 0
        await add(transactions, (100, 0), 0)
        await until_state(transactions, "CompleteAbort")
        assert markers(transactions, 0) == [(False, 1, 0)]
        assert await add(transactions, (100, 0), 0) == {0: "PRODUCER_FENCED"}
        assert (await end(transactions, (100, 0)))[0] == "INVALID_TXN_STATE"
        assert await end(transactions, (100, 0), committed=False) == ("NONE", (100, 1))

    running(test, tmp_path, abort_timed_out_interval_ms=20)


def test_marker_of_a_deleted_partition_is_not_needed(tmp_path):
    async def test(transactions):
        await init(transactions)
        await add(transactions, (100, 0), 0)
        await transactions.cluster.controller.change(RemoveTopicRecord(TOPIC_ID))
        assert await end(transactions, (100, 0)) == ("NONE", (100, 1))
        await until_state(transactions, "CompleteCommit")

    running(test, tmp_path)


def test_two_phase_commit_keeps_a_prepared_transaction_for_the_next_client(tmp_path):
    async def test(transactions):
        assert (await init(transactions, 6, enable2_pc=True))[0] == "NONE"
        await add(transactions, (100, 0), 0)
        request = InitProducerIdRequest(ID, TIMEOUT_MS, enable2_pc=True, keep_prepared_txn=True)
        kept = await transactions.ask(request, 6)
        assert (kept.ongoing_txn_producer_id, kept.ongoing_txn_producer_epoch) == (100, 0)
        assert (kept.producer_id, kept.producer_epoch) == (100, 1)
        assert (await end(transactions, (100, 1)))[0] == "NONE"
        await until_state(transactions, "CompleteCommit")

    running(test, tmp_path, two_phase_commit_enable=True)


def test_two_phase_commit_is_refused_unless_it_is_enabled(tmp_path):
    async def test(transactions):
        assert (await init(transactions, 6, enable2_pc=True))[0] == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"

    running(test, tmp_path)


def test_invalid_requests_are_refused_with_the_value_and_the_limit(tmp_path):
    async def test(transactions):
        await init(transactions)
        assert (await init(transactions, transactional_id=""))[0] == "INVALID_REQUEST"
        assert (await init(transactions, transactional_id="x" * 32_767))[0] == "NONE"
        assert (await init(transactions, transactional_id="x" * 100_000))[0] == "INVALID_REQUEST"
        assert (await init(transactions, producer_id=5))[0] == "INVALID_REQUEST"
        too_long = await transactions.ask(InitProducerIdRequest(ID, 900_001), 5)
        assert too_long.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT.code
        assert (await end(transactions, (7, 0)))[0] == "INVALID_PRODUCER_ID_MAPPING"
        found = (await transactions.ask(wire.DescribeTransactionsRequest(["", "other"]), 0)).transaction_states
        codes = [ErrorCode.of(each.error_code).name for each in found]
        assert codes == ["INVALID_REQUEST", "TRANSACTIONAL_ID_NOT_FOUND"]

    running(test, tmp_path)


def test_list_has_the_transactional_ids_that_match_all_filters(tmp_path):
    async def listed(transactions, version=2, **fields):
        answer = await transactions.ask(wire.ListTransactionsRequest(**fields), version)
        assert answer.error_code == 0
        return sorted(line.transactional_id for line in answer.transaction_states), answer.unknown_state_filters

    async def test(transactions):
        for name in ("a-1", "a-2", "b:1 x"):
            await init(transactions, transactional_id=name)
        await init(transactions)
        await add(transactions, (103, 0), 0)
        everything = ["a-1", "a-2", "app", "b:1 x"]
        for version in range(3):
            assert await listed(transactions, version) == (everything, [])
        assert await listed(transactions, state_filters=["Ongoing"]) == (["app"], [])
        assert await listed(transactions, state_filters=["Empty", "Odd"]) == (["a-1", "a-2", "b:1 x"], ["Odd"])
        assert await listed(transactions, state_filters=["Odd"]) == ([], ["Odd"])
        assert await listed(transactions, producer_id_filters=[101, 103]) == (["a-2", "app"], [])
        assert await listed(transactions, duration_filter=3_600_000) == ([], [])
        assert await listed(transactions, transactional_id_pattern="") == (everything, [])
        assert await listed(transactions, transactional_id_pattern="a-.") == (["a-1", "a-2"], [])
        assert await listed(transactions, transactional_id_pattern="[^a].*") == (["b:1 x"], [])
        bad = await transactions.ask(wire.ListTransactionsRequest(transactional_id_pattern="("), 2)
        assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION.code
        many = await transactions.ask(wire.ListTransactionsRequest([f"{n}" for n in range(101)]), 2)
        assert many.error_code == ErrorCode.INVALID_REQUEST.code

    running(test, tmp_path)


def test_coordinator_is_found_and_its_topic_created_when_first_asked_for(tmp_path):
    async def test(transactions):
        found = await transactions.send(FindCoordinatorRequest(ID, 1), 3)
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE.code
        assert transactions.wanted == [TRANSACTION_TOPIC]
        await transactions.cluster.create_topic(TRANSACTION_TOPIC, replicas=(1,), topic_id=STATE_TOPIC_ID)
        found = await transactions.send(FindCoordinatorRequest(ID, 1), 3)
        assert (found.error_code, found.node_id, found.host) == (0, 1, "kafka-1")
        many = await transactions.send(FindCoordinatorRequest(key_type=1, coordinator_keys=["a", "b"]), 6)
        assert [(each.key, each.node_id) for each in many.coordinators] == [("a", 1), ("b", 1)]

    running(test, tmp_path, creates_topic=False)


def test_records_have_the_format_of_the_finalized_transaction_version(tmp_path):
    async def test(transactions):
        log = transactions.cluster.nodes[1].registry.get(TRANSACTION_TOPIC, 0).log
        versions = []
        for version in (0, 1, 2, 1, 0):
            await transactions.set_version(version)
            # The change reaches the shards with the next image that they read.
            async with asyncio.timeout(10):
                while True:
                    await init(transactions)
                    record = list(read_last(log))[-1]
                    if (record.value[1] == 1) == (version >= 1):
                        break
                    await asyncio.sleep(0.02)
            versions.append(record.value[1])
        assert versions == [0, 1, 1, 1, 0]

    running(test, tmp_path, version=0)


def read_last(log):
    batches = log.read(0, 1 << 20, log.log_end_offset)
    for position, _ in iter_headers(batches):
        yield from read_records(batches, position)


def test_transaction_topic_is_created_as_the_settings_say():
    topic = TransactionTopicSettings(50, 3, 2, 104_857_600).creatable()
    assert (topic.name, topic.num_partitions, topic.replication_factor) == (TRANSACTION_TOPIC, 50, 3)
    assert {c.name: c.value for c in topic.configs} == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }


def test_default_settings_are_kafkas():
    settings = TransactionSettings()
    assert (settings.transaction_max_timeout_ms, settings.transactional_id_expiration_ms) == (900_000, 604_800_000)
    assert (settings.abort_timed_out_interval_ms, settings.remove_expired_interval_ms) == (10_000, 3_600_000)
    assert not settings.two_phase_commit_enable

"""Markers that a partition leader writes for transaction coordinators and administrators."""

import asyncio

import pytest

from tests.support.transactional_appends import append_verified
from tidelog_foundation import time_slices
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.records import ControlType, RecordBatchBuilder, iter_headers, read_control
from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_node import handlers
from tidelog_node.handlers import transaction_markers
from tidelog_node.handlers.requests.transactions import WritableTxnMarker, WriteTxnMarkersRequest
from tidelog_node.kafka.apis.transaction_markers import write_txn_markers
from tidelog_node.kafka.protocol.messages import transactions as wire
from tidelog_node.kafka.served import KafkaNode

PRODUCER_ID = 9


def marker(
    committed=True, epoch=0, coordinator_epoch=3, version=0, partitions=(0,), topic="t", producer_id=PRODUCER_ID
):
    topics = (TopicPartitions(topic, tuple(partitions)),)
    return WritableTxnMarker(producer_id, epoch, committed, topics, coordinator_epoch, version)


async def write(cluster, *markers, node=1):
    response = await handlers.write_txn_markers(cluster.nodes[node].context, WriteTxnMarkersRequest(markers))
    return [[codes(topic) for topic in result.topics] for result in response.markers]


async def write_one(cluster, *args, **fields):
    return (await write(cluster, marker(*args, **fields)))[0][0]


def codes(topic):
    return [ErrorCode.NONE if p.error is None else p.error.code for p in topic.partitions]


def begin_transaction(cluster, epoch=0, sequence=0, index=0):
    """Append the first batch of a transaction."""
    builder = RecordBatchBuilder()
    builder.append(None, b"v", (), 1_000)
    batch = builder.build(producer_id=PRODUCER_ID, producer_epoch=epoch, base_sequence=sequence, is_transactional=True)
    partition = cluster.partition(1, index)
    append_verified(partition, batch)


def controls(cluster, node=1):
    log, offset, found = cluster.partition(node).log, 0, []
    while offset < log.log_end_offset:
        records = log.read(offset, 1 << 20, log.log_end_offset)
        for position, header in iter_headers(records):
            found.append(read_control(records, position))
            offset = header.next_offset
    return [(c.kind, c.producer_epoch, c.coordinator_epoch) for c in found if c is not None]


def last_stable_offset(cluster):
    partition = cluster.partition(1)
    return partition.log.last_stable_offset(partition.high_watermark)


@pytest.mark.parametrize("committed", [True, False])
def test_marker_ends_the_transaction_and_carries_the_coordinators_epoch(cluster_of, committed):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            begin_transaction(cluster)
            assert last_stable_offset(cluster) == 0
            assert await write_one(cluster, committed) == [ErrorCode.NONE]
            kind = ControlType.COMMIT if committed else ControlType.ABORT
            assert controls(cluster) == [(kind, 0, 3)]
            assert last_stable_offset(cluster) == 2
            aborted = cluster.partition(1).log.aborted_transactions(0, 2)
            assert len(aborted) == (0 if committed else 1)

    asyncio.run(run())


def test_marker_is_answered_when_all_in_sync_replicas_have_it(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            begin_transaction(cluster)
            cluster.transport.cut_off.add(2)
            writing = asyncio.create_task(write_one(cluster))
            await wait_for(lambda: controls(cluster))
            assert not writing.done()
            cluster.transport.cut_off.clear()
            assert await writing == [ErrorCode.NONE]
            assert controls(cluster, node=2) == [(ControlType.COMMIT, 0, 3)]

    asyncio.run(run())


def test_marker_that_replicas_do_not_take_in_time_is_answered_with_a_timeout(cluster_of, monkeypatch):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            cluster.transport.cut_off.add(2)
            assert await write_one(cluster) == [ErrorCode.REQUEST_TIMED_OUT]

    monkeypatch.setattr(transaction_markers, "DEFAULT_TIMEOUT_MS", 50)
    asyncio.run(run())


def test_partitions_with_their_marker_are_answered_soon_if_others_have_slow_replicas(cluster_of, monkeypatch):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1,))
            await cluster.create_topic("slow", replicas=(1, 2), topic_id=b"s" * 16)
            cluster.transport.cut_off.add(2)
            found = await asyncio.wait_for(write(cluster, marker(topic="slow"), marker(producer_id=10)), 10)
            assert found == [[[ErrorCode.REQUEST_TIMED_OUT]], [[ErrorCode.NONE]]]

    monkeypatch.setattr(transaction_markers, "SLOW_MS", 50)
    asyncio.run(run())


def test_marker_needs_min_insync_replicas(cluster_of):
    async def run():
        async with cluster_of(1, 2, min_isr=2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            await cluster.elect(1, isr=(1,))
            assert await write_one(cluster) == [ErrorCode.NOT_ENOUGH_REPLICAS]
            assert controls(cluster) == []

    asyncio.run(run())


def test_marker_of_a_fenced_coordinator_or_producer_is_refused(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            begin_transaction(cluster, epoch=2)
            assert await write_one(cluster, epoch=1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
            assert await write_one(cluster, epoch=2, version=2) == [ErrorCode.INVALID_PRODUCER_EPOCH]
            assert await write_one(cluster, epoch=3, version=2) == [ErrorCode.NONE]
            fenced = await write_one(cluster, epoch=3, version=2, coordinator_epoch=2)
            assert fenced == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
            assert await write_one(cluster, epoch=3, version=2) == [ErrorCode.NONE]
            assert controls(cluster) == [(ControlType.COMMIT, 3, 3)] * 2

    asyncio.run(run())


def test_markers_of_one_request_are_answered_each_for_its_partitions(cluster_of):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2), partitions=2)
            await cluster.elect(2, index=1)
            first = marker(partitions=(1, 0, 7))
            second = marker(topic="none", producer_id=8)
            assert await write(cluster, first, second) == [
                [[ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]],
                [[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]],
            ]

    asyncio.run(run())


@pytest.mark.parametrize("fields", [{"producer_id": -1}, {"epoch": -1}, {"epoch": 32_768}])
def test_marker_of_an_impossible_producer_is_refused(cluster_of, fields):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            assert await write_one(cluster, **fields) == [ErrorCode.INVALID_REQUEST]
            assert cluster.partition(1).log.log_end_offset == 0

    asyncio.run(run())


def test_marker_is_no_longer_waited_for_when_leadership_moves(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            cluster.transport.cut_off.add(2)
            writing = asyncio.create_task(write_one(cluster))
            await wait_for(lambda: controls(cluster))
            await cluster.elect(2)
            assert await writing == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    asyncio.run(run())


COUNT = 200


@pytest.mark.parametrize(
    "markers",
    [
        pytest.param([wire.WritableTxnMarker() for _ in range(COUNT)], id="markers without topics"),
        pytest.param(
            [wire.WritableTxnMarker(topics=[wire.WritableTxnMarkerTopic() for _ in range(COUNT)])], id="topics"
        ),
    ],
)
def test_other_work_runs_between_elements_without_partitions(cluster_of, monkeypatch, markers):
    """An element that has no partitions takes time in each pass over the request and its results."""
    monkeypatch.setattr(time_slices, "SLICE_S", 0)
    pauses = 0

    async def count_pauses():
        nonlocal pauses
        while True:
            await asyncio.sleep(0)
            pauses += 1

    async def run():
        async with cluster_of(1) as cluster:
            node = KafkaNode(cluster.nodes[1].context, None)
            counting = asyncio.ensure_future(count_pauses())
            await write_txn_markers(node, wire.WriteTxnMarkersRequest(markers), None)
            counting.cancel()

    asyncio.run(run())
    assert pauses >= 4 * COUNT

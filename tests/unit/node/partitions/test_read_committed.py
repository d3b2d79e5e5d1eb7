"""Reads of transactions at both isolation levels."""

import asyncio

import pytest

from tests.support.transactional_appends import append_verified
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.records import (
    ControlType,
    RecordBatchBuilder,
    control_batch,
    iter_headers,
    read_records,
)
from tidelog_node import handlers
from tidelog_node.handlers.requests import offsets as values
from tidelog_node.server import log_service

COMMITTED = pb.ISOLATION_LEVEL_READ_COMMITTED
PRODUCER_ID = 9


def transactional_batch(sequence, *values):
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(None, value, (), 1_000 + sequence)
    return builder.build(producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=sequence, is_transactional=True)


def end_transaction(cluster, kind):
    cluster.partition(1).append_marker(control_batch(kind, PRODUCER_ID, 0, 0, 1_000), transaction_version=0)


async def fetch(cluster, offset=0, isolation=COMMITTED, max_wait_ms=0, node_id=1, **fields):
    response = await fetch_response(cluster, offset, isolation, max_wait_ms, node_id, **fields)
    return response.topics[0].partitions[0]


async def fetch_response(cluster, offset=0, isolation=COMMITTED, max_wait_ms=0, node_id=1, **fields):
    item = pb.FetchPartition(index=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = pb.FetchRequest(
        **{"topics": [pb.FetchTopic(name="t", partitions=[item])], **fields},
        max_bytes=1 << 20,
        min_bytes=1,
        max_wait_ms=max_wait_ms,
        isolation_level=isolation,
    )
    return await log_service.fetch(cluster.nodes[node_id].context, request)


async def list_offset(cluster, timestamp_ms, isolation):
    topic = values.ListOffsetsTopic("t", (values.ListOffsetsPartition(0, timestamp_ms),))
    request = values.ListOffsetsRequest((topic,), values.IsolationLevel(isolation))
    response = await handlers.list_offsets(cluster.nodes[1].context, request)
    return response.topics[0].partitions[0].offset


def base_offsets(result):
    return [header.base_offset for _, header in iter_headers(result.records)]


def aborted(result):
    return [(a.producer_id, a.first_offset) for a in result.aborted_transactions]


def test_records_of_an_open_transaction_are_seen_by_read_uncommitted_alone(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            await cluster.produce(1, b"before")
            append_verified(cluster.partition(1), transactional_batch(0, b"open"))
            await cluster.produce(1, b"behind")

            committed, uncommitted = await fetch(cluster), await fetch(cluster, isolation=0)
            assert (base_offsets(committed), base_offsets(uncommitted)) == ([0], [0, 1, 2])
            for result in (committed, uncommitted):
                assert (result.last_stable_offset, result.high_watermark) == (1, 3)
            assert base_offsets(await fetch(cluster, offset=2)) == []
            assert [await list_offset(cluster, -1, i) for i in (0, COMMITTED)] == [3, 1]
            assert [await list_offset(cluster, -3, i) for i in (0, COMMITTED)] == [0, 0]
            assert (await list_offset(cluster, -2, COMMITTED)) == 0

    asyncio.run(run())


@pytest.mark.parametrize(("kind", "expected"), [(ControlType.COMMIT, []), (ControlType.ABORT, [(PRODUCER_ID, 1)])])
def test_marker_lets_read_committed_go_on_and_names_what_was_aborted(cluster_of, kind, expected):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            await cluster.produce(1, b"before")
            append_verified(cluster.partition(1), transactional_batch(0, b"a", b"b"))
            waiting = asyncio.create_task(fetch(cluster, offset=1, max_wait_ms=5_000))
            await asyncio.sleep(0.02)
            assert not waiting.done()

            end_transaction(cluster, kind)
            result = await asyncio.wait_for(waiting, 1)
            assert (result.last_stable_offset, result.high_watermark) == (4, 4)
            assert base_offsets(result) == [1, 3]
            assert aborted(result) == expected
            assert [r.value for r in read_records(result.records)] == [b"a", b"b"]
            assert aborted(await fetch(cluster, offset=1, isolation=0)) == [], "only who asked is told"
            assert (await list_offset(cluster, -1, COMMITTED)) == 4
            await cluster.produce(1, b"after")
            assert aborted(await fetch(cluster, offset=4)) == [], "not among these records"

    asyncio.run(run())


@pytest.mark.parametrize("has_session", [False, True])
@pytest.mark.parametrize(("kind", "expected"), [(ControlType.COMMIT, []), (ControlType.ABORT, [(PRODUCER_ID, 1)])])
def test_follower_lets_read_committed_go_on_when_it_has_the_marker(cluster_of, wait_for, kind, expected, has_session):
    """A consumer in the follower's rack reads there (KIP-392), with a fetch session or without."""

    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            await cluster.produce(1, b"before")
            append_verified(cluster.partition(1), transactional_batch(0, b"a", b"b"))
            follower = cluster.partition(2)
            await wait_for(lambda: follower.high_watermark == 3)
            near = {"node_id": 2, "rack_id": "rack-2"}
            if has_session:
                begun = await fetch_response(cluster, offset=1, session=pb.FetchSession(epoch=0), **near)
                assert base_offsets(begun.topics[0].partitions[0]) == []
                near |= {"session": pb.FetchSession(id=begun.session_id, epoch=1), "topics": []}
            waiting = asyncio.create_task(fetch(cluster, offset=1, max_wait_ms=5_000, **near))
            await asyncio.sleep(0.02)
            assert not waiting.done()

            end_transaction(cluster, kind)
            result = await asyncio.wait_for(waiting, 2)
            assert (result.last_stable_offset, result.high_watermark) == (4, 4)
            assert base_offsets(result) == [1, 3]
            assert aborted(result) == expected

    asyncio.run(run())


def test_next_leader_knows_open_and_aborted_transactions(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            append_verified(cluster.partition(1), transactional_batch(0, b"a"))
            end_transaction(cluster, ControlType.ABORT)
            append_verified(cluster.partition(1), transactional_batch(1, b"b"))
            await wait_for(lambda: cluster.partition(2).high_watermark == 3)
            await cluster.elect(2)
            await wait_for(lambda: cluster.partition(2).state.leader is not None)
            await wait_for(lambda: cluster.partition(2).high_watermark == 3)
            result = await fetch(cluster, node_id=2)
            assert (result.last_stable_offset, base_offsets(result), aborted(result)) == (2, [0, 1], [(PRODUCER_ID, 0)])
            marker = control_batch(ControlType.COMMIT, PRODUCER_ID, 0, 0, 1_000)
            cluster.partition(2).append_marker(marker, transaction_version=0)
            await wait_for(lambda: cluster.partition(2).high_watermark == 4)
            result = await fetch(cluster, node_id=2)
            assert (result.last_stable_offset, aborted(result)) == (4, [(PRODUCER_ID, 0)])

    asyncio.run(run())


@pytest.mark.parametrize("replicas", [(1,), (1, 2)])
def test_replica_without_readers_keeps_no_transaction_that_is_replicated(cluster_of, wait_for, replicas):
    async def run():
        async with cluster_of(*replicas) as cluster:
            await cluster.create_topic(replicas=replicas)
            for sequence in range(5):
                append_verified(cluster.partition(1), transactional_batch(sequence, b"a"))
                end_transaction(cluster, ControlType.ABORT)
            for node_id in replicas:
                log = cluster.partition(node_id).log
                await wait_for(lambda log=log: log.log_end_offset == 10)
                state = log._producers.snapshots.state
                await wait_for(lambda state=state: state.first_unstable_offset is None)

    asyncio.run(run())

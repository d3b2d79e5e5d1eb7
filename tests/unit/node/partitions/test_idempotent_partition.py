"""Nodes' answers to a repeated batch: before the commit of the original, and after the loss of its leader."""

import asyncio

from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.records import RecordBatchBuilder, read_records
from tidelog_node.server import log_service


def numbered(sequence, count=2, epoch=0):
    builder = RecordBatchBuilder()
    for number in range(sequence, sequence + count):
        builder.append(None, b"%d" % number, (), 1_000)
    return builder.build(7, epoch, sequence)


async def produce(cluster, make_produce_request, node_id, records, timeout_ms=5_000, acks=pb.ACKS_ALL):
    request = make_produce_request(records, acks, timeout_ms)
    response = await log_service.produce(cluster.nodes[node_id].context, request)
    return response.topics[0].partitions[0]


def code(result):
    return ErrorCode.of(result.error.code)


def values_of(result):
    return [bytes(r.value) for r in read_records(result.records)] if result.records else []


def test_duplicate_is_not_answered_before_the_original_is_committed(cluster_of, make_produce_request):
    async def run():
        async with cluster_of(1, 2, 3, min_isr=2) as cluster:
            await cluster.create_topic()
            cluster.transport.cut_off.add(3)
            original = await produce(cluster, make_produce_request, 1, numbered(0), timeout_ms=50)
            assert code(original) is ErrorCode.REQUEST_TIMED_OUT

            again = asyncio.create_task(produce(cluster, make_produce_request, 1, numbered(0)))
            await asyncio.sleep(0.1)
            assert not again.done()
            only_the_leader = await produce(cluster, make_produce_request, 1, numbered(0), acks=pb.ACKS_LEADER)
            assert (code(only_the_leader), only_the_leader.base_offset) == (ErrorCode.NONE, 0)

            cluster.transport.cut_off.clear()
            result = await again
            assert (code(result), result.base_offset) == (ErrorCode.NONE, 0)
            assert cluster.partition(1).high_watermark == cluster.partition(1).log.log_end_offset == 2

    asyncio.run(run())


def test_duplicate_times_out_as_the_original_does(cluster_of, make_produce_request):
    async def run():
        async with cluster_of(1, 2, 3, min_isr=2) as cluster:
            await cluster.create_topic()
            cluster.transport.cut_off.add(3)
            for _ in range(2):
                result = await produce(cluster, make_produce_request, 1, numbered(0), timeout_ms=50)
                assert (code(result), result.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0)
            assert cluster.partition(1).log.log_end_offset == 2

    asyncio.run(run())


def test_next_leader_knows_the_batches_that_it_has_copied(cluster_of, make_produce_request):
    async def run():
        async with cluster_of(1, 2, 3, min_isr=2) as cluster:
            await cluster.create_topic()
            for sequence in range(0, 14, 2):
                assert code(await produce(cluster, make_produce_request, 1, numbered(sequence))) is ErrorCode.NONE
            await cluster.elect(2)

            assert (await produce(cluster, make_produce_request, 2, numbered(4))).base_offset == 4
            refused = await produce(cluster, make_produce_request, 2, numbered(2))
            assert code(refused) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            gap = await produce(cluster, make_produce_request, 2, numbered(16))
            assert code(gap) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert (await produce(cluster, make_produce_request, 2, numbered(14))).base_offset == 14

    asyncio.run(run())


def test_batch_that_only_the_old_leader_had_is_appended_by_the_next_one_and_cut_off_by_the_old(
    cluster_of, make_produce_request, wait_for
):
    async def run():
        async with cluster_of(1, 2, 3, min_isr=2) as cluster:
            await cluster.create_topic()
            await produce(cluster, make_produce_request, 1, numbered(0))
            cluster.transport.cut_off.add(1)
            waiting = asyncio.create_task(produce(cluster, make_produce_request, 1, numbered(2)))
            await wait_for(lambda: cluster.partition(1).log.log_end_offset == 4)
            await cluster.elect(2, isr=(2, 3))
            assert code(await waiting) is ErrorCode.NOT_LEADER_OR_FOLLOWER

            assert (await produce(cluster, make_produce_request, 2, numbered(0))).base_offset == 0
            assert (await produce(cluster, make_produce_request, 2, numbered(2))).base_offset == 2
            cluster.transport.cut_off.clear()
            await wait_for(lambda: set(cluster.controller.image.partition("t", 0).isr) == {1, 2, 3})

            await cluster.elect(1)
            assert (await produce(cluster, make_produce_request, 1, numbered(2))).base_offset == 2
            assert (await produce(cluster, make_produce_request, 1, numbered(4))).base_offset == 4
            assert values_of(await cluster.fetch(1)) == [b"0", b"1"]
            assert cluster.partition(1).log.log_end_offset == 6

    asyncio.run(run())


def test_epoch_that_the_next_leader_has_seen_keeps_the_old_one_out(cluster_of, make_produce_request):
    async def run():
        async with cluster_of(1, 2, 3, min_isr=2) as cluster:
            await cluster.create_topic()
            await produce(cluster, make_produce_request, 1, numbered(0))
            await produce(cluster, make_produce_request, 1, numbered(0, epoch=1))
            await cluster.elect(3)
            for sequence in (0, 2):
                late = await produce(cluster, make_produce_request, 3, numbered(sequence))
                assert code(late) is ErrorCode.INVALID_PRODUCER_EPOCH
            assert (await produce(cluster, make_produce_request, 3, numbered(2, epoch=1))).base_offset == 4

    asyncio.run(run())

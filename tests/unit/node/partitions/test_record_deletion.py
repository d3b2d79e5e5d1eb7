"""DeleteRecords among replicas, retention, and what followers make of a leader's log that begins later or has gaps."""

import asyncio
import dataclasses
import logging

import pytest

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.records import RecordBatchBuilder, iter_headers, read_records
from tidelog_node import handlers
from tidelog_node.handlers.requests import offsets as values
from tidelog_node.partitions.housekeeping import (
    delete_expired_segments,
    expire_producers,
    flush_logs,
    remove_deleted_files,
)
from tidelog_node.server import log_service
from tidelog_quorum.metadata.records import BrokerRegistrationChangeRecord

DAY_MS = 86_400_000


async def delete_records(cluster, node_id, offset, timeout_ms=5_000):
    topic = values.DeleteRecordsTopic("t", (values.DeleteRecordsPartition(0, offset),))
    request = values.DeleteRecordsRequest((topic,), timeout_ms)
    response = await handlers.delete_records(cluster.nodes[node_id].context, request)
    return response.topics[0].partitions[0]


async def produce_many(cluster, count, node_id=1):
    for number in range(count):
        assert not (await cluster.produce(node_id, b"%d" % number)).HasField("error")


def log_starts(cluster):
    return [cluster.partition(node_id).log.log_start_offset for node_id in sorted(cluster.nodes)]


def stored(partition):
    """Return the base and last offset of each batch and its bytes, from the log's start to its end."""
    log, batches = partition.log, []
    offset = log.log_start_offset
    while data := log.read(offset, 1 << 30, log.log_end_offset):
        for position, header in iter_headers(data):
            batches.append((header.base_offset, header.last_offset, data[position : position + header.size_in_bytes]))
        offset = batches[-1][1] + 1
    return batches


def test_deletion_is_answered_when_every_replica_has_deleted(cluster_of):
    async def run():
        async with cluster_of(1, 2, 3, min_isr=2) as cluster:
            await cluster.create_topic()
            await produce_many(cluster, 5)

            started = asyncio.get_running_loop().time()
            result = await delete_records(cluster, 1, 3)

            assert (result.error, result.low_watermark) == (None, 3)
            assert log_starts(cluster) == [3, 3, 3]
            assert asyncio.get_running_loop().time() - started < 0.15, "long polls do not hold it up"
            refused = await cluster.fetch(1, offset=2)
            assert (refused.error.code, refused.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE.code, 3)

    asyncio.run(run())


def test_deletion_waits_for_a_replica_that_is_cut_off_and_stays_done_when_it_times_out(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2, 3, min_isr=2) as cluster:
            await cluster.create_topic()
            await produce_many(cluster, 5)
            cluster.transport.cut_off.add(3)

            late = await delete_records(cluster, 1, 4, timeout_ms=150)
            assert (late.error.code, late.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, -1)
            assert log_starts(cluster) == [4, 4, 0]
            assert len(cluster.partition(1).waiters.deletions) <= 1

            waiting = asyncio.create_task(delete_records(cluster, 1, 4))
            await asyncio.sleep(0.02)
            assert not waiting.done()
            cluster.transport.cut_off.clear()
            assert (await waiting).low_watermark == 4
            assert log_starts(cluster) == [4, 4, 4]

    asyncio.run(run())


def test_deletion_does_not_wait_for_a_replica_whose_node_is_fenced(cluster_of):
    async def run():
        async with cluster_of(1, 2, 3, min_isr=2) as cluster:
            await cluster.create_topic()
            await produce_many(cluster, 5)
            cluster.transport.cut_off.add(3)
            waiting = asyncio.create_task(delete_records(cluster, 1, -1))
            await asyncio.sleep(0.05)
            assert not waiting.done()

            await cluster.controller.change(BrokerRegistrationChangeRecord(3, 0, fenced=True))
            assert (await asyncio.wait_for(waiting, 2)).low_watermark == 5

    asyncio.run(run())


def test_deletion_fails_when_leadership_moves_and_others_do_not_take_it(cluster_of):
    async def run():
        async with cluster_of(1, 2, 3, min_isr=2) as cluster:
            await cluster.create_topic()
            await produce_many(cluster, 5)
            cluster.transport.cut_off.add(3)
            waiting = asyncio.create_task(delete_records(cluster, 1, 2))
            await asyncio.sleep(0.05)
            await cluster.elect(2)

            moved = await asyncio.wait_for(waiting, 2)
            assert (moved.error.code, moved.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)
            refused = await delete_records(cluster, 3, 2)
            assert refused.error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    asyncio.run(run())


@pytest.mark.parametrize("offset", [-2, 6, 1 << 40])
def test_deletion_out_of_range_deletes_nothing(cluster_of, offset):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            await produce_many(cluster, 5)

            assert (await delete_records(cluster, 1, offset)).error.code is ErrorCode.OFFSET_OUT_OF_RANGE
            assert log_starts(cluster) == [0]

    asyncio.run(run())


def test_follower_that_is_behind_the_leaders_log_start_begins_again_there(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2, 3, min_isr=1, lag_ms=100) as cluster:
            await cluster.create_topic()
            await produce_many(cluster, 3)
            cluster.transport.cut_off.add(3)
            await cluster.elect(1, isr=(1, 2))
            await produce_many(cluster, 5)
            await cluster.controller.change(BrokerRegistrationChangeRecord(3, 0, fenced=True))
            assert (await delete_records(cluster, 1, 7)).low_watermark == 7

            cluster.transport.cut_off.clear()
            await cluster.controller.change(BrokerRegistrationChangeRecord(3, 0, fenced=False))
            await wait_for(lambda: cluster.partition(3).log.log_end_offset == 8)
            await wait_for(lambda: cluster.partition(3).high_watermark == 8)
            assert log_starts(cluster) == [7, 7, 7]
            assert stored(cluster.partition(3)) == stored(cluster.partition(1))
            cluster.partition(3).log.check_invariants()

    asyncio.run(run())


def test_log_start_survives_a_restart_and_is_the_followers_too(cluster_of):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            await produce_many(cluster, 5)
            assert (await delete_records(cluster, 1, 3)).low_watermark == 3
            for node in list(cluster.nodes.values()):
                await node.close()

            await cluster.start(1, 2)
            for node in cluster.nodes.values():
                await node.apply(cluster.controller.image)
            assert log_starts(cluster) == [3, 3]
            assert [r.offset for r in read_records((await cluster.fetch(1, offset=3)).records)] == [3]

    asyncio.run(run())


def keyed_batch(*pairs, timestamp_ms=1_000):
    builder = RecordBatchBuilder()
    for key, value in pairs:
        builder.append(key, value, (), timestamp_ms)
    return builder.build()


def with_gaps(cluster, node_id, kept):
    """Make a partition's log what compaction may leave of it: only the batches that ``kept`` names, gaps between."""
    log = cluster.partition(node_id).log
    batches = [data for base, _, data in stored(cluster.partition(node_id)) if base in kept]
    log.truncate_fully_and_start_at(0)
    log.append_as_follower(b"".join(batches))


def test_new_and_rejoining_followers_reach_the_records_of_a_leader_with_gaps(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2, 3, lag_ms=100) as cluster:
            await cluster.create_topic()
            cluster.transport.cut_off.update((2, 3))
            await cluster.elect(1, isr=(1,))
            await produce_many(cluster, 12)
            with_gaps(cluster, 1, kept={0, 1, 5, 6, 9, 11})
            leader = cluster.partition(1)
            assert leader.log.log_end_offset == 12
            cluster.partition(2).log.append_as_follower(stored(leader)[0][2])

            cluster.transport.cut_off.clear()
            await wait_for(lambda: set(cluster.controller.image.partition("t", 0).isr) == {1, 2, 3})
            for node_id in (2, 3):
                follower = cluster.partition(node_id)
                assert [base for base, _, _ in stored(follower)] == [0, 1, 5, 6, 9, 11]
                assert stored(follower) == stored(leader)
                assert follower.high_watermark == 12
                follower.log.check_invariants()
            assert not (await cluster.produce(1, b"next")).HasField("error")
            await cluster.elect(2)
            assert not (await cluster.produce(2, b"after")).HasField("error")
            assert stored(cluster.partition(2)) == stored(cluster.partition(3))
            in_gap = await cluster.fetch(2, offset=7)
            assert [r.offset for r in read_records(in_gap.records)] == [9]

    asyncio.run(run())


def test_retention_deletes_old_segments_on_every_replica_and_keeps_going_after_an_error(
    cluster_of, wait_for, caplog, replace_method
):
    async def run():
        async with cluster_of(1, 2, min_isr=2) as cluster:
            await cluster.create_topic(replicas=(1, 2), partitions=2)
            for index in (0, 1):
                for _ in range(3):
                    await cluster.produce(1, b"x" * 100, index=index)
            bad, good = cluster.partition(1, 0), cluster.partition(1, 1)
            for partition in (bad, good):
                partition.change_config(
                    dataclasses.replace(partition.log.config, segment_bytes=200, retention_ms=DAY_MS)
                )
            for index in (0, 1):
                await cluster.produce(1, b"y" * 100, index=index)

            def fail(now_ms, high_watermark):
                raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is told to refuse")

            replace_method(bad.log, "delete_expired", fail)
            task = asyncio.create_task(delete_expired_segments(cluster.nodes[1].registry, 5))
            await wait_for(lambda: good.log.log_start_offset > 0)
            await asyncio.sleep(0.05)
            assert not task.done()
            task.cancel()
            assert (bad.log.log_start_offset, good.log.log_start_offset) == (0, 4)

    with caplog.at_level(logging.INFO, "tidelog_node.partitions.housekeeping"):
        asyncio.run(run())
    refused = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert [r.getMessage() for r in refused] == [
        "Deleting the expired segments of t-0 failed: KAFKA_STORAGE_ERROR: the disk is told to refuse"
    ]


def test_deleted_files_are_removed_after_their_delay(cluster_of, wait_for, tmp_path):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            partition = cluster.partition(1)
            settings = {"segment_bytes": 200, "retention_ms": DAY_MS}
            partition.change_config(dataclasses.replace(partition.log.config, file_delete_delay_ms=DAY_MS, **settings))
            for _ in range(3):
                await cluster.produce(1, b"x" * 100)
            deleted = await partition.delete_expired()
            assert len(deleted) == 3
            task = asyncio.create_task(remove_deleted_files(cluster.nodes[1].registry, lambda: 5))
            await asyncio.sleep(0.03)
            kept = sorted(tmp_path.glob("node-1/t-0/*.log.deleted"))
            assert len(kept) == 3

            partition.change_config(dataclasses.replace(partition.log.config, file_delete_delay_ms=0, **settings))
            await cluster.produce(1, b"x" * 100)
            await partition.delete_expired()
            await wait_for(lambda: partition.log.deleted_file_count == len(list(tmp_path.glob("node-1/t-0/*.deleted"))))
            await wait_for(lambda: sorted(tmp_path.glob("node-1/t-0/*.log.deleted")) == kept)
            task.cancel()

    asyncio.run(run())


def test_flush_follows_flush_ms_of_each_topic(cluster_of, wait_for):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=2)
            partition, other = cluster.partition(1, 0), cluster.partition(1, 1)
            partition.change_config(dataclasses.replace(partition.log.config, flush_ms=1))
            for index in (0, 1):
                await cluster.produce(1, b"x", index=index)
            task = asyncio.create_task(flush_logs(cluster.nodes[1].registry, lambda: 5))
            await wait_for(lambda: partition.log.recovery_point == 1)
            task.cancel()
            assert other.log.recovery_point == 0

    asyncio.run(run())


def idempotent_request(make_request, sequence):
    builder = RecordBatchBuilder()
    builder.append(None, b"v", (), 1_000)
    return make_request(builder.build(producer_id=5, producer_epoch=0, base_sequence=sequence))


def test_idle_producers_are_forgotten(cluster_of, wait_for, make_produce_request, replace_method):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            await log_service.produce(cluster.nodes[1].context, idempotent_request(make_produce_request, 0))
            partition = cluster.partition(1)
            assert [p.producer_id for p in partition.log.active_producers()] == [5]
            calls = []
            expire = partition.log.expire_producers

            def expire_later(now_ms):
                calls.append(expire(now_ms + 2 * DAY_MS))

            replace_method(partition.log, "expire_producers", expire_later)
            task = asyncio.create_task(expire_producers(cluster.nodes[1].registry, 5))
            await wait_for(lambda: calls)
            task.cancel()
            assert partition.log.active_producers() == []

    asyncio.run(run())


def test_duplicate_of_an_earlier_batch_is_answered_though_later_ones_wait(cluster_of, make_produce_request):
    async def run():
        async with cluster_of(1, 2, min_isr=1) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            context = cluster.nodes[1].context
            first = await log_service.produce(context, idempotent_request(make_produce_request, 0))
            assert first.topics[0].partitions[0].base_offset == 0
            cluster.transport.cut_off.add(2)
            waiting = asyncio.create_task(cluster.produce(1, b"waits", timeout_ms=400))
            await asyncio.sleep(0.02)

            again = await asyncio.wait_for(
                log_service.produce(context, idempotent_request(make_produce_request, 0)), 0.3
            )
            assert (again.topics[0].partitions[0].error.code, again.topics[0].partitions[0].base_offset) == (0, 0)
            assert (await waiting).error.code == ErrorCode.REQUEST_TIMED_OUT.code
            assert cluster.partition(1).log.log_end_offset == 2

    asyncio.run(run())

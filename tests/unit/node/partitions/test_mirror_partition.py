"""A mirror partition on its leader and its follower: the source's batches, truncation, restart, and its end."""

import asyncio

import pytest
from log_batches import replicated_batch

from tidelog_foundation.errors import CorruptRecordError, ErrorCode, TidelogError
from tidelog_foundation.ids import LeaderEpoch
from tidelog_foundation.records import RecordBatchBuilder, assign_offsets, iter_headers, read_control
from tidelog_node.partitions.mirror_writes import append_from_source, restart_at_source, truncate_to_source
from tidelog_node.replication import EpochEnd
from tidelog_quorum.metadata.records import PartitionChangeRecord


async def mirror(cluster, epoch=5):
    """Make the topic's partition a mirror, led by node 1 in this leader epoch."""
    await cluster.create_topic(replicas=(1, 2))
    topic_id = cluster.partition(1).topic_id
    change = PartitionChangeRecord(topic_id, 0, leader=1, is_mirror=True, leader_epoch=LeaderEpoch(epoch))
    await cluster.controller.change(change)
    return cluster.partition(1)


async def end_mirror(cluster):
    change = PartitionChangeRecord(cluster.partition(1).topic_id, 0, leader=1, is_mirror=False)
    await cluster.controller.change(change)


def append(partition, *batches, start=0):
    offset = partition.log.log_end_offset
    append_from_source(partition, partition.state.leader_epoch, offset, b"".join(batches), start)


def stored(partition):
    """Return all batches, over all segments."""
    log, data = partition.log, b""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, 1 << 30, log.log_end_offset)
        data += part
        offset = max(header.next_offset for _, header in iter_headers(part))
    return data


def transaction(base_offset, epoch, producer_id):
    builder = RecordBatchBuilder()
    builder.append(None, b"open", (), 1_000)
    batch = bytearray(builder.build(producer_id, 0, 0, is_transactional=True))
    assign_offsets(batch, base_offset, epoch)
    return bytes(batch)


def test_mirror_stores_the_bytes_of_its_source_and_replicates_them(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2) as cluster:
            leader = await mirror(cluster)
            batches = replicated_batch(0, 1, b"a", b"b"), replicated_batch(7, 3, b"c")
            append(leader, *batches)
            await wait_for(lambda: leader.high_watermark == 8)
            assert stored(leader) == stored(cluster.partition(2)) == b"".join(batches)
            assert [(e.epoch, e.start_offset) for e in leader.log.epoch_entries] == [(1, 0), (3, 7)]
            with pytest.raises(CorruptRecordError, match="leader epoch 6, the mirror leads in 5"):
                append(leader, replicated_batch(8, 6, b"later"))
            append_from_source(leader, LeaderEpoch(4), 8, replicated_batch(8, 3, b"stale"), 0)
            assert leader.log.log_end_offset == 8

    asyncio.run(run())


def test_mirror_refuses_writes_until_its_end(cluster_of):
    async def run():
        async with cluster_of(1, 2) as cluster:
            leader = await mirror(cluster)
            refused = await cluster.produce(1, b"no")
            assert refused.error.code == ErrorCode.INVALID_REQUEST.code
            assert "read-only" in refused.error.message
            with pytest.raises(TidelogError, match="read-only"):
                leader.delete_records(0)
            append(leader, replicated_batch(0, 5, b"a"))
            await end_mirror(cluster)
            assert not (await cluster.produce(1, b"yes")).HasField("error")
            assert [(e.epoch, e.start_offset) for e in leader.log.epoch_entries] == [(5, 0), (6, 1)]

    asyncio.run(run())


def test_mirror_follows_a_truncation_of_its_source_below_its_high_watermark(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2) as cluster:
            leader = await mirror(cluster)
            first, lost = replicated_batch(0, 1, b"a", b"b"), replicated_batch(2, 2, b"lost", b"lost")
            append(leader, first, lost)
            await wait_for(lambda: leader.high_watermark == 4)
            assert not await truncate_to_source(leader, LeaderEpoch(5), 3, EpochEnd(LeaderEpoch(1), 2))
            assert await truncate_to_source(leader, LeaderEpoch(5), 4, EpochEnd(LeaderEpoch(1), 2))
            assert (leader.high_watermark, leader.log.log_end_offset) == (2, 2)
            other = replicated_batch(2, 3, b"other", b"other", b"other")
            append(leader, other)
            await wait_for(lambda: leader.high_watermark == 5)
            assert stored(leader) == stored(cluster.partition(2)) == first + other

    asyncio.run(run())


def test_mirror_restarts_where_its_source_begins_and_deletes_what_it_deletes(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2) as cluster:
            leader = await mirror(cluster)
            assert await restart_at_source(leader, LeaderEpoch(5), 0, 100)
            assert not await restart_at_source(leader, LeaderEpoch(5), 100, 100)
            append(leader, replicated_batch(100, 1, b"a"), replicated_batch(101, 1, b"b"))
            await wait_for(lambda: leader.high_watermark == 102)
            append(leader, start=101)
            await wait_for(lambda: cluster.partition(2).log.log_start_offset == 101)
            assert leader.log.log_start_offset == 101
            assert await restart_at_source(leader, LeaderEpoch(5), 102, 500)
            await wait_for(lambda: cluster.partition(2).log.log_start_offset == 500)

    asyncio.run(run())


def test_end_of_a_mirror_aborts_the_transactions_of_its_source_once(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2) as cluster:
            leader = await mirror(cluster)
            append(leader, transaction(0, 4, 77))
            await wait_for(lambda: leader.high_watermark == 1)
            assert leader.log.last_stable_offset(1) == 0
            await end_mirror(cluster)
            await wait_for(lambda: leader.high_watermark == 2)
            assert leader.log.last_stable_offset(2) == 2
            [_, marker] = [position for position, _ in iter_headers(stored(leader))]
            control = read_control(stored(leader), marker)
            assert (control.producer_id, control.kind.name) == (77, "ABORT")
            await cluster.elect(2)
            await cluster.elect(1)
            assert leader.log.log_end_offset == 2

    asyncio.run(run())

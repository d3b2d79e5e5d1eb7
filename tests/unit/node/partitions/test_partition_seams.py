"""The interplay of the pure state machine, the log's threads and waiting requests."""

import asyncio
import threading

from tidelog_foundation import time_slices
from tidelog_foundation.errors import ErrorCode
from tidelog_node.partitions import PartitionRegistry
from tidelog_node.replication import EpochEnd
from tidelog_quorum.metadata.records import PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord

TOPIC_ID = b"0123456789abcdef"


def log_bytes(partition):
    return partition.log.read(0, 1 << 30, partition.log.log_end_offset)


class HeldFlush:
    """Holds a log's flush up in its thread until it is let go."""

    def __init__(self, replace_method, log):
        self.began, self.may_end = threading.Event(), threading.Event()
        flush = log.flush

        def held():
            self.began.set()
            assert self.may_end.wait(5)
            return flush()

        replace_method(log, "flush", held)


async def become_follower_with_a_tail(cluster):
    """Node 1 led and appended what nobody else has; now node 2 leads, cut off from it."""
    await cluster.create_topic(replicas=(1, 2))
    await cluster.produce(1, b"a")
    cluster.transport.cut_off.add(2)
    tail = asyncio.create_task(cluster.produce(1, b"tail", timeout_ms=20))
    await tail
    await cluster.elect(2)
    return cluster.partition(1)


def test_truncation_waits_for_a_flush_and_then_happens(cluster_of, replace_method, wait_for):
    async def run():
        async with cluster_of(1, 2, min_isr=2) as cluster:
            partition = await become_follower_with_a_tail(cluster)
            held = HeldFlush(replace_method, partition.log)
            flush = asyncio.create_task(partition.flush())
            await wait_for(held.began.is_set)
            cut = asyncio.create_task(partition.truncate_diverging(1, 2, EpochEnd(0, 1)))
            await asyncio.sleep(0.05)
            assert partition.log.log_end_offset == 2, "not beside the flush"

            held.may_end.set()
            await asyncio.gather(flush, cut)
            assert partition.log.log_end_offset == partition.log.recovery_point == 1
            partition.log.check_invariants()

    asyncio.run(run())


def test_truncation_that_waited_is_dropped_when_the_replica_leads_by_then(cluster_of, replace_method, wait_for):
    async def run():
        async with cluster_of(1, 2, min_isr=2) as cluster:
            partition = await become_follower_with_a_tail(cluster)
            held = HeldFlush(replace_method, partition.log)
            flush = asyncio.create_task(partition.flush())
            await wait_for(held.began.is_set)
            cut = asyncio.create_task(partition.truncate_diverging(1, 2, EpochEnd(0, 1)))
            await cluster.elect(1)
            held.may_end.set()
            await asyncio.gather(flush, cut)

            assert partition.log.log_end_offset == 2
            cluster.transport.cut_off.clear()
            assert (await cluster.produce(1, b"b")).base_offset == 2
            assert log_bytes(cluster.partition(2)) == log_bytes(partition)

    asyncio.run(run())


def test_divergence_of_another_log_end_than_the_present_one_cuts_nothing(cluster_of):
    async def run():
        async with cluster_of(1, 2, min_isr=2) as cluster:
            partition = await become_follower_with_a_tail(cluster)

            await partition.truncate_diverging(1, 7, EpochEnd(0, 1))
            assert partition.log.log_end_offset == 2

    asyncio.run(run())


def test_answer_of_the_old_leader_is_not_appended_after_the_replica_became_leader(cluster_of, make_batch):
    async def run():
        async with cluster_of(1, 2, min_isr=2) as cluster:
            partition = await become_follower_with_a_tail(cluster)
            await cluster.elect(1)

            partition.replicate(1, 2, make_batch(b"late"), 3, 0)
            assert partition.log.log_end_offset == 2

    asyncio.run(run())


def test_deletion_waits_for_a_flush_and_answers_who_waits(cluster_of, replace_method, wait_for):
    async def run():
        async with cluster_of(1, 2, min_isr=2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            cluster.transport.cut_off.add(2)
            held = HeldFlush(replace_method, cluster.partition(1).log)
            producing = asyncio.create_task(cluster.produce(1, b"a", timeout_ms=10_000))
            reading = asyncio.create_task(cluster.fetch(1, max_wait_ms=10_000))
            await wait_for(lambda: cluster.partition(1).log.log_end_offset == 1)
            flush = asyncio.create_task(cluster.partition(1).flush())
            await wait_for(held.began.is_set)
            deletion = asyncio.create_task(cluster.controller.change(RemoveTopicRecord(TOPIC_ID)))

            produced = await asyncio.wait_for(producing, 1)
            assert produced.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
            assert not deletion.done()
            held.may_end.set()
            await asyncio.gather(flush, deletion)
            assert (await asyncio.wait_for(reading, 1)).HasField("error")
            assert cluster.nodes[1].failures == []

    asyncio.run(run())


def test_long_polls_are_answered_when_leadership_moves(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            reading = asyncio.create_task(cluster.fetch(1, max_wait_ms=10_000, current_leader_epoch=0))
            await wait_for(lambda: len(cluster.partition(1).waiters.high_watermark))
            await cluster.elect(2)

            answer = await asyncio.wait_for(reading, 1)
            assert answer.error.code == ErrorCode.FENCED_LEADER_EPOCH.code

    asyncio.run(run())


def test_producer_is_answered_when_its_leader_is_elected_again_before_it_heard_of_another(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2, min_isr=2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            await cluster.produce(1, b"a")
            cluster.transport.cut_off.add(2)
            producing = asyncio.create_task(cluster.produce(1, b"b", timeout_ms=10_000))
            await wait_for(lambda: cluster.partition(1).log.log_end_offset == 2)
            deaf = cluster.nodes.pop(1)
            await cluster.elect(2)
            cluster.nodes[1] = deaf
            await cluster.elect(1)
            cluster.transport.cut_off.clear()

            result = await asyncio.wait_for(producing, 5)
            assert (result.base_offset, result.HasField("error")) == (1, False)
            assert log_bytes(cluster.partition(2)) == log_bytes(cluster.partition(1))

    asyncio.run(run())


def test_follower_that_is_ahead_of_a_leader_which_lost_its_tail_cuts_its_own(cluster_of, tmp_path, wait_for):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            for value in (b"a", b"b", b"c"):
                await cluster.produce(1, value)
            await cluster.nodes.pop(1).close()
            (tmp_path / "node-1" / ".kafka_cleanshutdown").unlink()
            segment = tmp_path / "node-1" / "t-0" / f"{0:020d}.log"
            segment.write_bytes(segment.read_bytes()[:-10])
            await cluster.elect(2, isr=(2,))

            # Node 1 follows node 2 as soon as it runs: a fetch would give it the record back that it has lost.
            cluster.transport.cut_off.add(1)
            await cluster.start(1)
            assert cluster.partition(1).log.recovery.truncated_bytes > 0
            await cluster.elect(1, isr=(1,))
            cluster.transport.cut_off.clear()
            assert (await cluster.produce(1, b"new")).base_offset == 2
            await wait_for(lambda: log_bytes(cluster.partition(2)) == log_bytes(cluster.partition(1)))
            cluster.partition(2).log.check_invariants()

    asyncio.run(run())


def test_no_checkpoint_is_taken_without_a_log_that_was_found(cluster_of, monkeypatch):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=3)
            await cluster.nodes.pop(1).close()
            seen = []
            work = PartitionRegistry._work

            async def watched(registry, *arguments):
                step = asyncio.ensure_future(work(registry, *arguments))
                while not step.done():
                    [marks] = registry.checkpoints.current()[0].values()
                    seen.append(set(marks))
                    await asyncio.sleep(0)
                await step

            monkeypatch.setattr(PartitionRegistry, "_work", watched)
            await cluster.start(1)
            await cluster.nodes[1].apply(cluster.controller.image)
            assert seen
            assert all(marks == {("t", 0), ("t", 1), ("t", 2)} for marks in seen)

    asyncio.run(run())


def test_topic_that_is_deleted_and_created_again_between_two_images_starts_empty(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            await cluster.produce(1, b"a")
            old = cluster.partition(1)
            again = b"f" * 16
            await cluster.controller.change(
                RemoveTopicRecord(TOPIC_ID),
                TopicRecord("t", again),
                PartitionRecord(again, 0, (1,), (1,), 1),
                PartitionChangeRecord(again, 0, leader=1),
            )

            assert cluster.partition(1) is not old
            assert cluster.partition(1).topic_id == again
            assert (await cluster.produce(1, b"b")).base_offset == 0

    asyncio.run(run())


def test_other_tasks_go_on_while_an_image_changes_many_partitions(cluster_of, monkeypatch):
    monkeypatch.setattr(time_slices, "SLICE_S", 0.0)

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=50)
            turns = 0

            async def heart():
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            beating = asyncio.create_task(heart())
            await asyncio.sleep(0)
            turns = 0
            await cluster.controller.change(*(PartitionChangeRecord(TOPIC_ID, i, leader=1) for i in range(50)))
            beating.cancel()
            assert turns >= 50, "a slice that is over is looked for after each partition"

    asyncio.run(run())

"""Replicas that come and go while others lead, follow and are written to (KIP-455), and their limits (KIP-73)."""

import asyncio
import contextlib
import time

import pytest

from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.records import read_records
from tidelog_foundation.requests.configs import ConfigResourceType
from tidelog_node.server import log_service
from tidelog_quorum.metadata.records import ConfigRecord, PartitionChangeRecord

TOPIC_ID = b"0123456789abcdef"
LEADER_LIST = "leader.replication.throttled.replicas"
FOLLOWER_LIST = "follower.replication.throttled.replicas"


def values_of(partition):
    log = partition.log
    records = log.read(0, 1 << 30, log.log_end_offset) if log.log_end_offset else b""
    position, values = 0, []
    while position < len(records):
        values += [bytes(r.value) for r in read_records(records, position)]
        position += 12 + int.from_bytes(records[position + 8 : position + 12], "big")
    return values


def change(**fields):
    return PartitionChangeRecord(TOPIC_ID, 0, **fields)


async def begin_move(cluster, replicas, adding, removing):
    await cluster.controller.change(change(replicas=replicas, adding_replicas=adding, removing_replicas=removing))


async def end_move(cluster, replicas, isr, leader):
    record = change(replicas=replicas, isr=isr, leader=leader, adding_replicas=(), removing_replicas=())
    await cluster.controller.change(record)


def isr_of(cluster):
    return set(cluster.controller.image.partition("t", 0).isr)


async def throttle(cluster, rate, leaders, followers):
    for node in cluster.nodes.values():
        node.throttles.change_rates(rate, rate)
    await cluster.controller.change(
        ConfigRecord(ConfigResourceType.TOPIC, "t", LEADER_LIST, leaders),
        ConfigRecord(ConfigResourceType.TOPIC, "t", FOLLOWER_LIST, followers),
    )


def test_added_replica_copies_the_log_and_joins_the_isr(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1,))
            await cluster.produce(1, b"a", b"b")

            await begin_move(cluster, (1, 2), (2,), ())

            await wait_for(lambda: isr_of(cluster) == {1, 2})
            assert values_of(cluster.partition(2)) == [b"a", b"b"]
            await cluster.produce(1, b"c")
            assert values_of(cluster.partition(2)) == [b"a", b"b", b"c"]

    asyncio.run(run())


def test_leadership_and_writes_move_to_the_new_replicas(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2, 3) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            await cluster.produce(1, b"a")
            await begin_move(cluster, (3, 2, 1), (3,), (1,))
            await wait_for(lambda: isr_of(cluster) == {1, 2, 3})
            await cluster.produce(1, b"b")

            await end_move(cluster, (3, 2), (3, 2), leader=3)

            assert cluster.partition(1) is None
            assert cluster.partition(3).state.leader is not None
            assert not (await cluster.produce(3, b"c")).HasField("error")
            assert values_of(cluster.partition(2)) == [b"a", b"b", b"c"]
            refused = await cluster.produce(1, b"d")
            assert refused.error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER.code
            assert refused.current_leader.leader_id == 3

    asyncio.run(run())


def test_removed_replica_s_folder_is_renamed_and_it_may_come_back(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            await cluster.produce(1, b"a")

            await end_move(cluster, (1,), (1,), leader=1)
            assert cluster.partition(2) is None
            endings = [p.name.rpartition("-")[2] for p in (cluster.path / "node-2").glob("t-0*")]
            assert endings == ["delete"]
            assert not (await cluster.produce(1, b"b")).HasField("error")

            await begin_move(cluster, (1, 2), (2,), ())
            await wait_for(lambda: isr_of(cluster) == {1, 2})
            assert values_of(cluster.partition(2)) == [b"a", b"b"]

    asyncio.run(run())


def test_producer_that_waits_when_its_leader_is_taken_away_is_told_to_ask_another(cluster_of):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            cluster.transport.cut_off.add(2)
            waiting = asyncio.create_task(cluster.produce(1, b"a"))
            await asyncio.sleep(0.05)
            assert not waiting.done()

            await end_move(cluster, (2,), (2,), leader=2)

            assert (await waiting).error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER.code

    asyncio.run(run())


def test_producer_goes_on_waiting_when_only_a_follower_is_taken_away(cluster_of):
    async def run():
        async with cluster_of(1, 2, 3) as cluster:
            await cluster.create_topic()
            cluster.transport.cut_off.add(3)
            waiting = asyncio.create_task(cluster.produce(1, b"a"))
            await asyncio.sleep(0.05)
            assert not waiting.done()

            await end_move(cluster, (1, 2), (1, 2), leader=1)

            result = await waiting
            assert not result.HasField("error"), result.error.message
            assert cluster.partition(1).high_watermark == 1

    asyncio.run(run())


def test_fetch_of_a_replica_that_was_taken_away_is_refused(cluster_of):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            await end_move(cluster, (1,), (1,), leader=1)
            item = pb.FetchPartition(index=0, fetch_offset=0, partition_max_bytes=1000, current_leader_epoch=1)
            request = pb.FetchRequest(
                replica=pb.ReplicaState(replica_id=2, replica_epoch=0),
                max_bytes=1000,
                topics=[pb.FetchTopic(name="t", partitions=[item])],
            )

            response = await log_service.fetch(cluster.nodes[1].context, request)

            assert response.topics[0].partitions[0].error.code == ErrorCode.UNKNOWN_LEADER_EPOCH.code

    asyncio.run(run())


def test_throttled_replica_is_copied_at_the_limit_and_others_are_not_held_up(cluster_of, wait_for):
    size, rate = 20_000, 10_000

    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=2)
            for index in (0, 1):
                for _ in range(10):
                    await cluster.produce(1, b"x" * (size // 10), index=index)
            await throttle(cluster, rate, "0:1", "0:2")

            began = time.monotonic()
            await cluster.controller.change(
                change(replicas=(1, 2), adding_replicas=(2,)),
                PartitionChangeRecord(TOPIC_ID, 1, replicas=(1, 2), adding_replicas=(2,)),
            )

            await wait_for(lambda: cluster.controller.image.partition("t", 1).isr == (1, 2))
            assert time.monotonic() - began < 0.9, "the other partition is copied at once"
            assert isr_of(cluster) == {1}
            await wait_for(lambda: isr_of(cluster) == {1, 2})
            assert 0.9 < time.monotonic() - began < 4

    asyncio.run(run())


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_each_side_limits_by_itself(cluster_of, wait_for, side):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1,))
            for _ in range(6):
                await cluster.produce(1, b"x" * 2_000)
            await throttle(cluster, 4_000, "*" if side == "leader" else None, "*" if side == "follower" else None)

            await begin_move(cluster, (1, 2), (2,), ())

            with pytest.raises(AssertionError):
                await wait_for(lambda: isr_of(cluster) == {1, 2}, 0.5)
            for node in cluster.nodes.values():
                node.throttles.change_rates(10**9, 10**9)
            await wait_for(lambda: isr_of(cluster) == {1, 2})

    asyncio.run(run())


def test_limit_that_is_taken_away_ends_the_wait_for_it(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1,))
            for _ in range(3):
                await cluster.produce(1, b"x" * 2_000)
            await throttle(cluster, 10, None, "*")
            await begin_move(cluster, (1, 2), (2,), ())
            throttled = cluster.nodes[2].throttles.follower
            await wait_for(lambda: throttled.wait_ms() > 5_000)
            assert isr_of(cluster) == {1}

            throttled.change_rate(10**9)

            await wait_for(lambda: isr_of(cluster) == {1, 2}, 2.0)

    asyncio.run(run())


def test_throttled_replica_that_is_in_sync_is_never_held_up(cluster_of):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            await cluster.produce(1, b"a")
            await throttle(cluster, 1, "*", "*")

            began = time.monotonic()
            for _ in range(5):
                assert not (await cluster.produce(1, b"x" * 1_000)).HasField("error")

            assert time.monotonic() - began < 0.9
            assert cluster.nodes[1].throttles.leader.is_exceeded, "its bytes count"
            assert cluster.nodes[2].throttles.follower.is_exceeded

    asyncio.run(run())


def test_fetch_that_is_held_back_acknowledges_what_it_has(cluster_of):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1,))
            await cluster.produce(1, b"a")
            await cluster.produce(1, b"b")
            cluster.transport.cut_off.add(2)
            await throttle(cluster, 1, "0:1", None)
            await begin_move(cluster, (1, 2), (2,), ())
            cluster.nodes[1].throttles.leader.record(1_000)
            item = pb.FetchPartition(index=0, fetch_offset=1, partition_max_bytes=1000, current_leader_epoch=0)
            request = pb.FetchRequest(
                replica=pb.ReplicaState(replica_id=2, replica_epoch=0),
                max_bytes=1000,
                max_wait_ms=20,
                min_bytes=1,
                topics=[pb.FetchTopic(name="t", partitions=[item])],
            )

            response = await log_service.fetch(cluster.nodes[1].context, request)

            result = response.topics[0].partitions[0]
            assert (result.error.code, result.records) == (0, b"")
            assert cluster.partition(1).state.leader.followers[2].log_end_offset == 1

    asyncio.run(run())


def test_writes_go_on_while_a_partition_moves_there_and_back(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2, 3, min_isr=2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            written = []
            stop = asyncio.Event()

            async def write():
                number = 0
                while not stop.is_set():
                    leader = cluster.controller.image.partition("t", 0).leader
                    value = b"%d" % number
                    result = await cluster.produce(leader, value)
                    if not result.HasField("error"):
                        written.append(value)
                        number += 1
                    await asyncio.sleep(0)

            writer = asyncio.create_task(write())
            try:
                for moved, others, kept in (((3, 2), (1,), 3), ((1, 2), (3,), 1), ((1, 3), (2,), 1)):
                    before = set(cluster.controller.image.partition("t", 0).replicas)
                    adding = tuple(b for b in moved if b not in before)
                    await begin_move(cluster, (*moved, *others), adding, others)
                    await wait_for(lambda moved=moved: set(moved) <= isr_of(cluster))
                    isr = tuple(b for b in moved if b in isr_of(cluster))
                    await end_move(cluster, moved, isr, leader=kept)
                    mark = len(written)
                    await wait_for(lambda mark=mark: len(written) > mark + 20)
            finally:
                stop.set()
                with contextlib.suppress(asyncio.CancelledError):
                    await writer
            partition = cluster.controller.image.partition("t", 0)
            await wait_for(lambda: len({cluster.partition(b).log.log_end_offset for b in partition.replicas}) == 1)
            for replica in partition.replicas:
                found = values_of(cluster.partition(replica))
                assert set(written) <= set(found), "nothing acknowledged is lost"
                assert list(dict.fromkeys(found)) == sorted(set(found), key=int)

    asyncio.run(run())

"""Partitions that are far behind are read ahead of the appends; what is acknowledged is in the log all the same."""

import asyncio
import contextlib
import dataclasses

import pytest

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_node.event_loop import SystemClock
from tidelog_node.partitions.fetchers import catch_up

VALUE = b"x" * 400_000
COUNT = 20


def log_bytes(partition):
    return partition.log.read(0, 1 << 30, partition.log.log_end_offset)


class Spy:
    """Stands between the followers and node 1, which leads; notes what each fetch finds on node 3."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.transport = cluster.transport
        self.plain = cluster.transport.fetch
        self.ahead = []
        self.gaps = []
        self.fail_ahead = None
        self.others = 0
        cluster.transport.fetch = self.fetch

    async def fetch(self, address, request, timeout_s):
        end = self.cluster.partition(3).log.log_end_offset
        offsets = {spec.fetch_offset for spec in request.wanted.values()}
        if request.replica is None:
            self.ahead += offsets
            self.gaps += [offset - end for offset in offsets]
            if self.fail_ahead is not None:
                raise self.fail_ahead
        elif request.replica[0] == 3:
            assert all(offset <= end for offset in offsets), (offsets, end)
        response = await self.plain(address, request, timeout_s)
        progress = self.cluster.partition(1).state.leader.followers[3]
        assert progress.log_end_offset <= self.cluster.partition(3).log.log_end_offset
        return response


@contextlib.asynccontextmanager
async def behind(cluster_of, wait_for):
    """Yield a cluster whose node 3 can be reached again and lacks 20 batches, and the spy."""
    async with cluster_of(1, 2, 3, min_isr=2, lag_ms=100) as cluster:
        await cluster.create_topic()
        await cluster.produce(1, b"first")
        await wait_for(lambda: cluster.partition(3).high_watermark == 1)
        cluster.transport.cut_off.add(3)
        pending = asyncio.create_task(cluster.produce(1, VALUE))
        await wait_for(
            lambda: cluster.partition(1).pass_time() or cluster.controller.image.partition("t", 0).isr == (1, 2)
        )
        assert not (await pending).HasField("error")
        for _ in range(COUNT - 1):
            assert not (await cluster.produce(1, VALUE)).HasField("error")
        spy = Spy(cluster)
        yield cluster, spy


async def come_back(cluster, wait_for):
    cluster.transport.cut_off.clear()
    await wait_for(lambda: set(cluster.controller.image.partition("t", 0).isr) == {1, 2, 3})
    assert log_bytes(cluster.partition(3)) == log_bytes(cluster.partition(1))


def test_follower_that_is_far_behind_asks_for_more_before_it_has_appended(cluster_of, wait_for):
    async def run():
        async with behind(cluster_of, wait_for) as (cluster, spy):
            await come_back(cluster, wait_for)
            assert len(spy.ahead) > 3
            assert max(spy.gaps) > 0, "each read waited for the append before it"
            assert not (await cluster.produce(1, b"last")).HasField("error")

    asyncio.run(run())


def test_follower_that_is_in_sync_reads_nothing_ahead(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2, 3, min_isr=2) as cluster:
            await cluster.create_topic()
            spy = Spy(cluster)
            for _ in range(5):
                assert not (await cluster.produce(1, VALUE)).HasField("error")
            await wait_for(lambda: cluster.partition(3).high_watermark == 5)
            assert spy.ahead == []

    asyncio.run(run())


def test_follower_whose_reads_ahead_fail_catches_up_by_its_own_fetches(cluster_of, wait_for):
    async def run():
        async with behind(cluster_of, wait_for) as (cluster, spy):
            spy.fail_ahead = error_for(ErrorCode._TRANSPORT, "cut off")
            await come_back(cluster, wait_for)
            assert spy.ahead

    asyncio.run(run())


def test_follower_drops_what_was_read_ahead_when_the_append_before_it_fails(cluster_of, wait_for, replace_method):
    async def run():
        async with behind(cluster_of, wait_for) as (cluster, spy):
            log, failures = cluster.partition(3).log, []
            append = log.append_as_follower

            def fail_once(records, now_ms):
                if spy.ahead and not failures:
                    failures.append(log.log_end_offset)
                    raise error_for(ErrorCode.CORRUPT_MESSAGE, "changed on its way")
                return append(records, now_ms)

            replace_method(log, "append_as_follower", fail_once)
            await come_back(cluster, wait_for)
            assert failures

    asyncio.run(run())


@pytest.mark.parametrize(("side", "replica"), [("leader", 1), ("follower", 3)])
def test_throttled_follower_reads_nothing_ahead(cluster_of, wait_for, side, replica):
    """Either side's throttle would be passed by: a consumer's reads are not limited (KIP-73)."""

    async def run():
        async with behind(cluster_of, wait_for) as (cluster, spy):
            setting = {f"{side}_replication_throttled_replicas": (f"0:{replica}",)}
            for node_id in cluster.nodes:
                partition = cluster.partition(node_id)
                partition.change_config(dataclasses.replace(partition.log.config, **setting))
            await come_back(cluster, wait_for)
            assert spy.ahead == []

    asyncio.run(run())


def test_leader_hears_of_a_follower_that_is_read_ahead_for_long(cluster_of, wait_for, monkeypatch):
    """Deletions wait to hear where the logs of all replicas start (KIP-107)."""
    monkeypatch.setattr(catch_up, "_MOST_BYTES", 3 * len(VALUE))

    async def run():
        async with behind(cluster_of, wait_for) as (cluster, _):
            heard = set()
            fetch = cluster.transport.fetch

            async def listen(*arguments):
                response = await fetch(*arguments)
                heard.add(cluster.partition(1).state.leader.followers[3].log_end_offset)
                return response

            monkeypatch.setattr(cluster.transport, "fetch", listen)
            await come_back(cluster, wait_for)
            assert len([offset for offset in heard if 1 < offset < COUNT]) >= 3, heard

    asyncio.run(run())


@contextlib.asynccontextmanager
async def reading_from_silent_leader(cluster):
    """Yield a CatchUp whose first read gets no answer, the partitions that it has given back, and those it has read."""
    given_back, read = [], []

    async def ask(request):
        read.append(next(iter(request.wanted))[1])
        if len(read) == 1:
            await asyncio.Event().wait()
        raise error_for(ErrorCode._TRANSPORT, "cut off")

    copying = catch_up.CatchUp(ask, given_back.append, 1 << 20, "", SystemClock())
    task = asyncio.create_task(copying.run())
    for index in range(2):
        partition = cluster.partition(1, index)
        copying.add(partition, partition.state.leader_epoch)
    try:
        yield copying, given_back, read
    finally:
        task.cancel()


def test_leader_that_is_silent_keeps_no_partition_that_waits_from_its_session(cluster_of, wait_for, monkeypatch):
    monkeypatch.setattr(catch_up, "_LONGEST_MS", 20)

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=2)
            async with reading_from_silent_leader(cluster) as (copying, given_back, _):
                await wait_for(lambda: given_back == [cluster.partition(1, 1)])
                assert cluster.partition(1, 0) in copying

    asyncio.run(run())


def test_read_of_a_partition_that_was_removed_is_not_waited_for(cluster_of, wait_for, monkeypatch):
    monkeypatch.setattr(catch_up, "_LONGEST_MS", 20)

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=2)
            async with reading_from_silent_leader(cluster) as (copying, given_back, read):
                await wait_for(lambda: given_back == [cluster.partition(1, 1)])
                copying.remove(cluster.partition(1, 0))
                copying.add(cluster.partition(1, 1), 0)
                await wait_for(lambda: read == [0, 1])
                assert cluster.partition(1, 0) not in given_back

    asyncio.run(run())

import asyncio
import contextlib

from tidelog_node.event_loop import SystemClock
from tidelog_node.partitions.fetchers.leader_fetcher import FetcherSettings, LeaderFetcher
from tidelog_node.partitions.throttles import ReplicationThrottles


def test_fetcher_that_gets_a_partition_and_is_ended_at_the_same_time_ends(cluster_of, wait_for):
    """A fetcher that nobody knows any more would keep the process from its end."""

    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            clock, settings = SystemClock(), FetcherSettings(max_backoff_ms=10_000)
            throttle = ReplicationThrottles(clock).follower
            # Node 2 does not lead: what is asked of it pauses for longer and longer.
            transport = type(cluster.transport)(cluster.nodes)
            fetcher = LeaderFetcher(2, lambda: (1, 0), lambda _: "node:2", "", transport, settings, clock, throttle)
            partition = cluster.partition(1)
            fetcher.add(partition, partition.state.leader_epoch)
            task = asyncio.create_task(fetcher.run(), name="fetcher")
            await wait_for(lambda: transport.calls == 5)
            for _ in range(20):
                # It comes to its pause.
                await asyncio.sleep(0)
            fetcher.add(partition, partition.state.leader_epoch)
            task.cancel()
            await asyncio.wait({task}, timeout=1)
            ended_at_once = task.cancelled()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            assert ended_at_once

    asyncio.run(run())


class StandingClock(SystemClock):
    def monotonic_ms(self):
        return 1_000


def test_partition_of_which_its_leader_has_not_heard_yet_is_asked_for_again_soon(cluster_of, wait_for):
    """The first records of a new topic wait for that: nodes hear of it within a few milliseconds of each other."""

    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            clock, settings = StandingClock(), FetcherSettings()
            throttle = ReplicationThrottles(clock).follower
            transport = type(cluster.transport)(cluster.nodes)
            fetcher = LeaderFetcher(2, lambda: (1, 0), lambda _: "node:2", "", transport, settings, clock, throttle)
            fetcher.add(cluster.partition(1), cluster.partition(1).state.leader_epoch)
            task = asyncio.create_task(fetcher.run(), name="fetcher")
            await wait_for(lambda: fetcher._pauses())
            assert 0 < max(fetcher._pauses()) <= 10
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(run())


def test_fetcher_forgets_the_turns_of_partitions_that_were_added_anew(cluster_of):
    """Each election adds a partition again; its log would be kept with every one of them."""

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            clock = SystemClock()
            throttle = ReplicationThrottles(clock).follower
            settings = FetcherSettings()
            identity = lambda: (0, 0)  # noqa: E731
            fetcher = LeaderFetcher(2, identity, lambda _: None, "", cluster.transport, settings, clock, throttle)
            partition = cluster.partition(1)
            for epoch in range(100):
                fetcher.add(partition, epoch)
            fetcher._recompute_some()
            assert [turn.leader_epoch for turn in fetcher._turns] == [99]

    asyncio.run(run())


def test_fetcher_does_not_give_up_a_full_fetch_for_each_partition_that_comes(cluster_of, wait_for):
    """It would copy nothing for as long as partitions come one by one, faster than the leader answers."""

    async def run():
        async with cluster_of(1, 2) as cluster:
            plain, full, may_answer = cluster.transport.fetch, [], asyncio.Event()

            async def fetch(address, request, timeout_s):
                if request.session.epoch == 0:
                    full.append(request)
                    await may_answer.wait()
                return await plain(address, request, timeout_s)

            cluster.transport.fetch = fetch
            await cluster.create_topic(replicas=(1, 2))
            await wait_for(lambda: full)
            await cluster.create_topic("u", replicas=(1, 2), topic_id=b"u" * 16)
            for _ in range(20):
                await asyncio.sleep(0)
            may_answer.set()
            await cluster.produce(1, b"a")
            await wait_for(lambda: cluster.partition(2).high_watermark == 1)
            assert len(full) == 1

    asyncio.run(run())

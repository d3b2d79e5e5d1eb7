import asyncio
import contextlib

from tidelog.v1 import log_service_pb2 as pb
from tidelog_node.partitions.clock import SystemClock
from tidelog_node.partitions.fetcher import FetcherSettings, LeaderFetcher
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
            fetcher = LeaderFetcher(
                2, lambda: pb.ReplicaState(replica_id=1), lambda _: "node:2", "", transport, settings, clock, throttle
            )
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

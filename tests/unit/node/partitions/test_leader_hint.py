import asyncio
import dataclasses

from tidelog_foundation.errors import ErrorCode


def test_node_names_the_new_leader_as_soon_as_its_replica_knows_it(cluster_of):
    """The image of all is published later: a producer that hears of the old leader backs off for nothing (KIP-951)."""

    async def run():
        async with cluster_of(1, 2, 3, min_isr=2) as cluster:
            await cluster.create_topic()
            now = cluster.controller.image.partition("t", 0)
            moved = dataclasses.replace(
                now, leader=2, leader_epoch=now.leader_epoch + 1, partition_epoch=now.partition_epoch + 1
            )
            cluster.partition(1).change_registration(moved)

            refused = await cluster.produce(1, b"a")

            assert refused.error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER.code
            assert refused.current_leader.leader_id == 2
            assert refused.current_leader.leader_epoch == now.leader_epoch + 1

    asyncio.run(run())

import asyncio
import dataclasses
import logging

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


def test_each_new_leader_epoch_has_a_line_in_the_log(cluster_of, caplog):
    caplog.set_level(logging.INFO, logger="tidelog_node.partitions.measurements")

    async def run():
        async with cluster_of(1, 2, min_isr=1) as cluster:
            await cluster.create_topic()
            now = cluster.controller.image.partition("t", 0)
            moved = dataclasses.replace(
                now, leader=2, leader_epoch=now.leader_epoch + 1, partition_epoch=now.partition_epoch + 1
            )
            caplog.clear()
            cluster.partition(1).change_registration(moved)
            cluster.partition(1).change_registration(moved)
            cluster.partition(2).change_registration(moved)
            assert [record.getMessage() for record in caplog.records] == [
                f"t-0: this node follows node 2 in leader epoch {moved.leader_epoch}",
                f"t-0: this node leads in leader epoch {moved.leader_epoch} from offset 0 with ISR [1, 2, 3]",
            ]

    asyncio.run(run())

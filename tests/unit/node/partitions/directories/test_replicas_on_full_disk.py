"""A full disk takes a replica offline for a while, never its directory, and nothing of the replica is forgotten."""

import asyncio
import contextlib
import errno
import threading

import pytest
from disk_node import TOPIC_ID, DiskNode, until
from log_batches import produced_batch
from memory_disk import MemoryFiles

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.ids import LOST_DIRECTORY, BrokerId, TopicId
from tidelog_node.replication import EpochEnd
from tidelog_quorum.metadata.records import PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord

NOBODY, ONE, TWO = BrokerId(-1), BrokerId(1), BrokerId(2)


@pytest.fixture
def disk():
    return MemoryFiles()


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch):
    monkeypatch.setattr("tidelog_node.partitions.registry._RETRY_S", 0.01)


def no_space(operation, path):
    return errno.ENOSPC if "t-0" in path.parts and operation != "close" else None


def healthy(operation, path):
    return None


async def append(node, count, index=0):
    for number in range(count):
        node.partition(index).append(produced_batch(b"%d" % number), needs_all_replicas=False)


@contextlib.asynccontextmanager
async def retrying(node):
    task = asyncio.create_task(node.registry.retry_full(), name="retry")
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def go_offline(node, disk):
    """Refuse a flush, after which nobody knows what is on the disk."""
    await append(node, 1)
    disk.fail = no_space
    with pytest.raises(TidelogError):
        await node.partition().flush()
    assert node.registry.get("t", 0) is None
    assert node.directories.failures == {}


async def come_back(node, disk):
    disk.fail = healthy
    async with retrying(node):
        await until(lambda: node.registry.get("t", 0) is not None)


def test_topic_deleted_while_its_replica_is_offline_gives_the_space_back_and_may_be_created_again(disk):
    async def run():
        node = DiskNode(disk)
        await node.create()
        await append(node, 3)
        await go_offline(node, disk)
        disk.fail = healthy
        await node.change(RemoveTopicRecord(TOPIC_ID))
        assert not any(path.is_relative_to("/a/t-0") for path in disk.paths())
        other = TopicId(b"fedcba9876543210")
        await node.change(TopicRecord("t", other), PartitionRecord(other, 0, (ONE,), (ONE,), ONE))
        assert node.log().log_end_offset == 0
        await node.close()

    asyncio.run(run())


def test_deleted_records_stay_deleted_when_the_replica_is_online_again(disk):
    async def run():
        node = DiskNode(disk)
        await node.create()
        await append(node, 4)
        node.partition().delete_records(3)
        await node.registry.checkpoints.write_log_start_offsets()
        node.partition().delete_records(4)
        await go_offline(node, disk)
        disk.fail = healthy
        await node.registry.checkpoints.write_log_start_offsets()
        await node.registry.checkpoints.write()
        await come_back(node, disk)
        assert (node.log().log_start_offset, node.partition().high_watermark) == (4, 5)
        await node.close()

    asyncio.run(run())


def test_checkpoints_keep_what_is_known_of_a_replica_that_is_offline(disk):
    async def run():
        node = DiskNode(disk)
        await node.create()
        await append(node, 5)
        await node.partition().flush()
        await append(node, 1)
        node.partition().delete_records(3)
        await go_offline(node, disk)
        disk.fail = healthy
        await node.registry.checkpoints.write_log_start_offsets()
        await node.registry.checkpoints.write()
        checkpoint = node.directories.online[0].checkpoint(("t", 0))
        assert (checkpoint.log_start_offset, checkpoint.high_watermark, checkpoint.recovery_point) == (3, 7, 5)
        await node.close()

    asyncio.run(run())


def test_stop_with_a_replica_offline_does_not_count_as_clean(disk):
    async def run():
        node = DiskNode(disk)
        await node.create()
        await append(node, 5)
        await go_offline(node, disk)
        disk.fail = healthy
        await node.close()
        node = DiskNode(disk)
        assert node.directories.previous_broker_epoch == -1
        await node.create()
        assert node.log().recovery.checked_segments == 1
        await node.close()

    asyncio.run(run())


def test_truncation_that_a_full_disk_refuses_is_made_again_when_there_is_space(disk):
    async def run():
        node = DiskNode(disk)
        await node.create(partitions=2, replicas=(ONE, TWO))
        await append(node, 3)
        await node.elect(1)
        await append(node, 3)
        await node.elect(2)
        disk.fail = no_space
        with pytest.raises(TidelogError):
            await node.partition().truncate_diverging(2, 6, EpochEnd(0, 3))
        assert node.directories.failures == {}
        assert node.registry.get("t", 0) is None
        assert node.assigned[TOPIC_ID, 0] == LOST_DIRECTORY
        await come_back(node, disk)
        if node.log().log_end_offset == 6:
            await node.partition().truncate_diverging(2, 6, EpochEnd(0, 3))
        assert (node.log().log_end_offset, node.log().latest_epoch) == (3, 0)
        await node.close()

    asyncio.run(run())


def test_last_in_sync_replica_that_a_full_disk_refused_is_not_begun_anew_on_an_empty_one(disk):
    async def run():
        node = DiskNode(disk)
        await node.create()
        await append(node, 3)
        await go_offline(node, disk)
        await node.close()
        disk.fail = healthy
        node = DiskNode(disk, paths=("/c",))
        await node.create(directories=(LOST_DIRECTORY,))
        assert node.registry.get("t", 0) is None
        with pytest.raises(TidelogError, match="last in-sync replica") as caught:
            node.registry.check_online("t", 0)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert not any(path.is_relative_to("/c/t-0") for path in disk.paths())
        await node.close()

    asyncio.run(run())


def test_new_replica_that_a_full_disk_refused_is_created_when_there_is_space(disk):
    async def run():
        node = DiskNode(disk)
        disk.fail = lambda operation, path: errno.ENOSPC if path.is_relative_to("/a/t-0") else None
        await node.create()
        assert node.registry.get("t", 0) is None
        assert node.assigned[TOPIC_ID, 0] == LOST_DIRECTORY
        await node.change(PartitionChangeRecord(TOPIC_ID, 0, leader=NOBODY, directories=(LOST_DIRECTORY,)))
        await come_back(node, disk)
        assert node.log().log_end_offset == 0
        await node.close()

    asyncio.run(run())


def test_replica_that_was_never_assigned_is_not_begun_anew_while_a_directory_is_offline(disk):
    async def run():
        node = DiskNode(disk)
        await node.create()
        await append(node, 3)
        assert node.home() == "/a"
        await node.close()
        disk.fail = lambda operation, path: errno.EIO if path.is_relative_to("/a") else None
        node = DiskNode(disk)
        await node.create(epoch=1)
        with pytest.raises(TidelogError, match="may be in a log directory that is offline: /a"):
            node.registry.check_online("t", 0)
        assert not any(path.is_relative_to("/b/t-0") for path in disk.paths())
        disk.fail = healthy
        await node.close()

    asyncio.run(run())


def test_topic_created_again_while_the_disk_of_the_old_one_fills_up_during_the_end_of_its_move(disk):
    async def run():
        node = DiskNode(disk)
        await node.create()
        await append(node, 3)
        partition, other = node.partition(), TopicId(b"fedcba9876543210")
        await node.registry.move("t", 0, "/b" if node.home() == "/a" else "/a")
        records = (RemoveTopicRecord(TOPIC_ID), TopicRecord("t", other), PartitionRecord(other, 0, (ONE,), (ONE,), ONE))
        lists, may_list = threading.Event(), threading.Event()

        def hold_up(operation, path):
            if operation == "listdir":
                lists.set()
                may_list.wait(10)
            return no_space(operation, path)

        disk.fail = hold_up
        change = asyncio.create_task(node.change(*records), name="change")
        await until(lists.is_set)
        with pytest.raises(TidelogError):
            await partition.flush()
        disk.fail = healthy
        may_list.set()
        await change
        assert (node.partition().topic_id, node.log().log_end_offset) == (other, 0)
        await node.close()

    asyncio.run(run())


def test_image_waits_for_one_retry_not_for_those_of_all_replicas(disk):
    async def run():
        node = DiskNode(disk)
        disk.fail = no_space_for_any
        await node.create(50)
        assert list(node.registry) == []
        tried, may_try = [], threading.Event()

        def hold_up(operation, path):
            if operation == "mkdir":
                tried.append(path)
                may_try.wait(10)
            return no_space_for_any(operation, path)

        disk.fail = hold_up
        async with retrying(node):
            await until(lambda: tried)
            change = asyncio.create_task(node.change(RemoveTopicRecord(TOPIC_ID)), name="change")
            await asyncio.sleep(0)
            may_try.set()
            await change
        assert len(tried) == 1
        await node.close()

    def no_space_for_any(operation, path):
        return errno.ENOSPC if operation == "mkdir" and path.name.startswith("t-") else None

    asyncio.run(run())


def test_stop_in_the_middle_of_a_removal_does_not_count_as_clean(disk):
    async def run():
        node = DiskNode(disk)
        await node.create()
        await append(node, 3)
        async with node.partition().disk:
            removal = asyncio.create_task(node.change(RemoveTopicRecord(TOPIC_ID)), name="removal")
            await until(lambda: node.registry.get("t", 0) is None)
            removal.cancel()
            await asyncio.wait([removal])
        await node.close()
        assert DiskNode(disk).directories.previous_broker_epoch == -1

    asyncio.run(run())

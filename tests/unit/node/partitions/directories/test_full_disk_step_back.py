"""A replica on a full disk lets others take its place, and has it again when there is room: nobody waits for it."""

import asyncio
import contextlib
import errno

import pytest
from disk_node import TOPIC_ID, DiskNode, until
from log_batches import produced_batch, replicated_batch
from memory_disk import MemoryFiles

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.ids import LOST_DIRECTORY, BrokerId
from tidelog_node.log import LogConfig
from tidelog_quorum.metadata.records import BrokerRegistrationChangeRecord, PartitionChangeRecord, RemoveTopicRecord

NOBODY, ONE, TWO = BrokerId(-1), BrokerId(1), BrokerId(2)


@pytest.fixture
def disk():
    return MemoryFiles()


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch):
    monkeypatch.setattr("tidelog_node.partitions.registry._RETRY_S", 0.01)


def full(operation, path):
    return errno.ENOSPC if operation.startswith("pwrite") else None


def healthy(operation, path):
    return None


def append(node, index=0):
    return node.partition(index).append(produced_batch(b"x"), needs_all_replicas=False)


def refused(node, index=0):
    with pytest.raises(TidelogError, match="ENOSPC") as caught:
        append(node, index)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def replicate(node, epoch):
    end_offset = node.log().log_end_offset
    node.partition().replicate(epoch, end_offset, replicated_batch(end_offset, epoch, b"y"), 0, 0)


def is_said_to_be_at_home(node, index=0):
    home = node.directories.find(node.home(index))
    return node.assigned.get((TOPIC_ID, index)) == home.id


@contextlib.asynccontextmanager
async def looking(node):
    task = asyncio.create_task(node.registry.retry_full(), name="retry")
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def lead_and_step_back(node, disk):
    await node.create(replicas=(ONE, TWO))
    append(node)
    disk.fail = full
    refused(node)
    assert node.assigned[TOPIC_ID, 0] == LOST_DIRECTORY


async def let_the_other_lead(node):
    record = PartitionChangeRecord(TOPIC_ID, 0, leader=TWO, isr=(TWO,), directories=(LOST_DIRECTORY, bytes(16)))
    await node.change(record)


def test_leader_on_a_full_disk_lets_another_lead_and_serves_what_it_has(disk):
    async def run():
        node = DiskNode(disk)
        await lead_and_step_back(node, disk)
        await let_the_other_lead(node)
        assert node.assigned[TOPIC_ID, 0] == LOST_DIRECTORY
        assert (node.log().log_end_offset, node.fetching) == (1, set())
        assert node.directories.failures == {}
        disk.fail = healthy
        await node.close()

    asyncio.run(run())


def test_replica_copies_and_may_lead_again_when_its_disk_has_room(disk):
    async def run():
        node = DiskNode(disk)
        await lead_and_step_back(node, disk)
        await let_the_other_lead(node)
        disk.fail = healthy
        async with looking(node):
            await until(lambda: is_said_to_be_at_home(node))
        assert node.fetching == {"t-0"}
        await node.elect(1)
        assert append(node).first_offset == 1
        await node.close()

    asyncio.run(run())


async def be_at_home(node):
    """The controller has the replica where its log is."""
    home = node.directories.find(node.home(0)).id
    await node.change(PartitionChangeRecord(TOPIC_ID, 0, directories=(home, bytes(16))))


@pytest.mark.parametrize("is_known_there", [True, False])
def test_replica_says_that_its_log_was_never_lost_if_the_controller_had_it_there_before(disk, is_known_there):
    async def run():
        node = DiskNode(disk)
        await node.create(replicas=(ONE, TWO))
        if is_known_there:
            await be_at_home(node)
        append(node)
        disk.fail = full
        refused(node)
        await let_the_other_lead(node)
        disk.fail = healthy
        async with looking(node):
            await until(lambda: is_said_to_be_at_home(node))
        assert ((TOPIC_ID, 0) in node.keeping) is is_known_there
        await node.close()

    asyncio.run(run())


@pytest.mark.parametrize("change", [{"leader": NOBODY}, {"isr": (ONE,)}])
def test_replica_that_nobody_else_could_replace_says_that_its_log_was_never_lost(disk, change):
    async def run():
        node = DiskNode(disk)
        await node.create(replicas=(ONE, TWO))
        await be_at_home(node)
        disk.fail = full
        refused(node)
        record = PartitionChangeRecord(TOPIC_ID, 0, directories=(LOST_DIRECTORY, bytes(16)), **change)
        await node.change(record)
        assert is_said_to_be_at_home(node)
        assert (TOPIC_ID, 0) in node.keeping
        disk.fail = healthy
        await node.close()

    asyncio.run(run())


def test_replica_stays_back_while_its_file_system_says_that_there_is_no_room(disk, monkeypatch):
    async def run():
        node = DiskNode(disk)
        free = [2 * LogConfig().max_message_bytes - 1]
        looks = []

        def space(path):
            looks.append(path)
            return 1 << 30, free[0]

        monkeypatch.setattr(node.directories, "space", space)
        await lead_and_step_back(node, disk)
        await let_the_other_lead(node)
        disk.fail = healthy
        async with looking(node):
            await until(lambda: len(looks) >= 3)
            assert node.assigned[TOPIC_ID, 0] == LOST_DIRECTORY
            free[0] += 1
            await until(lambda: is_said_to_be_at_home(node))
        await node.close()

    asyncio.run(run())


def test_follower_on_a_full_disk_leaves_the_isr_at_once_and_copies_no_more(disk):
    async def run():
        node = DiskNode(disk)
        await node.create(replicas=(TWO, ONE))
        assert node.fetching == {"t-0"}
        replicate(node, 0)
        disk.fail = full
        with pytest.raises(TidelogError, match="ENOSPC"):
            replicate(node, 0)
        assert node.assigned[TOPIC_ID, 0] == LOST_DIRECTORY
        assert node.fetching == set()
        record = PartitionChangeRecord(TOPIC_ID, 0, isr=(TWO,), directories=(bytes(16), LOST_DIRECTORY))
        await node.change(record)
        assert node.assigned[TOPIC_ID, 0] == LOST_DIRECTORY
        disk.fail = healthy
        async with looking(node):
            await until(lambda: is_said_to_be_at_home(node))
        assert node.fetching == {"t-0"}
        replicate(node, 0)
        assert node.log().log_end_offset == 2
        await node.close()

    asyncio.run(run())


def test_last_replica_in_sync_stays_leader_on_a_full_disk(disk):
    async def run():
        node = DiskNode(disk)
        await node.create(replicas=(ONE, TWO), isr=(ONE,))
        append(node)
        before = dict(node.assigned)
        disk.fail = full
        refused(node)
        refused(node)
        assert node.assigned == before
        disk.fail = healthy
        assert append(node).first_offset == 1
        await node.close()

    asyncio.run(run())


def test_leader_whose_followers_are_fenced_stays_leader_on_a_full_disk(disk):
    async def run():
        node = DiskNode(disk)
        await node.create(replicas=(ONE, TWO))
        await node.change(BrokerRegistrationChangeRecord(TWO, node.image.brokers[TWO].broker_epoch, fenced=True))
        before = dict(node.assigned)
        disk.fail = full
        refused(node)
        assert node.assigned == before
        disk.fail = healthy
        await node.close()

    asyncio.run(run())


@pytest.mark.parametrize("change", [{"leader": NOBODY}, {"isr": (ONE,)}])
def test_replica_takes_its_place_again_when_nobody_else_could_have_it(disk, change):
    async def run():
        node = DiskNode(disk)
        await lead_and_step_back(node, disk)
        record = PartitionChangeRecord(TOPIC_ID, 0, directories=(LOST_DIRECTORY, bytes(16)), **change)
        await node.change(record)
        assert is_said_to_be_at_home(node)
        disk.fail = healthy
        await node.close()

    asyncio.run(run())


def test_other_replicas_on_the_same_disk_keep_their_place(disk):
    async def run():
        node = DiskNode(disk, paths=("/a",))
        await node.create(partitions=2, replicas=(ONE, TWO))
        disk.fail = full
        refused(node, 1)
        assert node.assigned[TOPIC_ID, 1] == LOST_DIRECTORY
        assert node.assigned.get((TOPIC_ID, 0)) != LOST_DIRECTORY
        disk.fail = healthy
        assert append(node, 0).first_offset == 0
        await node.close()

    asyncio.run(run())


def test_replica_that_is_removed_while_it_stays_back_is_gone(disk):
    async def run():
        node = DiskNode(disk)
        await lead_and_step_back(node, disk)
        disk.fail = healthy
        await node.change(RemoveTopicRecord(TOPIC_ID))
        async with looking(node):
            for _ in range(5):
                await asyncio.sleep(0.01)
        assert node.assigned[TOPIC_ID, 0] == LOST_DIRECTORY
        await node.close()

    asyncio.run(run())

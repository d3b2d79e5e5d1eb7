"""An error of one replica's files, or of the process, that is not the disk's takes no log directory offline."""

import asyncio
import errno
from pathlib import Path

import pytest
from disk_node import TOPIC_ID, DiskNode, until
from log_batches import produced_batch
from memory_disk import MemoryFiles

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.ids import LOST_DIRECTORY, TopicId
from tidelog_node.log.disk.disk_errors import Fault, fault_of, is_directory_failure
from tidelog_node.log.disk.files import storage_error
from tidelog_quorum.metadata.records import RemoveTopicRecord

SMALL = TopicConfig(segment_bytes=400, index_interval_bytes=100, file_delete_delay_ms=0)
OF_THE_PROCESS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
OF_THE_REPLICA = (errno.ENAMETOOLONG, errno.EINVAL, errno.ENOENT, errno.EEXIST, errno.EACCES, errno.EPERM, errno.EISDIR)
NOT_THE_DISKS = (errno.EMFILE, errno.EINVAL, errno.EACCES)
OTHER_TOPIC_ID = TopicId(b"fedcba9876543210")


@pytest.fixture
def disk():
    return MemoryFiles()


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch):
    monkeypatch.setattr("tidelog_node.partitions.registry._RETRY_S", 0.01)
    monkeypatch.setattr("tidelog_node.partitions.directories.relocation._RETRY_S", 0.01)


def healthy(operation, path):
    return None


def failing(number, *operations, at="/a/t-0"):
    """Return a fault of some operations, or of all, on what lies at a path."""
    return lambda operation, path: (
        number
        if path.is_relative_to(at) and operation != "close" and (not operations or operation in operations)
        else None
    )


def produce(node, value=b"v", index=0):
    return node.partition(index).append(produced_batch(value), needs_all_replicas=False)


def produce_until_refused(node):
    """Append until an error of the storage comes, and return the end offset."""
    log = node.log(0)
    with pytest.raises(TidelogError) as caught:  # noqa: PT012  # the segment has to be full first
        for _ in range(10):
            produce(node)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    return log.log_end_offset


def names(disk, directory):
    return {path.parts[2] for path in disk.paths() if path.parts[1] == directory}


async def two_partitions(disk, records=3):
    """A node with partition 0 in /a and 1 in /b."""
    node = DiskNode(disk, config=SMALL)
    await node.create(partitions=2)
    for _ in range(records):
        produce(node)
        produce(node, index=1)
    await node.partition(0).flush()
    return node


async def is_whole_again(disk, node, records):
    """Heal the disk, and wait until partition 0 has its records and takes another; no directory has failed."""
    disk.fail = healthy
    async with node.retrying():
        await until(lambda: node.registry.get("t", 0) is not None)
    assert node.log(0).log_end_offset == records
    assert produce(node).first_offset == records
    assert node.assigned[TOPIC_ID, 0] == node.directories.ids[0]
    assert (node.directories.failures, node.ended_with, node.heartbeat_requests) == ({}, [], 0)
    assert produce(node, index=1).first_offset == 3
    await node.close()


@pytest.mark.parametrize(
    ("number", "fault"),
    [
        *((number, Fault.DISK) for number in (errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESTALE)),
        *((number, Fault.FULL) for number in (errno.ENOSPC, errno.EDQUOT)),
        *((number, Fault.PROCESS) for number in OF_THE_PROCESS),
        *((number, Fault.REPLICA) for number in (*OF_THE_REPLICA, None)),
    ],
)
def test_error_of_the_system_is_the_disks_the_replicas_or_the_process(number, fault):
    cause = OSError(number, "injected") if number else OSError("injected")
    error = storage_error("Writing", Path("/a/t-0"), cause)
    assert fault_of(error) is None, "nothing has caused it"
    error.__cause__ = cause
    assert fault_of(error) is fault
    assert is_directory_failure(error) == (fault in (Fault.DISK, Fault.REPLICA))


@pytest.mark.parametrize("number", [errno.ENAMETOOLONG, errno.EINVAL, errno.ENOENT])
@pytest.mark.parametrize("operation", ["pwrite", "open"])
def test_append_that_the_replicas_files_refuse_takes_that_replica_offline_until_they_do_not(disk, number, operation):
    async def run():
        node = await two_partitions(disk)
        disk.fail = failing(number, operation)
        end_offset = produce_until_refused(node)
        assert node.registry.get("t", 0) is None
        assert node.assigned[TOPIC_ID, 0] == LOST_DIRECTORY, "another replica may lead"
        await is_whole_again(disk, node, end_offset)

    asyncio.run(run())


@pytest.mark.parametrize("number", [errno.EMFILE])
def test_append_for_which_the_process_has_no_files_is_refused_alone(disk, number):
    async def run():
        node = await two_partitions(disk)
        disk.fail = failing(number, "open")
        end_offset = produce_until_refused(node)
        assert LOST_DIRECTORY not in node.assigned.values()
        await is_whole_again(disk, node, end_offset)

    asyncio.run(run())


@pytest.mark.parametrize("number", NOT_THE_DISKS)
@pytest.mark.parametrize("operation", ["fsync", "fsync_directory"])
def test_flush_that_is_refused_costs_no_directory(disk, number, operation):
    async def run():
        node = await two_partitions(disk)
        while node.log(0).segment_count == 1:
            produce(node)
        end_offset = node.log(0).log_end_offset
        disk.fail = failing(number, operation)
        with pytest.raises(TidelogError):
            await node.partition(0).flush()
        assert node.registry.get("t", 0) is None
        await is_whole_again(disk, node, end_offset)

    asyncio.run(run())


@pytest.mark.parametrize("number", NOT_THE_DISKS)
def test_log_that_cannot_be_opened_at_the_start_is_opened_later_as_it_was(disk, number):
    async def run():
        node = await two_partitions(disk)
        node.log(0).advance_log_start_offset(1)
        await node.close()
        disk.fail = failing(number, "open", "listdir")
        node = DiskNode(disk, config=SMALL)
        await node.create(partitions=2)
        with pytest.raises(TidelogError, match="is offline on node 1"):
            node.registry.check_online("t", 0)
        await node.registry.checkpoints.write_log_start_offsets()
        await node.registry.checkpoints.write()
        disk.fail = healthy
        async with node.retrying():
            await until(lambda: node.registry.get("t", 0) is not None)
        assert node.log(0).log_start_offset == 1
        await is_whole_again(disk, node, 3)

    asyncio.run(run())


def test_replica_whose_folder_is_gone_is_not_created_anew_and_is_back_with_it(disk):
    async def run():
        node = await two_partitions(disk)
        disk.rename(Path("/a/t-0"), Path("/a/away"))
        end_offset = produce_until_refused(node)
        async with node.retrying():
            await asyncio.sleep(0.1)
            assert node.registry.get("t", 0) is None
            assert "t-0" not in names(disk, "a")
        disk.rename(Path("/a/away"), Path("/a/t-0"))
        async with node.retrying():
            await until(lambda: node.registry.get("t", 0) is not None)
        assert node.log(0).log_end_offset == end_offset
        await node.close()

    asyncio.run(run())


@pytest.mark.parametrize("number", NOT_THE_DISKS)
@pytest.mark.parametrize("is_created_again", [False, True])
def test_deleted_replica_whose_folder_cannot_be_renamed_is_removed_later(disk, number, is_created_again):
    async def run():
        node = await two_partitions(disk)
        disk.fail = failing(number, "rename")
        await node.change(RemoveTopicRecord(TOPIC_ID))
        assert "t-0" in names(disk, "a")
        if is_created_again:
            await node.create(partitions=2, topic_id=OTHER_TOPIC_ID)
            assert node.registry.get("t", 0) is None, "it must not have the records"
        assert node.directories.failures == {}
        disk.fail = healthy
        async with node.retrying():
            await until(lambda: not node.registry._hosted.retries())
            if is_created_again:
                await until(lambda: node.registry.get("t", 0) is not None)
                assert node.log(0).log_end_offset == 0
        assert [name for name in names(disk, "a") if name.endswith("-delete")]
        await node.close()

    asyncio.run(run())


@pytest.mark.parametrize("number", NOT_THE_DISKS)
def test_folder_that_cannot_become_stray_costs_no_directory_and_is_not_read(disk, number):
    async def run():
        node = await two_partitions(disk)
        await node.close()
        disk.fail = failing(number, "rename")
        node = DiskNode(disk, config=SMALL)
        await node.create(partitions=2, topic_id=OTHER_TOPIC_ID)
        assert node.registry.get("t", 0) is None
        await node.registry.discard_unknown()
        assert node.directories.failures == {}
        disk.fail = healthy
        async with node.retrying():
            await until(lambda: node.registry.get("t", 0) is not None)
        assert node.log(0).log_end_offset == 0
        assert [name for name in names(disk, "a") if name.endswith("-stray")]
        await node.close()

    asyncio.run(run())


@pytest.mark.parametrize("number", [errno.EMFILE])
def test_checkpoint_for_which_the_process_has_no_files_is_written_later(disk, number):
    async def run():
        node = await two_partitions(disk)
        disk.fail = lambda operation, path: number if "checkpoint" in path.name and operation == "open" else None
        await node.registry.checkpoints.write()
        assert node.directories.failures == {}
        disk.fail = healthy
        await node.registry.checkpoints.write()
        assert node.directories.online[0].recovery_points.get(("t", 0)) == 3
        await node.close()

    asyncio.run(run())


@pytest.mark.parametrize("number", NOT_THE_DISKS)
def test_close_that_is_refused_is_no_clean_stop_of_that_directory(disk, number):
    async def run():
        node = await two_partitions(disk)
        produce(node)
        disk.fail = failing(number, "fsync")
        await node.close()
        assert node.directories.failures == {}
        disk.fail = healthy
        node = DiskNode(disk, config=SMALL)
        assert [d.clean_shutdown_epoch for d in node.directories.online] == [None, 5]
        await node.create(partitions=2)
        await node.close()

    asyncio.run(run())


@pytest.mark.parametrize("number", NOT_THE_DISKS)
def test_deleted_folder_that_cannot_be_removed_costs_no_directory_at_the_start(disk, number):
    async def run():
        node = await two_partitions(disk)
        await node.change(RemoveTopicRecord(TOPIC_ID))
        await node.close()
        [folder] = names(disk, "a") - {name for name in names(disk, "a") if not name.endswith("-delete")}
        disk.fail = failing(number, at=f"/a/{folder}")
        node = DiskNode(disk, config=SMALL)
        assert node.directories.failures == {}
        await node.close()
        disk.fail = healthy
        await DiskNode(disk, config=SMALL).close()
        assert folder not in names(disk, "a")

    asyncio.run(run())


@pytest.mark.parametrize("number", NOT_THE_DISKS)
@pytest.mark.parametrize("operation", ["rename", "fsync_directory"])
def test_move_that_has_taken_place_ends_when_it_can(disk, number, operation):
    async def run():
        node = await two_partitions(disk)
        async with node.moving():
            move = asyncio.ensure_future(node.registry.move("t", 0, "/b"))
            disk.fail = lambda what, path: (
                number
                if what == operation
                and (path.name.endswith("-moved") or path == Path("/b"))
                and any(name.endswith("-moved") for name in names(disk, "b"))
                else None
            )
            await move
            await until(lambda: node.home(0) == "/b")
            assert produce(node).first_offset == 3
            disk.fail = healthy
            await until(lambda: not node.partition(0).disk.locked())
        assert (node.directories.failures, names(disk, "b") >= {"t-0", "t-1"}) == ({}, True)
        await node.close()

    asyncio.run(run())


@pytest.mark.parametrize("number", NOT_THE_DISKS)
def test_move_that_a_start_cannot_end_leaves_out_its_replica_until_it_can(disk, number):
    async def run():
        node = await two_partitions(disk)
        async with node.moving():
            disk.fail = lambda what, path: errno.EINVAL if what == "rename" and path.name.endswith("-moved") else None
            await node.registry.move("t", 0, "/b")
            await until(lambda: node.home(0) == "/b")
            produce(node)
        await node.registry.close()
        node.directories.close(clean=False)
        disk.fail = lambda what, path: number if what == "rename" and path.name.endswith("-moved") else None
        node = DiskNode(disk, config=SMALL)
        await node.create(partitions=2)
        assert node.registry.get("t", 0) is None, "what it was copied from is no replica any more"
        assert node.directories.failures == {}
        disk.fail = healthy
        async with node.retrying():
            await until(lambda: node.registry.get("t", 0) is not None)
        assert (node.home(0), node.log(0).log_end_offset) == ("/b", 4)
        await node.close()

    asyncio.run(run())


@pytest.mark.parametrize("length", [213, 214, 249])
def test_topic_with_a_long_name_is_moved_deleted_renamed_to_stray_and_found_again(disk, length):
    topic = "n" * length

    async def run():
        node = DiskNode(disk, config=SMALL, topic=topic)
        await node.create()
        produce(node)
        assert node.home() == "/a"
        async with node.moving():
            await node.registry.move(topic, 0, "/b")
            await until(lambda: node.home() == "/b" and not node.partition().disk.locked())
        produce(node)
        assert not any(path.name == "partition-name" for path in disk.paths())
        await node.close()
        node = DiskNode(disk, config=SMALL, topic=topic)
        await node.create()
        assert (node.home(), node.log().log_end_offset) == ("/b", 2)
        await node.change(RemoveTopicRecord(TOPIC_ID))
        assert [name for name in names(disk, "b") if name.endswith("-delete")]
        await node.create(topic_id=OTHER_TOPIC_ID)
        produce(node)
        await node.close()
        node = DiskNode(disk, config=SMALL, topic=topic)
        await node.registry.discard_unknown()
        assert [name for path in "ab" for name in names(disk, path) if name.endswith("-stray")]
        assert node.directories.failures == {}
        await node.close()

    asyncio.run(run())


def test_interrupted_move_of_a_topic_with_a_long_name_is_resumed_and_one_that_had_ended_is_completed(disk):
    topic = "n" * 249

    async def run():
        node = DiskNode(disk, config=SMALL, topic=topic)
        await node.create()
        for _ in range(20):
            produce(node)
        node.registry.relocations.change_rate(1)
        async with node.moving():
            await node.registry.move(topic, 0, "/b")
            await until(lambda: [name for name in names(disk, "b") if name.endswith("-future")])
        await node.close()
        for suffix in ("-moved", ""):
            node = DiskNode(disk, config=SMALL, topic=topic)
            await node.create()
            await node.registry.discard_unknown()
            if suffix:
                disk.fail = lambda what, path: errno.EINVAL if path.name.endswith("-moved") else None
                async with node.moving():
                    await until(lambda: [name for name in names(disk, "b") if name.endswith("-moved")])
                await node.registry.close()
                node.directories.close(clean=False)
                disk.fail = healthy
        assert (node.home(), node.log().log_end_offset) == ("/b", 20)
        assert f"{topic}-0" not in names(disk, "a")
        await node.close()

    asyncio.run(run())

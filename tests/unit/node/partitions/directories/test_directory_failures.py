"""A log directory fails, at the start or later: its replicas are offline, the others go on (KIP-112, KIP-858)."""

import asyncio
import errno
import logging
from pathlib import Path

import pytest
from disk_node import TOPIC_ID, DiskNode, until
from log_batches import produced_batch
from memory_disk import MemoryFiles

from tidelog_foundation.errors import ConfigError, ErrorCode, TidelogError
from tidelog_foundation.ids import LOST_DIRECTORY, BrokerId
from tidelog_quorum.metadata.records import PartitionChangeRecord, RemoveTopicRecord


@pytest.fixture
def disk():
    return MemoryFiles()


def broken(directory, number=errno.EIO):
    """Return a fault: nothing in a directory works any more."""
    return lambda operation, path: number if path.is_relative_to(directory) and operation != "close" else None


def healthy(operation, path):
    return None


def batch(value=b"v"):
    return produced_batch(value)


def folders(disk, suffix):
    """Return the folders in log directories that are named so."""
    return sorted({Path(*path.parts[:3]) for path in disk.paths() if path.parts[2].endswith(suffix)})


async def two_partitions(disk):
    """A node with partition 0 in /a and 1 in /b."""
    node = DiskNode(disk)
    await node.create(partitions=2)
    assert (node.home(0), node.home(1)) == ("/a", "/b")
    return node


def storage_error(node, index):
    with pytest.raises(TidelogError) as caught:
        node.registry.check_online("t", index)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    return caught.value.message


def test_new_replica_is_told_to_the_controller_with_its_directory(disk):
    async def run():
        node = await two_partitions(disk)
        a, b = node.directories.ids
        assert node.assigned == {(TOPIC_ID, 0): a, (TOPIC_ID, 1): b}
        await node.close()

    asyncio.run(run())


def test_failed_append_takes_its_directory_offline_and_no_other(disk, caplog):
    async def run():
        node = await two_partitions(disk)
        a, _ = node.directories.ids
        lost = node.partition(0)
        node.partition(1).append(batch(), needs_all_replicas=False)
        disk.fail = broken("/a")
        with pytest.raises(TidelogError):
            lost.append(batch(), needs_all_replicas=False)
        assert node.registry.get("t", 0) is None
        assert "injected EIO" in storage_error(node, 0)
        assert node.directories.offline_ids == [a]
        assert (node.heartbeat_requests, node.ended_with) == (1, [])
        with pytest.raises(TidelogError, match="offline"):
            lost.append(batch(), needs_all_replicas=False)
        node.registry.check_online("t", 1)
        assert node.partition(1).append(batch(), needs_all_replicas=False).first_offset == 1
        await node.close()

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    lines = [r.getMessage() for r in caplog.records if "/a is offline until the next start" in r.getMessage()]
    assert len(lines) == 1
    assert "1 replicas" in lines[0]


def test_failed_directory_answers_those_who_wait_and_follows_nobody(disk):
    async def run():
        node = DiskNode(disk)
        await node.create(partitions=1, replicas=(1, 2))
        partition = node.partition()
        info = partition.append(batch(), needs_all_replicas=True)
        waiting = partition.replicated(info.last_offset + 1)
        node.registry.fail_directory(Path("/a"), TidelogError(ErrorCode.KAFKA_STORAGE_ERROR, "gone"))
        with pytest.raises(TidelogError) as caught:
            await waiting
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        await node.elect(2)
        assert node.fetching == set()
        assert node.registry.get("t", 0) is None
        await node.close()

    asyncio.run(run())


def test_last_directory_ends_the_node(disk):
    async def run():
        node = await two_partitions(disk)
        for index, path in enumerate(("/a", "/b")):
            disk.fail = broken(path)
            with pytest.raises(TidelogError):
                node.partition(index).append(batch(), needs_all_replicas=False)
        assert len(node.ended_with) == 1
        disk.fail = healthy
        with pytest.raises(TidelogError, match="injected EIO"):
            await node.registry.close()

    asyncio.run(run())


def test_failed_flush_and_failed_checkpoint_take_their_directory_offline(disk):
    async def run():
        node = await two_partitions(disk)
        node.partition(0).append(batch(), needs_all_replicas=False)
        disk.fail = lambda operation, path: errno.EIO if operation == "fsync" and path.parts[1] == "a" else None
        with pytest.raises(TidelogError):
            await node.partition(0).flush()
        assert node.registry.get("t", 0) is None
        disk.fail = healthy
        await node.close()

        node = DiskNode(disk)
        await node.create(partitions=2)
        node.partition(0).append(batch(), needs_all_replicas=False)
        disk.fail = lambda operation, path: errno.EROFS if "checkpoint" in path.name and operation == "open" else None
        await node.registry.checkpoints.write()
        assert node.registry.get("t", 0) is None
        assert "EROFS" in storage_error(node, 0)
        disk.fail = healthy

    asyncio.run(run())


def test_full_disk_refuses_an_append_and_goes_on_when_there_is_space(disk):
    async def run():
        node = await two_partitions(disk)
        disk.fail = lambda operation, path: errno.ENOSPC if operation.startswith("pwrite") else None
        with pytest.raises(TidelogError) as caught:
            node.partition(0).append(batch(), needs_all_replicas=False)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        await node.registry.checkpoints.write()
        disk.fail = healthy
        assert node.partition(0).append(batch(), needs_all_replicas=False).first_offset == 0
        assert node.directories.failures == {}
        await node.close()

    asyncio.run(run())


def test_restart_with_the_directory_healthy_again_has_all_that_was_flushed(disk):
    async def run():
        node = await two_partitions(disk)
        node.partition(0).append(batch(b"kept"), needs_all_replicas=False)
        await node.partition(0).flush()
        disk.fail = broken("/a")
        with pytest.raises(TidelogError):
            node.partition(0).append(batch(b"refused"), needs_all_replicas=False)
        await node.close()
        disk.fail = healthy
        node = DiskNode(disk)
        assert node.directories.previous_broker_epoch == -1
        await node.create(partitions=2)
        assert (node.home(0), node.log(0).log_end_offset) == ("/a", 1)
        await node.close()

    asyncio.run(run())


def test_start_goes_on_without_a_directory_that_cannot_be_used(disk, caplog):
    async def run():
        node = await two_partitions(disk)
        ids = node.directories.ids
        await node.close()
        disk.fail = broken("/a", errno.EROFS)
        node = DiskNode(disk)
        assert (node.directories.ids, node.directories.offline_ids) == (ids[1:], [])
        await node.create(partitions=3, directories=ids[:1])
        assert node.registry.get("t", 1) is not None, "it is found where it is"
        assert "may be in a log directory that is offline: /a" in storage_error(node, 0)
        assert "may be in a log directory that is offline: /a" in storage_error(node, 2)
        assert LOST_DIRECTORY not in node.assigned.values()
        await node.close()

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    [line] = [r.getMessage() for r in caplog.records if "is offline until the next start" in r.getMessage()]
    assert "/a" in line
    assert "EROFS" in line


def test_start_without_any_usable_directory_is_refused_in_one_line(disk):
    disk.fail = lambda operation, path: errno.EIO
    with pytest.raises(ConfigError, match=r"no log directory is usable: /a: .*EIO.*; /b: .*EIO") as caught:
        DiskNode(disk)
    assert "\n" not in str(caught.value)


def test_log_that_cannot_be_opened_takes_its_directory_offline_at_the_start(disk):
    async def run():
        node = await two_partitions(disk)
        ids = node.directories.ids
        await node.close()
        disk.fail = lambda operation, path: errno.EIO if path.is_relative_to("/a/t-0") else None
        node = DiskNode(disk)
        assert (node.directories.ids, node.directories.offline_ids) == (ids[1:], ids[:1])
        await node.create(partitions=2, directories=(ids[0],))
        assert "offline: /a" in storage_error(node, 0)
        assert node.home(1) == "/b"
        disk.fail = healthy
        await node.close()

    asyncio.run(run())


def test_last_in_sync_replica_is_not_created_anew_when_its_directory_was_replaced(disk):
    async def run():
        node = await two_partitions(disk)
        ids = node.directories.ids
        await node.close()
        node = DiskNode(disk, paths=("/b", "/c"))
        await node.create(partitions=1, directories=ids[:1])
        assert "last in-sync replica" in storage_error(node, 0)
        assert not any(path.is_relative_to("/c/t-0") for path in disk.paths())
        await node.close()

    asyncio.run(run())


def test_replica_out_of_the_isr_is_created_anew_when_its_directory_was_replaced(disk):
    async def run():
        node = await two_partitions(disk)
        ids = node.directories.ids
        await node.close()
        node = DiskNode(disk, paths=("/b", "/c"))
        two = BrokerId(2)
        await node.create(partitions=1, replicas=(two, BrokerId(1)), directories=(ids[1], ids[0]), isr=(two,))
        assert node.home(0) == "/c"
        assert node.fetching == {"t-0"}
        await node.close()

    asyncio.run(run())


def test_new_replica_goes_to_another_directory_when_the_first_one_fails(disk):
    async def run():
        node = DiskNode(disk)
        disk.fail = lambda operation, path: errno.EIO if path.is_relative_to("/a/t-0") else None
        await node.create(partitions=1)
        assert node.home(0) == "/b"
        assert list(node.directories.failures) == [Path("/a")]
        disk.fail = healthy
        await node.close()

    asyncio.run(run())


@pytest.mark.parametrize("right", [0, 1])
def test_partition_in_two_directories_is_the_one_where_the_metadata_says(disk, right):
    async def run():
        for path in ("/a", "/b"):
            node = DiskNode(disk, paths=(path,))
            await node.create()
            node.partition().append(batch(path.encode()), needs_all_replicas=False)
            await node.close()
        node = DiskNode(disk)
        ids = node.directories.ids
        await node.create(directories=(ids[right],))
        assert node.home() == ("/a", "/b")[right]
        assert [path.parent for path in folders(disk, "-stray")] == [Path(("/b", "/a")[right])]
        await node.close()

    asyncio.run(run())


def test_partition_in_two_directories_of_which_the_metadata_knows_neither_ends_the_start(disk):
    async def run():
        for path in ("/a", "/b"):
            node = DiskNode(disk, paths=(path,))
            await node.create()
            await node.close()
        node = DiskNode(disk)
        with pytest.raises(ConfigError, match=r"/a/t-0 and /b/t-0 contain the same partition"):
            await node.create()
        await node.registry.close()

    asyncio.run(run())


def test_deleted_replica_is_removed_when_its_delay_is_over(disk, monkeypatch):
    monkeypatch.setattr("tidelog_node.partitions.registry._REMOVAL_S", 0.01)

    async def run():
        node = await two_partitions(disk)
        await node.change(RemoveTopicRecord(TOPIC_ID))
        assert len(folders(disk, "-delete")) == 2
        removing = asyncio.create_task(node.registry.remove_folders(), name="removal")
        await asyncio.sleep(0.05)
        assert len(folders(disk, "-delete")) == 2, "file.delete.delay.ms is a minute"
        hosted = node.registry._hosted
        hosted._due_ms = dict.fromkeys(hosted._due_ms, 0)
        await until(lambda: not folders(disk, "-delete"))
        removing.cancel()
        assert len(node.directories.online[0]) == 0
        await node.close()

    asyncio.run(run())


def test_topic_deleted_while_its_directory_is_offline_becomes_stray_by_the_next_start(disk):
    async def run():
        node = await two_partitions(disk)
        disk.fail = broken("/a")
        node.registry.fail_directory(Path("/a"), TidelogError(ErrorCode.KAFKA_STORAGE_ERROR, "gone"))
        await node.change(RemoveTopicRecord(TOPIC_ID))
        node.registry.check_online("t", 0)
        await node.close()
        disk.fail = healthy
        node = DiskNode(disk)
        await node.registry.discard_unknown()
        assert [path.name[:4] for path in folders(disk, "-stray")] == ["t-0."]
        await node.close()

    asyncio.run(run())


def test_registration_change_alone_does_not_bring_an_offline_replica_back(disk):
    async def run():
        node = await two_partitions(disk)
        node.registry.fail_directory(Path("/a"), TidelogError(ErrorCode.KAFKA_STORAGE_ERROR, "gone"))
        await node.change(PartitionChangeRecord(TOPIC_ID, 0, leader=BrokerId(1)))
        assert node.registry.get("t", 0) is None
        await node.close()

    asyncio.run(run())

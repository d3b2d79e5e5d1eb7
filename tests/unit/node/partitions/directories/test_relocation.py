"""Replicas move from one log directory to another while they are used (KIP-113), whatever happens meanwhile."""

import asyncio
import errno
import math
from pathlib import Path

import pytest
from disk_node import TOPIC_ID, DiskNode, until
from log_batches import produced_batch, replicated_batch
from memory_disk import MemoryFiles, crash_at_every_step

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.ids import BrokerId
from tidelog_foundation.records import iter_headers
from tidelog_quorum.metadata.records import RemoveTopicRecord

SMALL = TopicConfig(segment_bytes=400, index_interval_bytes=100, file_delete_delay_ms=0)


@pytest.fixture
def disk():
    return MemoryFiles()


def produce(node, *values, producer=(-1, -1, -1)):
    return node.partition().append(produced_batch(*values, producer=producer), needs_all_replicas=False)


def content(log):
    """Return what a log has: (base offset, epoch, bytes) of each batch."""
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        records = log.read(offset, 1 << 20, log.log_end_offset)
        for position, header in iter_headers(records):
            data = bytes(records[position : position + header.size_in_bytes])
            found.append((header.base_offset, header.partition_leader_epoch, data))
            offset = header.next_offset
    return found


def folders(disk):
    """Return the folders of partition 0 in all log directories, without the uuid."""
    names = {path.parts[1:3] for path in disk.paths() if path.parts[2].startswith("t-0")}
    return sorted(f"{directory}/{name[:3]}{name[36:]}" for directory, name in names)


async def node_with_records(disk, count=20, config=SMALL):
    node = DiskNode(disk, config=config)
    await node.create(directories=(node.directories.ids[0],))
    for number in range(count):
        produce(node, b"%d" % number, producer=(7, 0, number))
    return node


async def moved(node, path="/b"):
    """Move partition 0 and wait until it is there."""
    await node.registry.move("t", 0, path)
    await until(lambda: node.home() == path and not node.partition().disk.locked())


def test_moved_replica_has_everything_and_goes_on(disk):
    async def run():
        node = await node_with_records(disk)
        await node.elect(1)
        produce(node, b"in the next epoch")
        node.log().advance_log_start_offset(3)
        before, entries, producers = content(node.log()), node.log().epoch_entries, node.log().active_producers()
        async with node.moving():
            await moved(node)
        log = node.log()
        assert content(log) == before
        assert (log.log_start_offset, log.epoch_entries, log.active_producers()) == (3, entries, producers)
        log.check_invariants()
        assert node.assigned[TOPIC_ID, 0] == node.directories.ids[1]
        assert folders(disk) == ["a/t-0-delete", "b/t-0"]
        assert [len(d) for d in node.directories.online] == [0, 1]
        assert produce(node, b"19", producer=(7, 0, 19)).is_duplicate
        assert produce(node, b"20", producer=(7, 0, 20)).first_offset == 21
        await node.partition().flush()
        node.log().roll(0)
        produce(node, b"21", producer=(7, 0, 21))
        await node.close()

        node = DiskNode(disk, config=SMALL)
        await node.create(directories=(node.directories.ids[1],))
        assert (node.home(), node.log().log_end_offset, node.log().log_start_offset) == ("/b", 23, 3)
        assert produce(node, b"21", producer=(7, 0, 21)).is_duplicate
        await node.close()

    asyncio.run(run())


def test_producers_whose_records_were_deleted_move_along(disk):
    async def run():
        node = await node_with_records(disk, count=1)
        for number in range(20):
            produce(node, b"other %d" % number)
        node.log().advance_log_start_offset(15)
        node.log().delete_expired(0, 15)
        assert node.log().active_producers()
        async with node.moving():
            await moved(node)
        assert produce(node, b"0", producer=(7, 0, 0)).is_duplicate
        await node.close()

    asyncio.run(run())


def test_records_that_come_during_the_move_are_not_lost(disk):
    async def run():
        node = await node_with_records(disk, count=200)
        appended = 200
        async with node.moving():
            await node.registry.move("t", 0, "/b")
            while node.home() == "/a":
                produce(node, b"%d" % appended, producer=(7, 0, appended))
                appended += 1
                # Who writes faster than the disk copies is never caught up with.
                await asyncio.sleep(0 if appended < 1_000 else 0.001)
        log = node.log()
        assert log.log_end_offset == appended > 201
        assert [base for base, _, _ in content(log)] == list(range(appended))
        log.check_invariants()
        await node.close()

    asyncio.run(run())


def test_copy_follows_a_truncation_of_the_original(disk, monkeypatch):
    monkeypatch.setattr("tidelog_node.partitions.directories.relocation._CHUNK_BYTES", 100)

    async def run():
        node = await node_with_records(disk, count=50)
        node.registry.relocations._chunk = 100
        async with node.moving():
            await node.registry.move("t", 0, "/b")
            move = node.registry.relocations.get(("t", 0))
            await until(lambda: move.copy is not None and move.copy.log_end_offset >= 10)
            node.log().truncate_to(5)
            for offset in range(5, 30):
                node.log().append_as_follower(replicated_batch(offset, 3, b"other %d" % offset))
            expected = content(node.log())
            await until(lambda: node.home() == "/b")
        assert content(node.log()) == expected
        node.log().check_invariants()
        await node.close()

    asyncio.run(run())


def test_copy_starts_over_when_the_original_does(disk):
    async def run():
        node = await node_with_records(disk, count=50)
        node.registry.relocations._chunk = 100
        async with node.moving():
            await node.registry.move("t", 0, "/b")
            move = node.registry.relocations.get(("t", 0))
            await until(lambda: move.copy is not None and move.copy.log_end_offset >= 10)
            node.log().truncate_fully_and_start_at(1_000)
            node.log().append_as_follower(replicated_batch(1_000, 3, b"new"))
            await until(lambda: node.home() == "/b")
        assert (node.log().log_start_offset, node.log().log_end_offset) == (1_000, 1_001)
        await node.close()

    asyncio.run(run())


def test_gaps_of_a_compacted_log_are_kept(disk):
    async def run():
        node = await node_with_records(disk, count=0)
        for offset in (0, 10, 11, 40):
            node.log().append_as_follower(replicated_batch(offset, 0, b"%d" % offset))
        async with node.moving():
            await moved(node)
        assert [base for base, _, _ in content(node.log())] == [0, 10, 11, 40]
        await node.close()

    asyncio.run(run())


def test_empty_log_moves(disk):
    async def run():
        node = await node_with_records(disk, count=0)
        node.log().truncate_fully_and_start_at(77)
        async with node.moving():
            await moved(node)
        assert (node.log().log_start_offset, node.log().log_end_offset) == (77, 77)
        await node.close()

    asyncio.run(run())


def test_move_is_throttled(disk):
    async def run():
        node = await node_with_records(disk, count=0)
        for _ in range(10):
            produce(node, b"x" * 200)
        node.registry.relocations._rate, node.registry.relocations._chunk = 20_000, 1_000
        started = asyncio.get_running_loop().time()
        async with node.moving():
            await moved(node)
        assert asyncio.get_running_loop().time() - started > 0.8 * node.log().size_in_bytes / 20_000
        await node.close()

    asyncio.run(run())


def test_move_takes_another_limit_over_while_it_waits(disk):
    async def run():
        node = await node_with_records(disk)
        node.registry.relocations.change_rate(1)
        async with node.moving():
            await node.registry.move("t", 0, "/b")
            move = node.registry.relocations.get(("t", 0))
            await until(lambda: move.copy is not None and move.copy.log_end_offset)
            await asyncio.sleep(0.05)
            assert node.registry.relocations.get(("t", 0)) is move
            node.registry.relocations.change_rate(math.inf)
            await until(lambda: node.registry.relocations.get(("t", 0)) is None)
        await node.close()

    asyncio.run(run())


def test_move_back_to_where_the_replica_is_ends_the_move_and_removes_the_copy(disk):
    async def run():
        node = await node_with_records(disk)
        node.registry.relocations._rate = 100
        async with node.moving():
            await node.registry.move("t", 0, "/b")
            move = node.registry.relocations.get(("t", 0))
            await until(lambda: move.copy is not None and move.copy.log_end_offset)
            described = {d.path: d.replicas for d in await node.registry.describe_log_dirs()}
            assert [(r.topic, r.is_future) for r in described[Path("/a")]] == [("t", False)]
            [future] = described[Path("/b")]
            assert future.is_future
            assert future.offset_lag == 20 - move.copy.log_end_offset
            await node.registry.move("t", 0, "/b")
            assert node.registry.relocations.get(("t", 0)) is move
            await node.registry.move("t", 0, "/a")
            assert node.registry.relocations.get(("t", 0)) is None
        assert (node.home(), folders(disk)) == ("/a", ["a/t-0"])
        await node.close()

    asyncio.run(run())


def test_move_of_a_deleted_topic_ends_and_leaves_nothing(disk):
    async def run():
        node = await node_with_records(disk)
        node.registry.relocations._rate = 100
        async with node.moving():
            await node.registry.move("t", 0, "/b")
            move = node.registry.relocations.get(("t", 0))
            await until(lambda: move.copy is not None)
            await node.change(RemoveTopicRecord(TOPIC_ID))
        assert folders(disk) == ["a/t-0-delete"]
        await node.close()

    asyncio.run(run())


def test_move_is_refused_to_where_it_cannot_go(disk):
    async def run():
        node = await node_with_records(disk)
        for topic, path, code in (
            ("t", "/c", ErrorCode.LOG_DIR_NOT_FOUND),
            ("u", "/b", ErrorCode.REPLICA_NOT_AVAILABLE),
        ):
            with pytest.raises(TidelogError) as caught:
                await node.registry.move(topic, 0, path)
            assert caught.value.code is code
        node.registry.fail_directory(Path("/b"), TidelogError(ErrorCode.KAFKA_STORAGE_ERROR, "gone"))
        with pytest.raises(TidelogError, match="/b is offline: gone"):
            await node.registry.move("t", 0, "/b")
        [_, offline] = await node.registry.describe_log_dirs()
        assert (offline.path, offline.error.message) == (Path("/b"), "gone")
        await node.close()

    asyncio.run(run())


def test_replica_that_is_not_there_yet_is_created_where_it_was_told_to_go(disk):
    async def run():
        node = DiskNode(disk)
        with pytest.raises(TidelogError):
            await node.registry.move("t", 0, "/b")
        await node.create()
        assert node.home() == "/b"
        await node.close()

    asyncio.run(run())


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_disk_that_refuses_the_copy_ends_the_move_and_leaves_the_replica_where_it_is(disk, number):
    async def run():
        node = await node_with_records(disk, count=50)
        node.registry.relocations._chunk = 200
        async with node.moving():
            await node.registry.move("t", 0, "/b")
            move = node.registry.relocations.get(("t", 0))
            await until(lambda: move.copy is not None and move.copy.log_end_offset >= 5)
            disk.fail = lambda operation, path: number if path.parts[1] == "b" and "write" in operation else None
            await until(lambda: node.registry.relocations.get(("t", 0)) is None)
        disk.fail = lambda operation, path: None
        assert node.home() == "/a"
        assert (Path("/b") in node.directories.failures) == (number == errno.EIO)
        assert produce(node, b"goes on").first_offset == 50
        assert folders(disk) == (["a/t-0", "b/t-0-future"] if number == errno.EIO else ["a/t-0"])
        await node.close()

    asyncio.run(run())


def test_original_whose_disk_fails_during_the_move_takes_the_replica_offline(disk):
    async def run():
        node = await node_with_records(disk, count=50)
        node.registry.relocations._rate = 100
        async with node.moving():
            await node.registry.move("t", 0, "/b")
            move = node.registry.relocations.get(("t", 0))
            await until(lambda: move.copy is not None and move.copy.log_end_offset)
            node.registry.fail_directory(Path("/a"), TidelogError(ErrorCode.KAFKA_STORAGE_ERROR, "gone"))
            await until(lambda: node.registry.relocations.get(("t", 0)) is None)
        assert node.registry.get("t", 0) is None
        assert folders(disk) == ["a/t-0", "b/t-0-future"], "the next start resumes"
        await node.close()

    asyncio.run(run())


def test_stop_during_a_move_is_clean_and_the_next_start_resumes(disk):
    async def run():
        node = await node_with_records(disk, count=50)
        node.registry.relocations._rate = 500
        node.registry.relocations._chunk = 100
        async with node.moving():
            await node.registry.move("t", 0, "/b")
            move = node.registry.relocations.get(("t", 0))
            await until(lambda: move.copy is not None and move.copy.log_end_offset >= 2)
        copied = move.copy.log_end_offset
        await node.close()

        node = DiskNode(disk, config=SMALL)
        assert node.directories.previous_broker_epoch == 5
        await node.create(directories=(node.directories.ids[0],))
        produce(node, b"later")
        await node.registry.discard_unknown()
        resumed = node.registry.relocations.get(("t", 0))
        assert resumed is not None
        async with node.moving():
            await until(lambda: node.home() == "/b")
        assert resumed.copy.log_end_offset == 51
        assert 0 < copied < 50
        assert [base for base, _, _ in content(node.log())] == list(range(51))
        await node.close()

    asyncio.run(run())


def test_copies_whose_replica_is_elsewhere_or_nowhere_are_removed_or_become_stray(disk):
    async def run():
        node = await node_with_records(disk)
        await node.close()
        for name in ("a/t-0", "b/u-0"):
            disk.write_bytes(Path(f"/{name}.{'0' * 32}-future/00000000000000000000.log"), b"")
        node = DiskNode(disk, config=SMALL)
        await node.create(directories=(node.directories.ids[0],))
        await node.registry.discard_unknown()
        assert folders(disk) == ["a/t-0"]
        assert [p.parts[2][-6:] for p in disk.paths() if p.parts[2].startswith("u-0")] == ["-stray"]
        await node.close()

    asyncio.run(run())


class Moving:
    """A node with six flushed records, in a loop of its own, whose replica moves while it is written to."""

    def __init__(self, disk):
        self.loop = asyncio.new_event_loop()
        self.node = self.loop.run_until_complete(node_with_records(disk, count=6))
        self.loop.run_until_complete(self.node.partition().flush())
        self.acknowledged = 6

    def move(self):
        try:
            self.loop.run_until_complete(self._move())
        finally:
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    async def _move(self):
        await self.node.registry.move("t", 0, "/b")
        relocations = asyncio.create_task(self.node.registry.relocations.run(), name="relocations")
        try:
            while not relocations.done() and (self.node.home() == "/a" or self.node.partition().disk.locked()):
                if self.acknowledged < 20:
                    self._produce()
                await asyncio.sleep(0.0002)
            if relocations.done():
                relocations.result()
            self._produce()
        finally:
            relocations.cancel()
            await asyncio.gather(relocations, return_exceptions=True)

    def _produce(self):
        produce(self.node, b"%d" % self.acknowledged, producer=(7, 0, self.acknowledged))
        self.acknowledged += 1


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [0, 1], ids=["the process is killed", "the machine crashes"])
def test_crash_at_any_step_leaves_one_replica_with_all_that_it_must_have(seeds):
    def verify(disk, moving, is_done):
        async def run():
            node = DiskNode(disk, config=SMALL)
            [home] = [d for d in node.directories.online if ("t", 0) in d]
            await node.create(directories=(home.id,))
            end_offset = node.log().log_end_offset
            assert end_offset >= (6 if seeds else moving.acknowledged)
            assert [base for base, _, _ in content(node.log())] == list(range(end_offset))
            await node.registry.discard_unknown()
            async with node.moving():
                if node.home() != "/b":
                    await moved(node)
            node.log().check_invariants()
            assert [base for base, _, _ in content(node.log())] == list(range(end_offset))
            assert produce(node, b"again", producer=(7, 0, end_offset - 1)).is_duplicate
            assert produce(node, b"next", producer=(7, 0, end_offset)).first_offset == end_offset
            await node.close()
            assert [name for name in folders(disk) if not name.endswith("-delete")] == ["b/t-0"]

        asyncio.run(run())

    assert crash_at_every_step(Moving, lambda _, moving: moving.move(), verify, seeds=seeds) > 50


def test_killed_process_loses_nothing_that_was_appended_after_the_move(disk):
    async def run():
        node = await node_with_records(disk)
        async with node.moving():
            await moved(node)
        produce(node, b"after", producer=(7, 0, 20))
        disk.kill()
        node = DiskNode(disk, config=SMALL)
        await node.create(directories=(node.directories.ids[1],))
        assert (node.home(), node.log().log_end_offset) == ("/b", 21)
        assert node.log().active_producers()
        await node.elect(BrokerId(2))
        await node.close()

    asyncio.run(run())

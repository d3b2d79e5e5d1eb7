"""Many replicas created at once: their logs are open before their folders are there, and nothing is lost by that."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import threading
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from disk_node import TOPIC_ID, DiskNode, until
from log_batches import produced_batch
from memory_disk import MemoryFiles

from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import LOST_DIRECTORY, BrokerId, TopicId
from tidelog_node.hosting.commands import OpenLog
from tidelog_node.log import LogDirectory, PartitionLog
from tidelog_node.partitions import Partition
from tidelog_node.partitions.directories import replica_logs
from tidelog_node.partitions.directories.folder_creation import create_folders
from tidelog_node.server import log_service
from tidelog_quorum.metadata.records import PartitionRecord, RemoveTopicRecord, TopicRecord

MANY = 100
_GROUP = 5
ONE, TWO = BrokerId(1), BrokerId(2)


@pytest.fixture
def disk() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog_node.partitions.directories.folder_creation._DELAY_S", 0.0)
    monkeypatch.setattr("tidelog_node.partitions.registry._RETRY_S", 0.01)


@contextlib.asynccontextmanager
async def running(node: DiskNode) -> AsyncIterator[None]:
    jobs = (node.registry.folder_creation.run(), node.registry.retry_full())
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            assert task.cancelled(), task.exception()


def healthy(operation: str, path: Path) -> None:
    return None


def partitions(node: DiskNode) -> list[Partition]:
    return list(node.registry)


def folders(disk: MemoryFiles) -> set[Path]:
    return {path.parent for path in disk.paths() if path.parent.name.startswith("t-")}


def append(partition: Partition) -> None:
    partition.append(produced_batch(b"a"), needs_all_replicas=False)


def test_new_replicas_are_spread_over_the_log_directories(disk: MemoryFiles) -> None:
    async def run() -> None:
        node = DiskNode(disk)
        await node.create(MANY)
        homes = Counter(str(p.log.directory.parent) for p in node.registry)
        assert homes == {"/a": MANY // 2, "/b": MANY // 2}
        await node.close()

    asyncio.run(run())


def test_log_that_a_thread_creates_while_others_are_placed_counts_once(
    disk: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second thread stops after its first log until two more groups of logs are placed."""
    create, calls = replica_logs._create_logs, itertools.count()
    begun = [threading.Event() for _ in range(MANY // _GROUP)]

    def in_turns(places: Sequence[tuple[OpenLog, LogDirectory]]) -> list[tuple[OpenLog, LogDirectory, PartitionLog]]:
        call = next(calls)
        begun[call].set()
        created = create(places[:1])
        if call % 2 == 0 and call + 2 < len(begun):
            assert begun[call + 2].wait(10)
        return created + create(places[1:])

    async def run() -> None:
        node = DiskNode(disk)
        await node.create(MANY)
        homes = Counter(str(p.log.directory.parent) for p in node.registry)
        assert homes == {"/a": MANY // 2, "/b": MANY // 2}
        await node.close()

    monkeypatch.setattr(replica_logs, "_LOGS_PER_CALL", _GROUP)
    monkeypatch.setattr(replica_logs, "_THREADS", 2)
    monkeypatch.setattr(replica_logs, "_create_logs", in_turns)
    asyncio.run(run())


@pytest.mark.parametrize("reason", [errno.EMFILE, errno.ENOSPC])
def test_folders_that_cannot_be_made_for_a_while_fail_no_directory(disk: MemoryFiles, reason: int) -> None:
    def refuse(operation: str, path: Path) -> int | None:
        return reason if path.name.startswith("t-") and operation == "mkdir" else None

    async def run() -> None:
        node = DiskNode(disk)
        await node.create(MANY)
        async with running(node):
            disk.fail = refuse
            await until(lambda: not partitions(node))
            assert node.directories.failures == {}
            assert node.assigned == {(TOPIC_ID, i): LOST_DIRECTORY for i in range(MANY)}
            disk.fail = healthy
            await until(lambda: len(partitions(node)) == MANY)
        assert all(p.log.has_folder for p in node.registry)
        await node.close()

    asyncio.run(run())


def test_disk_that_fails_while_folders_are_made_takes_its_directory_offline(disk: MemoryFiles) -> None:
    async def run() -> None:
        node = DiskNode(disk)
        await node.create(MANY)
        async with running(node):
            disk.fail = lambda operation, path: errno.EIO if path.is_relative_to("/a") else None
            await until(lambda: node.directories.failures)
            await until(lambda: all(p.log.has_folder for p in node.registry))
        assert {p.log.directory.parent for p in node.registry} == {Path("/b")}
        assert len(partitions(node)) == MANY // 2
        disk.fail = healthy
        await node.close()

    asyncio.run(run())


def test_folders_are_made_beside_the_event_loop_before_the_first_records(disk: MemoryFiles) -> None:
    async def run() -> None:
        node = DiskNode(disk)
        await node.create(MANY)
        loop_thread = threading.get_ident()
        on_loop: list[tuple[str, Path]] = []

        def watch(operation: str, path: Path) -> None:
            if operation in ("mkdir", "fsync", "fsync_directory") and threading.get_ident() == loop_thread:
                on_loop.append((operation, path))

        disk.fail = watch
        await create_folders(node.registry)
        for partition in node.registry:
            append(partition)
        assert on_loop == []
        await node.close()

    asyncio.run(run())


def test_produced_and_replicated_records_wait_for_their_folders_beside_the_event_loop(
    cluster_of, monkeypatch, make_batch
):
    loop_thread = threading.get_ident()
    founded_in = []
    complete = PartitionLog.create_folder

    def watched(log):
        founded_in.append(threading.get_ident())
        complete(log)

    monkeypatch.setattr(PartitionLog, "create_folder", watched)

    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2), partitions=MANY)
            topics = [pb.ProduceTopic(name="t", partitions=[produced(i) for i in range(MANY)])]
            request = pb.ProduceRequest(acks=pb.ACKS_ALL, timeout_ms=5_000, topics=topics)
            response = await log_service.produce(cluster.nodes[1].context, request)
            assert not any(p.HasField("error") for p in response.topics[0].partitions)
            assert all(cluster.partition(2, i).log.log_end_offset == 1 for i in range(MANY))
        assert len(founded_in) == 2 * MANY
        assert loop_thread not in founded_in

    def produced(index):
        return pb.ProducePartition(index=index, records=make_batch(b"a"))

    asyncio.run(run())


def test_topic_deleted_and_created_again_before_its_folders_are_there(disk: MemoryFiles) -> None:
    async def run() -> None:
        other = TopicId(b"fedcba9876543210")
        node = DiskNode(disk)
        await node.create(MANY)
        first = partitions(node)
        created = [PartitionRecord(other, i, (ONE,), (ONE,), ONE) for i in range(MANY)]
        await node.change(RemoveTopicRecord(TOPIC_ID), TopicRecord("t", other), *created)
        async with running(node):
            await until(lambda: all(p.log.has_folder for p in node.registry))
        assert all(p.log.failure is None for p in first)
        assert {p.topic_id for p in node.registry} == {other}
        assert len(folders(disk)) == MANY
        for partition in node.registry:
            append(partition)
        await node.close()
        again = DiskNode(disk)
        await again.change(*[*node.image.to_records()])
        assert [p.log.log_end_offset for p in again.registry] == [1] * MANY
        await again.close()

    asyncio.run(run())


def test_replica_without_a_folder_moves_to_another_directory(disk: MemoryFiles) -> None:
    async def run() -> None:
        node = DiskNode(disk)
        await node.create(MANY)
        partition = node.partition()
        target = "/b" if node.home() == "/a" else "/a"
        async with node.moving():
            await node.registry.move("t", 0, target)
            await until(lambda: Path(target) / "t-0" in folders(disk))
        assert node.home() == target
        async with running(node):
            await until(lambda: all(p.log.has_folder for p in node.registry))
        append(partition)
        assert [path for path in folders(disk) if path.name == "t-0"] == [Path(target) / "t-0"]
        await node.close()

    asyncio.run(run())


def test_stop_before_the_folders_are_there_is_clean_and_loses_nothing(disk: MemoryFiles) -> None:
    async def run() -> None:
        node = DiskNode(disk)
        await node.create(MANY)
        append(node.partition(3))
        await node.close()
        assert {path.name for path in folders(disk)} == {"t-3"}
        again = DiskNode(disk)
        assert again.directories.previous_broker_epoch == 5
        await again.change(*node.image.to_records())
        assert {p.index: p.log.log_end_offset for p in again.registry} == {i: int(i == 3) for i in range(MANY)}
        await again.close()

    asyncio.run(run())


def test_replicas_of_a_directory_that_is_empty_go_where_they_are_assigned(disk: MemoryFiles) -> None:
    async def run() -> None:
        node = DiskNode(disk)
        target = node.directories.find("/b")
        await node.create(MANY, directories=(target.id,))
        assert {node.home(i) for i in range(MANY)} == {"/b"}
        await node.close()

    asyncio.run(run())


def test_follower_that_cannot_begin_elsewhere_on_a_full_disk_is_offline_until_it_can(disk: MemoryFiles) -> None:
    async def run() -> None:
        node = DiskNode(disk)
        await node.create(MANY, replicas=(TWO, ONE))
        partition = node.partition()
        disk.fail = lambda operation, path: errno.ENOSPC if operation == "mkdir" else None
        with pytest.raises(TidelogError):
            await partition.restart_out_of_range(partition.state.leader_epoch, 0, 7)
        assert node.registry.get("t", 0) is None
        disk.fail = healthy
        async with running(node):
            await until(lambda: node.registry.get("t", 0))
        assert (node.partition().high_watermark, node.log().log_end_offset) == (0, 0)
        await node.close()

    asyncio.run(run())

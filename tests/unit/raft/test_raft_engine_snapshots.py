"""Engines that shorten their logs: by size, by age, on demand, and by a snapshot that the leader sends."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_quorum.raft.core.config import RaftConfig, SnapshotConfig
from tidelog_quorum.raft.storage.stored_log import read_stored_log

FAST = RaftConfig(election_timeout_ms=500, heartbeat_interval_ms=50, max_trailing_entries=5)
NEVER = SnapshotConfig(max_bytes_between=2**40, max_interval_ms=0)
Engines = Callable[..., Any]
WaitUntil = Callable[..., Any]


async def commit(process: Any, start: int, end: int, size: int = 0) -> list[bytes]:
    """Propose and wait until all is committed."""
    payloads = [b"%06d" % i + bytes(size) for i in range(start, end)]
    for payload in payloads:
        index = process.engine.propose(payload, process.engine.leader.epoch)
    async with asyncio.timeout(15):
        while process.listener.last_index < index:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    return payloads


def snapshot_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.checkpoint*"))


def test_engine_takes_a_snapshot_on_demand_and_starts_from_it(new_engines: Engines, wait_until: WaitUntil) -> None:
    async def run() -> None:
        async with new_engines(1, FAST, snapshots=NEVER) as cluster:
            process = await cluster.settled_leader()
            payloads = await commit(process, 0, 100)
            last = await process.engine.read_barrier()
            taken = await process.engine.take_snapshot()
            assert taken == (last, last - 4)
            assert await process.engine.take_snapshot() == taken
            description = process.engine.describe()
            assert (description.snapshot_offset, description.log_start_offset) == taken
            payloads += await commit(process, 100, 110)
            await process.engine.read_barrier()
            await cluster.stop(1)
            again = await cluster.start(1)
            await wait_until(lambda: again.listener.payloads == payloads)
            assert again.listener.restored == [(last, process.engine.leader.epoch)]
            assert again.listener.entries[0].index == last + 1
            assert len(snapshot_files(cluster.root / "1")) == 1

    asyncio.run(run())


def test_engine_refuses_a_snapshot_while_nothing_is_committed(new_engines: Engines) -> None:
    async def run() -> None:
        cluster = new_engines(2, FAST)
        try:
            alone = await cluster.start(1)
            with pytest.raises(TidelogError, match="nothing is committed yet") as refused:
                await alone.engine.take_snapshot()
            assert refused.value.code is ErrorCode.SNAPSHOT_NOT_FOUND
        finally:
            await cluster.__aexit__()

    asyncio.run(run())


def test_engine_takes_snapshots_as_the_log_grows(new_engines: Engines, wait_until: WaitUntil) -> None:
    async def run() -> None:
        policy = SnapshotConfig(max_bytes_between=20_000, max_interval_ms=0)
        async with new_engines(3, FAST, snapshots=policy) as cluster:
            leader = await cluster.settled_leader()
            for start in range(0, 200, 10):
                await commit(leader, start, start + 10, size=1_000)
                await leader.engine.read_barrier()
            for node_id, process in cluster.running.items():
                await wait_until(lambda p=process: len(p.listener.payloads) == 200)
                await wait_until(lambda i=node_id: len(snapshot_files(cluster.root / str(i))) == 1)
            assert leader.engine.describe().snapshot_offset > 100
            assert leader.engine.describe().log_start_offset > 100
            leader_id = leader.engine.leader.leader_id
        identity, stored = read_stored_log(cluster.root / str(leader_id))
        assert identity.node_id == leader_id
        assert stored.snapshot is not None
        assert len(stored.entries) < 100

    asyncio.run(run())


def test_engine_takes_a_snapshot_when_the_last_one_is_old(new_engines: Engines, wait_until: WaitUntil) -> None:
    async def run() -> None:
        policy = SnapshotConfig(max_bytes_between=2**40, max_interval_ms=100)
        async with new_engines(1, FAST, snapshots=policy) as cluster:
            process = await cluster.settled_leader()
            await commit(process, 0, 3)
            last = await process.engine.read_barrier()
            await wait_until(lambda: process.engine.describe().snapshot_offset == last)
            # The one before is removed later.
            await wait_until(lambda: len(snapshot_files(cluster.root / "1")) == 1)
            before = snapshot_files(cluster.root / "1")
            await asyncio.sleep(0.3)
            assert snapshot_files(cluster.root / "1") == before, "nothing was committed since"

    asyncio.run(run())


def test_follower_that_is_far_behind_is_sent_a_snapshot_in_chunks(new_engines: Engines, wait_until: WaitUntil) -> None:
    async def run() -> None:
        policy = SnapshotConfig(max_bytes_between=2**40, max_interval_ms=0, chunk_bytes=1_000)
        # Few entries at a time are on their way to a follower that has gone.
        config = replace(FAST, max_append_bytes=1_000, max_inflight_appends=1)
        async with new_engines(3, config, snapshots=policy) as cluster:
            leader = await cluster.settled_leader()
            behind = next(i for i, p in cluster.running.items() if p is not leader)
            await leader.engine.read_barrier()
            await cluster.stop(behind)
            payloads = await commit(leader, 0, 100, size=300)
            last = await leader.engine.read_barrier()
            await leader.engine.take_snapshot()
            again = await cluster.start(behind)
            await wait_until(lambda: again.listener.payloads == payloads)
            assert again.listener.restored == [(last, leader.engine.leader.epoch)]
            payloads += await commit(leader, 100, 110)
            await wait_until(lambda: again.listener.payloads == payloads)
            await cluster.stop(behind)
            third = await cluster.start(behind)
            await wait_until(lambda: third.listener.payloads == payloads)

    asyncio.run(run())


def test_engine_holds_commits_and_reads_back_while_a_snapshot_is_restored(
    new_engines: Engines, wait_until: WaitUntil
) -> None:
    async def run() -> None:
        async with new_engines(1, FAST, snapshots=NEVER) as cluster:
            process = await cluster.settled_leader()
            payloads = await commit(process, 0, 20)
            await process.engine.read_barrier()
            await process.engine.take_snapshot()
            await cluster.stop(1)
            released = threading.Event()

            def prepare(listener: Any) -> None:
                read_snapshot = listener.read_snapshot

                def read_slowly(*arguments: Any) -> Any:
                    assert released.wait(10)
                    return read_snapshot(*arguments)

                listener.read_snapshot = read_slowly

            again = await cluster.start(1, prepare=prepare)
            await cluster.leader()
            read = asyncio.create_task(again.engine.read_barrier())
            again.engine.propose(b"000020", again.engine.leader.epoch)
            payloads.append(b"000020")
            await asyncio.sleep(0.1)
            assert again.listener.payloads == []
            assert not read.done()
            released.set()
            await read
            await wait_until(lambda: again.listener.payloads == payloads)

    asyncio.run(run())


def test_log_goes_on_while_a_snapshot_is_written(new_engines: Engines, wait_until: WaitUntil) -> None:
    async def run() -> None:
        async with new_engines(1, FAST, snapshots=NEVER) as cluster:
            process = await cluster.settled_leader()
            await commit(process, 0, 10)
            await process.engine.read_barrier()
            released = threading.Event()
            capture = process.listener.capture

            def capture_slowly() -> Iterable[bytes]:
                chunks = iter(list(capture()))

                def slow() -> Iterator[bytes]:
                    yield next(chunks)
                    assert released.wait(10)
                    yield from chunks

                return slow()

            process.listener.capture = capture_slowly
            snapshot = asyncio.create_task(process.engine.take_snapshot())
            await asyncio.sleep(0.05)
            await commit(process, 10, 20)
            assert not snapshot.done()
            released.set()
            await snapshot

    asyncio.run(run())


@pytest.mark.parametrize(("error", "text"), [(errno.ENOSPC, "the disk is full"), (errno.EIO, "Input/output error")])
def test_engine_falls_silent_when_the_disk_cannot_take_a_snapshot(
    new_engines: Engines, monkeypatch: pytest.MonkeyPatch, error: int, text: str
) -> None:
    def fail(*_arguments: object) -> int:
        raise OSError(error, os.strerror(error))

    async def run() -> None:
        async with new_engines(1, FAST, snapshots=NEVER) as cluster:
            process = await cluster.settled_leader()
            await commit(process, 0, 10)
            await process.engine.read_barrier()
            monkeypatch.setattr(os, "pwrite", fail)
            with pytest.raises(TidelogError, match=rf"cannot write .*checkpoint.*{text}") as refused:
                await process.engine.take_snapshot()
            assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            with pytest.raises(TidelogError, match=rf"cannot write .*checkpoint.*{text}"):
                await asyncio.wait_for(process.engine.wait_failed(), 10)
            with pytest.raises(TidelogError, match="KAFKA_STORAGE_ERROR"):
                process.engine.propose(b"x", 1)
            assert not process.engine.leader.is_self

    asyncio.run(run())


def test_leader_falls_silent_when_the_snapshot_that_it_sends_was_cut_short(new_engines: Engines) -> None:
    async def run() -> None:
        config = replace(FAST, max_append_bytes=1_000, max_inflight_appends=1)
        async with new_engines(3, config, snapshots=replace(NEVER, chunk_bytes=1_000)) as cluster:
            leader = await cluster.settled_leader()
            behind = next(i for i, p in cluster.running.items() if p is not leader)
            await cluster.stop(behind)
            await commit(leader, 0, 100, size=300)
            await leader.engine.take_snapshot()
            [path] = snapshot_files(cluster.root / str(leader.engine.leader.leader_id))
            os.truncate(path, 2_500)
            await cluster.start(behind)
            with pytest.raises(TidelogError, match=r"was cut short: it ends before 2500 of \d+ bytes") as failed:
                await asyncio.wait_for(leader.engine.wait_failed(), 10)
            assert failed.value.code is ErrorCode.KAFKA_STORAGE_ERROR

    asyncio.run(run())


def test_engine_refuses_to_start_without_the_snapshot_that_its_log_names(new_engines: Engines) -> None:
    async def run() -> None:
        async with new_engines(1, FAST, snapshots=NEVER) as cluster:
            process = await cluster.settled_leader()
            await process.engine.read_barrier()
            await process.engine.take_snapshot()
            await cluster.stop(1)
            [path] = snapshot_files(cluster.root / "1")
            path.unlink()
            with pytest.raises(TidelogError, match=f"{path} is missing") as refused:
                await cluster.start(1)
            assert refused.value.code is ErrorCode.CORRUPT_MESSAGE

    asyncio.run(run())

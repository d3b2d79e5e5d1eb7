"""The engine over real gRPC and RocksDB, three voters in one process."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_quorum.raft.core.config import RaftConfig
from tidelog_quorum.raft.protocol import CommittedEntry

FAST = RaftConfig(election_timeout_ms=500, heartbeat_interval_ms=50)
Engines = Callable[..., Any]
WaitUntil = Callable[..., Any]


def test_engine_of_one_voter_leads_at_once_and_replays_its_log_after_a_restart(
    new_engines: Engines, wait_until: WaitUntil
) -> None:
    async def run() -> None:
        async with new_engines(1) as cluster:
            process = await cluster.settled_leader()
            epoch = process.engine.leader.epoch
            indexes = [process.engine.propose(b"%d" % i, epoch) for i in range(10)]
            assert indexes == list(range(indexes[0], indexes[0] + 10))
            await wait_until(lambda: len(process.listener.payloads) == 10)
            last = await process.engine.read_barrier()
            assert last == indexes[-1]
            await cluster.stop(1)
            again = await cluster.start(1)
            await wait_until(lambda: len(again.listener.entries) == last + 1)
            assert again.listener.entries[:last] == process.listener.entries
            assert again.engine.leader.epoch == epoch + 1

    asyncio.run(run())


def test_engine_elects_a_leader_within_a_second_when_three_fresh_voters_start(new_engines: Engines) -> None:
    async def run() -> float:
        async with new_engines(3) as cluster:
            started = time.monotonic()
            await cluster.leader()
            return time.monotonic() - started

    assert asyncio.run(run()) < 1.0


def test_engines_agree_after_the_leader_was_stopped_and_restarted(new_engines: Engines, wait_until: WaitUntil) -> None:
    async def run() -> None:
        async with new_engines(3, FAST) as cluster:
            first = await cluster.leader()
            await propose_all(first, range(500))
            first_id, epoch = first.engine.leader.leader_id, first.engine.leader.epoch
            await wait_until(lambda: len(first.listener.payloads) == 500)
            await cluster.stop(first_id)
            second = await cluster.leader()
            assert second.engine.leader.epoch > epoch
            await propose_all(second, range(500, 1000))
            await wait_until(lambda: len(second.listener.payloads) == 1000)
            await cluster.start(first_id)
            listeners = [p.listener for p in cluster.running.values()]
            await wait_until(lambda: all(len(x.payloads) == 1000 for x in listeners))
            assert listeners[0].payloads == [b"%d" % i for i in range(1000)]
            await wait_until(lambda: listeners[0].entries == listeners[1].entries == listeners[2].entries)
            assert await second.engine.read_barrier() == len(second.listener.entries)

    asyncio.run(run())


def test_engine_refuses_proposals_and_reads_when_it_follows(new_engines: Engines) -> None:
    async def run() -> None:
        async with new_engines(3, FAST) as cluster:
            leader = await cluster.leader()
            follower = next(p for p in cluster.running.values() if p is not leader)
            with pytest.raises(TidelogError, match="does not lead the quorum in epoch") as refused:
                follower.engine.propose(b"x", leader.engine.leader.epoch)
            assert refused.value.code is ErrorCode.NOT_CONTROLLER
            with pytest.raises(TidelogError, match="NOT_CONTROLLER"):
                await follower.engine.read_barrier()
            with pytest.raises(TidelogError, match="NOT_CONTROLLER"):
                leader.engine.propose(b"x", leader.engine.leader.epoch - 1)

    asyncio.run(run())


def test_engine_steps_down_and_commits_nothing_when_its_peers_are_gone(
    new_engines: Engines, wait_until: WaitUntil
) -> None:
    async def run() -> None:
        async with new_engines(3, FAST) as cluster:
            leader = await cluster.settled_leader()
            epoch = leader.engine.leader.epoch
            await leader.engine.read_barrier()
            for node_id in [i for i, p in cluster.running.items() if p is not leader]:
                await cluster.stop(node_id)
            before = len(leader.listener.entries)
            leader.engine.propose(b"alone", epoch)
            with pytest.raises(TidelogError, match="NOT_CONTROLLER"):
                await leader.engine.read_barrier()
            assert not leader.engine.leader.is_self
            assert len(leader.listener.entries) == before

    asyncio.run(run())


def test_engine_is_refused_by_voters_of_another_cluster(
    new_engines: Engines, wait_until: WaitUntil, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        cluster = new_engines(2, FAST)
        try:
            stranger = await cluster.start(1, cluster_id="another")
            await cluster.start(2)
            await wait_until(lambda: "INCONSISTENT_CLUSTER_ID" in caplog.text)
            assert stranger.engine.leader.leader_id is None
        finally:
            await cluster.__aexit__()

    asyncio.run(run())


def test_engine_falls_silent_when_the_disk_is_full(new_engines: Engines, wait_until: WaitUntil) -> None:
    async def run() -> None:
        async with new_engines(1) as cluster:
            process = await cluster.settled_leader()
            epoch = process.engine.leader.epoch
            await process.engine.read_barrier()
            committed = len(process.listener.entries)
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
            try:
                process.engine.propose(b"x" * 200_000, epoch)
                with pytest.raises(TidelogError, match="cannot write to the metadata log") as failed:
                    await asyncio.wait_for(process.engine.wait_failed(), 10)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            assert failed.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert len(process.listener.entries) == committed
            assert process.listener.leaders[-1].leader_id is None
            with pytest.raises(TidelogError, match="KAFKA_STORAGE_ERROR"):
                process.engine.propose(b"y", epoch)
            with pytest.raises(TidelogError, match="KAFKA_STORAGE_ERROR"):
                await process.engine.read_barrier()

    asyncio.run(run())


def test_engine_falls_silent_when_its_listener_raises(new_engines: Engines) -> None:
    async def run() -> None:
        async with new_engines(1) as cluster:
            process = await cluster.settled_leader()
            await process.engine.read_barrier()

            def refuse(_entries: Sequence[CommittedEntry]) -> None:
                raise KeyError("no such broker")

            process.listener.on_commit = refuse
            process.engine.propose(b"x", process.engine.leader.epoch)
            with pytest.raises(TidelogError, match="error id"):
                await asyncio.wait_for(process.engine.wait_failed(), 10)
            assert not process.engine.leader.is_self

    asyncio.run(run())


async def propose_all(process: Any, numbers: range) -> None:
    """Propose in bursts, as requests come in: some share a turn of the loop, some do not."""
    epoch = process.engine.leader.epoch
    for number in numbers:
        process.engine.propose(b"%d" % number, epoch)
        if number % 7 == 0:
            await asyncio.sleep(0)

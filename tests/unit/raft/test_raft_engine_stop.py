"""Stops of an engine in the middle of what takes long, and what its callers then hear."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_quorum.raft.protocol import LeaderAndEpoch

Engines = Callable[..., Any]
WaitUntil = Callable[..., Any]


def test_engine_stops_while_a_snapshot_is_being_written(new_engines: Engines) -> None:
    async def run() -> None:
        async with new_engines(1) as cluster:
            leader = await cluster.settled_leader()
            is_writing, go_on = threading.Event(), threading.Event()

            def capture() -> Iterable[bytes]:
                yield b"begin"
                is_writing.set()
                assert go_on.wait(10)
                yield b"end"

            leader.listener.capture = capture
            taking = asyncio.create_task(leader.engine.take_snapshot())
            await asyncio.to_thread(is_writing.wait, 10)
            asyncio.get_running_loop().call_later(0.05, go_on.set)
            await cluster.stop(1)
            with pytest.raises(TidelogError) as caught:
                await taking
            assert caught.value.code is ErrorCode.NOT_CONTROLLER
            assert list(cluster.root.glob("1/*.checkpoint*")) == []
            # The folder is released, and what it holds is whole.
            await cluster.start(1)
            await cluster.settled_leader()

    asyncio.run(run())


def test_engine_ends_all_its_tasks_when_it_stops_while_others_are_connected(
    new_engines: Engines, wait_until: WaitUntil
) -> None:
    unraisable: list[dict[str, Any]] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unraisable.append(context))
        async with new_engines(1, others=1) as cluster:
            leader = await cluster.settled_leader()
            await cluster.start(2, bootstrap=[cluster.addresses[1]])
            await wait_until(lambda: cluster.running[2].listener.last_index >= leader.listener.last_index)
            await leader.engine.stop()
            mine = [t.get_name() for t in asyncio.all_tasks() if t.get_name() == "raft-peer-2"]
            assert mine == []

    asyncio.run(run())
    assert unraisable == []


def test_engine_tells_the_listener_that_it_leads_no_more_when_it_stops(new_engines: Engines) -> None:
    async def run() -> None:
        async with new_engines(1) as cluster:
            leader = await cluster.settled_leader()
            epoch = leader.engine.leader.epoch
            await cluster.stop(1)
            assert leader.listener.leaders[-1] == LeaderAndEpoch(None, epoch, False)

    asyncio.run(run())

"""Producer ids on a node: each once, the next block asked for in time, and an honest answer when there is none."""

import asyncio
import contextlib
import logging

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.requests.brokers import AllocateProducerIdsResponse
from tidelog_node.server import producer_ids
from tidelog_node.server.producer_ids import ProducerIdManager


class Controllers:
    """Gives out blocks of ``size``; the next ``failures`` calls fail, and none is answered while ``gate`` is closed."""

    def __init__(self, size=10):
        self.size = size
        self.next = 0
        self.failures = 0
        self.requests = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def allocate_producer_ids(self, request, timeout_s):
        self.requests.append(request)
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, "for the test")
        start, self.next = self.next, self.next + self.size
        return AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=self.size)


@contextlib.asynccontextmanager
async def running(controllers, **fields):
    manager = ProducerIdManager(controllers, 1, lambda: 7, **fields)
    task = asyncio.create_task(manager.run(), name="producer-ids")
    try:
        yield manager
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_ids_are_given_once_over_many_blocks():
    async def run():
        controllers = Controllers()
        async with running(controllers) as manager:
            found = await asyncio.gather(*(manager.next_id() for _ in range(95)))
        assert sorted(found) == list(range(95))
        assert {(r.broker_id, r.broker_epoch) for r in controllers.requests} == {(1, 7)}

    asyncio.run(run())


def test_nothing_is_asked_for_before_an_id_is_wanted_and_the_next_block_before_the_last_id():
    async def run():
        controllers = Controllers()
        async with running(controllers) as manager:
            await asyncio.sleep(0.01)
            assert not controllers.requests
            for _ in range(8):
                await manager.next_id()
            await asyncio.sleep(0.01)
            assert len(controllers.requests) == 1
            await manager.next_id()
            await asyncio.sleep(0.01)
            assert len(controllers.requests) == 2
            controllers.gate.clear()
            assert [await manager.next_id() for _ in range(3)] == [9, 10, 11], "it was there in time"

    asyncio.run(run())


def test_controllers_that_fail_are_asked_again(monkeypatch, caplog):
    monkeypatch.setattr(producer_ids, "_RETRY_S", 0.01)

    async def run():
        controllers = Controllers()
        controllers.failures = 2
        async with running(controllers) as manager:
            assert await manager.next_id() == 0
        assert len(controllers.requests) == 3

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert "The controllers allocated no producer ids, retrying" in caplog.text


def test_controllers_that_do_not_answer_make_it_a_retriable_error():
    async def run():
        controllers = Controllers()
        controllers.gate.clear()
        async with running(controllers, wait_s=0.02) as manager:
            with pytest.raises(TidelogError) as caught:
                await manager.next_id()
            assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert caught.value.code.retriable
            controllers.gate.set()
            assert await manager.next_id() == 0

    asyncio.run(run())

"""Calls that wait for the session of a node, by a clock that the test sets."""

import asyncio
from dataclasses import dataclass

import pytest

from tidelog_node.coordination.session_waits import SessionWaits

TIMEOUT_MS = 3_000


@dataclass
class Node:
    """A node's clock and session, as the test sets them."""

    now_ms: int = 0
    has_session: bool = False

    def monotonic_ms(self):
        return self.now_ms

    def wall_ms(self):
        return self.now_ms


def waits_of(node, most=10):
    return SessionWaits(lambda: node.has_session, node, TIMEOUT_MS, most)


async def turns():
    """Let timers that are due run."""
    for _ in range(5):
        await asyncio.sleep(0.02)


async def waiting(waits, count):
    tasks = [asyncio.create_task(waits.wait()) for _ in range(count)]
    await turns()
    return tasks


def test_call_goes_on_at_once_while_there_is_a_session():
    async def run():
        waits = waits_of(Node(has_session=True))
        async with asyncio.timeout(5):
            await waits.wait()
        assert waits.waiting == 0

    asyncio.run(run())


def test_calls_wait_until_the_session_is_back():
    async def run():
        node = Node()
        waits = waits_of(node)
        tasks = await waiting(waits, 3)
        node.now_ms = TIMEOUT_MS - 1
        await turns()
        assert not any(task.done() for task in tasks)
        node.has_session = True
        async with asyncio.timeout(5):
            await asyncio.gather(*tasks)
        assert waits.waiting == 0

    asyncio.run(run())


def test_calls_wait_no_longer_than_the_timeout_each_from_its_start():
    async def run():
        node = Node()
        waits = waits_of(node)
        [first] = await waiting(waits, 1)
        node.now_ms = 1_000
        [second] = await waiting(waits, 1)
        node.now_ms = TIMEOUT_MS
        async with asyncio.timeout(5):
            await first
        assert not second.done()
        assert waits.waiting == 1
        node.now_ms = TIMEOUT_MS + 1_000
        async with asyncio.timeout(5):
            await second

    asyncio.run(run())


def test_call_beyond_the_bound_goes_on_at_once_and_the_others_wait():
    async def run():
        node = Node()
        waits = waits_of(node, most=2)
        tasks = await waiting(waits, 3)
        assert [task.done() for task in tasks] == [False, False, True]
        node.has_session = True
        async with asyncio.timeout(5):
            await asyncio.gather(*tasks)

    asyncio.run(run())


def test_cancelled_call_makes_room_for_another():
    async def run():
        waits = waits_of(Node(), most=1)
        [task] = await waiting(waits, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert waits.waiting == 0
        [other] = await waiting(waits, 1)
        assert not other.done()
        waits.end()
        async with asyncio.timeout(5):
            await other

    asyncio.run(run())

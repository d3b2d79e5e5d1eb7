import asyncio

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.transport.budget import ByteBudget


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


def test_budget_serves_takers_in_order_when_bytes_come_back():
    async def run():
        budget = ByteBudget(10, waiting_limit=10)
        await budget.take(8)
        order = []

        async def taker(name, size):
            await budget.take(size)
            order.append(name)

        first = asyncio.create_task(taker("large", 9))
        await settle()
        second = asyncio.create_task(taker("small", 1))
        await settle()
        assert order == [], "the small one does not overtake"

        budget.give_back(8)
        await asyncio.gather(first, second)
        assert order == ["large", "small"]
        assert budget.taken == 10

    asyncio.run(run())


def test_budget_lets_one_oversized_request_through_alone():
    async def run():
        budget = ByteBudget(10)
        await budget.take(50)
        waiting = asyncio.create_task(budget.take(1))
        await settle()
        assert not waiting.done()
        budget.give_back(50)
        await waiting
        assert budget.taken == 1

    asyncio.run(run())


def test_budget_is_whole_again_after_a_waiter_is_cancelled():
    async def run():
        budget = ByteBudget(10, waiting_limit=10)
        await budget.take(10)
        cancelled = asyncio.create_task(budget.take(5))
        granted_then_cancelled = asyncio.create_task(budget.take(5))
        await settle()
        cancelled.cancel()
        await settle()
        budget.give_back(10)
        granted_then_cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await granted_then_cancelled
        assert budget.taken == 0

    asyncio.run(run())


def test_budget_refuses_what_would_wait_beyond_the_limit_and_lets_one_wait_however_large():
    async def run():
        budget = ByteBudget(10, waiting_limit=5)
        await budget.take(10)
        waiting = [asyncio.create_task(budget.take(50))]
        await settle()
        with pytest.raises(TidelogError) as raised:
            await budget.take(1)
        assert raised.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert "10 bytes of 10 are under way, and 50 of 5 wait" in raised.value.message
        waiting[0].cancel()
        await settle()
        assert budget.waiting == 0

        waiting = [asyncio.create_task(budget.take(size)) for size in (2, 3)]
        await settle()
        with pytest.raises(TidelogError):
            await budget.take(1)
        budget.give_back(10)
        await asyncio.gather(*waiting)
        assert (budget.taken, budget.waiting) == (5, 0)

    asyncio.run(run())


def test_budget_does_not_wait_for_one_that_was_cancelled():
    async def run():
        budget = ByteBudget(10, waiting_limit=20)
        await budget.take(5)
        large = asyncio.create_task(budget.take(9))
        await settle()
        small = asyncio.create_task(budget.take(1))
        await settle()
        large.cancel()
        await settle()
        assert small.done()
        await asyncio.wait_for(budget.take(1), 1)
        assert (budget.taken, budget.waiting) == (7, 0)

    asyncio.run(run())

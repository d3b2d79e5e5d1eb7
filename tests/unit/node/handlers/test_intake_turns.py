"""Calls of one connection are read in turn, whatever becomes of those that wait."""

from __future__ import annotations

import asyncio

from tidelog_foundation.transport.budget import ByteBudget
from tidelog_foundation.transport.intake import Charge, Intake


def test_turn_goes_past_a_call_that_is_cancelled_in_the_moment_that_it_is_freed() -> None:
    async def run() -> list[str]:
        intake = Intake(Charge(ByteBudget(1)))
        order: list[str] = []
        first_may_end = asyncio.Event()

        async def call(name: str) -> None:
            async with intake._turn("a client"):
                order.append(name)
                if name == "first":
                    await first_may_end.wait()

        first, second, third = (asyncio.create_task(call(name)) for name in ("first", "second", "third"))
        await asyncio.sleep(0)
        first_may_end.set()
        second.cancel()
        await asyncio.gather(first, second, third, return_exceptions=True)
        assert (first.exception(), third.exception()) == (None, None)
        await call("fourth")
        return order

    assert asyncio.run(asyncio.wait_for(run(), 10)) == ["first", "third", "fourth"]

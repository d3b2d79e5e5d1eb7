"""The engine's timer: once for each deadline that was set last, and no oftener."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tidelog_quorum.raft.event_loop import DeadlineTimer


def test_timer_fires_at_the_deadline_that_was_set_last(wait_until: Any) -> None:
    async def run() -> None:
        fired: list[int] = []
        timer = timer_into(fired)
        start = timer.now_ms()
        for later_ms in (30, 60, 90):
            timer.set(start + later_ms)
        await wait_until(lambda: bool(fired))
        assert fired[0] >= start + 90
        timer.set(timer.now_ms() + 5_000)
        timer.set(timer.now_ms())
        await wait_until(lambda: len(fired) == 2)
        assert fired[1] < start + 4_000

    asyncio.run(run())


def test_timer_does_not_fire_when_the_deadline_was_taken_back() -> None:
    async def run() -> None:
        fired: list[int] = []
        timer = timer_into(fired)
        timer.set(timer.now_ms() + 20)
        timer.set(None)
        await asyncio.sleep(0.05)
        timer.set(timer.now_ms())
        timer.cancel()
        await asyncio.sleep(0.02)
        assert fired == []

    asyncio.run(run())


def test_timer_that_is_moved_on_often_wakes_the_loop_seldom() -> None:
    async def run() -> int:
        loop = asyncio.get_running_loop()
        calls: list[float] = []
        call_at: Callable[..., Any] = loop.call_at

        def counting(when: float, *arguments: Any, **options: Any) -> Any:
            calls.append(when)
            return call_at(when, *arguments, **options)

        loop.call_at = counting  # type: ignore[method-assign]
        timer = timer_into([])
        for _ in range(1_000):
            timer.set(timer.now_ms() + 10_000)
        timer.cancel()
        return len(calls)

    assert asyncio.run(run()) == 1


def timer_into(fired: list[int]) -> DeadlineTimer:
    timer = DeadlineTimer(asyncio.get_running_loop(), lambda: fired.append(timer.now_ms()))
    return timer

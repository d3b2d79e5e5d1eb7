"""Long work on one event loop takes turns, so that other tasks wait for one slice and not for one of each work."""

from __future__ import annotations

import asyncio

import pytest

from tidelog_foundation.time_slices import TimeSlices

WORKERS = 20


def test_other_tasks_wait_for_one_slice_when_many_have_more_to_do() -> None:
    steps: list[str] = []

    async def work(number: int) -> None:
        slices = TimeSlices()
        for _ in range(5):
            await slices.give_way()
            steps.append(f"worker {number}")

    async def main() -> None:
        workers = [asyncio.create_task(work(number)) for number in range(WORKERS)]
        while not all(worker.done() for worker in workers):
            steps.append("other")
            await asyncio.sleep(0)

    asyncio.run(main())
    assert steps.count("other") < 1_000
    between = " ".join(steps).split("other")
    assert max(part.count("worker") for part in between) == 1
    order = [step for step in steps if step != "other"]
    assert order == order[:WORKERS] * 5, "the work takes turns"


def test_work_goes_on_when_those_before_it_are_cancelled() -> None:
    async def work() -> None:
        await TimeSlices().give_way()

    async def main() -> list[bool]:
        workers = [asyncio.create_task(work()) for _ in range(WORKERS)]
        await asyncio.sleep(0)
        for worker in workers[:-1]:
            worker.cancel()
        await asyncio.wait_for(asyncio.gather(*workers, return_exceptions=True), 10)
        return [worker.cancelled() for worker in workers]

    assert asyncio.run(main()) == [True] * (WORKERS - 1) + [False]


def test_work_without_an_event_loop_gives_way_and_goes_on() -> None:
    steps = TimeSlices().give_way()
    assert steps.send(None) is None
    with pytest.raises(StopIteration):
        steps.send(None)

"""The usage of quotas by requests, with an injected clock: the rates that clients get, and the loop's time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tidelog_foundation.measured_steps import MeasuredSteps
from tidelog_foundation.requests.quotas import entity_of
from tidelog_node.quotas.client_quotas import ClientQuotas, QuotaKind
from tidelog_node.quotas.usage import RequestUsage

LIMIT = 1_000_000


class Clock:
    def __init__(self) -> None:
        self.ns = 10**9

    def now_ms(self) -> int:
        return self.ns // 10**6

    def now_ns(self) -> int:
        return self.ns

    def advance_ms(self, duration_ms: float) -> None:
        self.ns += int(duration_ms * 10**6)


class Node:
    """A node with quotas of the user alice."""

    def __init__(self, **limits: float) -> None:
        self.clock = Clock()
        self.quotas = ClientQuotas(self.clock.now_ms, self.clock.now_ns)
        self.quotas.follow({entity_of({"user": "alice"}): limits})

    def usage(self, user: str = "alice") -> RequestUsage:
        return RequestUsage(self.quotas, user, "app")

    def rate(self, request: Callable[[], int], seconds: int = 110) -> float:
        """Return the bytes per second of a client that asks ten times per second, after ten seconds of settling."""
        clock, total = self.clock, 0
        begin_ms = clock.now_ms() + 10_000
        while clock.now_ms() < begin_ms + seconds * 1_000:
            size = request()
            total += size if clock.now_ms() >= begin_ms else 0
            clock.advance_ms(max(1, self.quotas.delay_ms(QuotaKind.PRODUCE, "alice", "app")))
            clock.advance_ms(self.quotas.delay_ms(QuotaKind.FETCH, "alice", "app"))
        return total / seconds


@pytest.mark.parametrize("size", [20_000, 200_000])
def test_a_producer_that_waits_out_its_delays_gets_its_quota(size) -> None:
    node = Node(producer_byte_rate=LIMIT)

    def produce() -> int:
        node.usage().append(size)
        return size

    assert node.rate(produce) == pytest.approx(LIMIT, rel=0.11)


@pytest.mark.parametrize("size", [20_000, 200_000])
def test_a_consumer_that_waits_out_its_delays_gets_its_quota(size) -> None:
    node = Node(consumer_byte_rate=LIMIT)
    assert node.rate(lambda: 0 if node.usage().fetch(size) else size) == pytest.approx(LIMIT, rel=0.11)


def test_a_refused_fetch_does_not_count() -> None:
    node = Node(consumer_byte_rate=LIMIT)
    assert node.usage().fetch(10 * LIMIT) == 0
    assert node.usage().fetch(LIMIT) == 1_000
    node.clock.advance_ms(500)
    assert node.usage().fetch(10) == 0, "10 s of the limit, over 10.5 s"
    assert node.usage().fetch_max_bytes == 10 * LIMIT


def test_users_without_a_quota_are_not_delayed() -> None:
    node = Node(producer_byte_rate=1, consumer_byte_rate=1, request_percentage=1)
    usage = node.usage("bob")
    usage.enter()
    usage.append(10**9)
    node.clock.advance_ms(10_000)
    assert (usage.fetch(10**9), usage.answer(), usage.muted_until_ms) == (0, 0, 0)


def test_the_time_that_the_loop_works_on_a_request_is_measured() -> None:
    node = Node(request_percentage=10)
    usage = node.usage()

    async def work() -> str:
        node.clock.advance_ms(600)
        await asyncio.sleep(0)
        node.clock.advance_ms(900)
        return "done"

    async def others() -> None:
        node.clock.advance_ms(5_000)

    async def run() -> None:
        waiting = asyncio.get_running_loop().create_task(MeasuredSteps(work(), usage))
        await others()
        assert await waiting == "done"
        assert await MeasuredSteps(work(), usage) == "done"

    asyncio.run(run())
    # 3 s of work over 10 s are 30 %, three times the limit; the delay is at most one window.
    assert usage.answer() == 1_000
    meter = node.quotas.request.meter_of("alice", "app", node.clock.now_ms())
    assert meter is not None
    assert meter.rate(node.clock.now_ms()) == pytest.approx(30)


def test_the_time_after_the_response_counts_for_later_requests() -> None:
    node = Node(request_percentage=10)
    usage = node.usage()
    usage.enter()
    assert usage.answer() == 0
    node.clock.advance_ms(2_000)
    usage.end()
    assert usage.delay_ms == 0
    assert node.usage().answer() > 0


def test_an_error_and_a_cancellation_reach_measured_steps() -> None:
    usage = Node(request_percentage=10).usage()

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    async def wait() -> None:
        await asyncio.sleep(60)

    async def run() -> None:
        with pytest.raises(ValueError, match="no"):
            await MeasuredSteps(fail(), usage)
        waiting = asyncio.get_running_loop().create_task(MeasuredSteps(wait(), usage))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(run())


def test_a_batch_that_is_larger_than_the_quota_is_read_once_nothing_else_counts() -> None:
    node = Node(consumer_byte_rate=LIMIT)
    assert node.usage().fetch(50 * LIMIT) == 0
    assert node.usage().fetch(50 * LIMIT) > 0
    assert node.rate(lambda: 0 if node.usage().fetch(50 * LIMIT) else 50 * LIMIT, 500) > 0

"""The memory of requests is waited for in order, and given back once."""

import asyncio

import pytest

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.transport.budget import ByteBudget
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.server.limits import REQUEST_BYTES, SMALL_BYTES, RequestBudgets, Reservation


def test_reservation_waits_its_turn_among_those_that_take() -> None:
    async def main() -> None:
        budget = ByteBudget(100)
        first, second = Reservation(budget, 80), Reservation(budget, 50)
        taker = asyncio.create_task(budget.take(10))
        await asyncio.sleep(0)
        called: list[str] = []
        second.call_when_taken(lambda: called.append("second"))
        assert (first.is_taken, second.is_taken, taker.done()) == (True, False, False)
        assert budget.waiting == 10, "what is not received yet takes no memory"
        first.release()
        await taker
        assert (second.is_taken, called, budget.taken) == (True, ["second"], 60)
        second.release()
        budget.give_back(10)
        assert budget.taken == 0

    asyncio.run(main())


def test_reservation_that_is_given_up_lets_the_next_go_on() -> None:
    async def main() -> None:
        budget = ByteBudget(100)
        first, large, small = Reservation(budget, 50), Reservation(budget, 90), Reservation(budget, 30)
        assert not small.is_taken
        large.release()
        assert small.is_taken
        first.release()
        small.release()
        assert (budget.taken, budget.waiting) == (0, 0)

    asyncio.run(main())


def test_reservation_that_was_granted_unseen_is_given_back() -> None:
    async def main() -> None:
        budget = ByteBudget(100)
        first, second = Reservation(budget, 90), Reservation(budget, 90)
        first.release()
        second.release()
        assert budget.taken == 0

    asyncio.run(main())


def test_reservations_that_wait_refuse_nobody_who_takes() -> None:
    async def main() -> None:
        budget = ByteBudget(100, waiting_limit=10)
        held = [Reservation(budget, 90) for _ in range(5)]
        taker = asyncio.create_task(budget.take(10))
        await asyncio.sleep(0)
        with pytest.raises(TidelogError, match="is refused"):
            await budget.take(1)
        for reservation in held:
            reservation.release()
        await taker
        budget.give_back(10)
        assert budget.taken == 0

    asyncio.run(main())


def test_only_what_is_produced_takes_of_the_nodes_budget_and_small_requests_take_of_none() -> None:
    async def main() -> None:
        produced = ByteBudget(1_000_000)
        budgets = RequestBudgets(produced, 1_000_000)
        small = budgets.reserve(ApiKey.PRODUCE, 100)
        assert small is not None
        assert produced.taken == 100 + REQUEST_BYTES
        assert budgets.reserve(ApiKey.FETCH, SMALL_BYTES) is None
        first, second, third = (budgets.reserve(ApiKey.FETCH, 100_000) for _ in range(3))
        assert first is not None
        assert second is not None
        assert third is not None
        assert produced.taken == 100 + REQUEST_BYTES
        assert (first.is_taken, second.is_taken, third.is_taken) == (True, True, False)
        first.release()
        assert third.is_taken
        for reservation in (small, second, third):
            reservation.release()
        assert produced.taken == 0

    asyncio.run(main())

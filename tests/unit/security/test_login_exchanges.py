"""Logins in progress on a gRPC listener: they end with their time, or for the logins of other hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.transport.login_exchanges import Exchange, Exchanges
from tidelog_foundation.transport.session_messages import AuthenticateRequest

FIRST = AuthenticateRequest("PLAIN")


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 20))


def waiting(exchanges: Exchanges, host: str) -> Exchange:
    """Return a new login that waits for the rest of its token."""
    exchange = exchanges.begin(host, FIRST)
    exchange.add(b"part", 1_000)
    exchanges.keep(exchange)
    return exchange


def test_waiting_logins_stay_within_the_limit_when_hosts_displace_each_other() -> None:
    async def main() -> None:
        exchanges = Exchanges(2)
        first = waiting(exchanges, "a")
        waiting(exchanges, "a")
        for number in range(10):
            waiting(exchanges, f"b{number}")
        assert len(exchanges._waiting) <= 2
        with pytest.raises(TidelogError) as refused:
            exchanges.resume(first.id)
        assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT

    run(main)


def test_login_begins_at_the_moment_in_which_the_displaced_one_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog_foundation.transport.login_exchanges.LOGIN_TIMEOUT_S", 0.01)

    async def main() -> None:
        exchanges, loop = Exchanges(2), asyncio.get_running_loop()
        old, _ = exchanges.begin("a", FIRST), exchanges.begin("a", FIRST)
        login = asyncio.create_task(old.wait(asyncio.Event().wait()))
        begun: asyncio.Future[Exchange] = loop.create_future()

        def begin() -> None:
            try:
                begun.set_result(exchanges.begin("b", FIRST))
            except Exception as error:  # noqa: BLE001  # the test raises it
                begun.set_exception(error)

        # Both timers end in one pass of the loop, so that the login has been cancelled but has not run yet.
        loop.call_at(old.deadline + 1e-9, begin)
        with pytest.raises(TidelogError) as timed_out:
            await login
        assert timed_out.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert (await begun).host == "b"

    run(main)

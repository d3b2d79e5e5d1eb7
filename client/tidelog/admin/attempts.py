"""Repeated requests for many items: rounds continue while retriable errors and time remain."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from tidelog.admin.operations import Outcomes
from tidelog.cluster.backoff import Backoff
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.waiting import ReportedWait

K = TypeVar("K")
T = TypeVar("T")

AskRound = Callable[[frozenset[K], float], Awaitable[Outcomes[K, T]]]
"""Requests these items once, within a timeout in milliseconds."""
MayPass = Callable[[K, TidelogError], bool]
"""Returns True if an item is worth another request after the error."""


async def ask_until_settled(
    keys: Iterable[K],
    ask: AskRound[K, T],
    *,
    backoff: Backoff,
    timeout_ms: float,
    may_pass: MayPass[K] = lambda _, error: error.code.retriable,
) -> dict[K, T | TidelogError]:
    """Return the outcome of each item: its answer, the error that is not retriable, or the last error.

    ``ask`` gets the remaining items. An item missing from its answer counts as failed, and so do all items when it
    raises.
    """
    missing = frozenset(keys)
    with ReportedWait(_named(missing)) as wait:
        return await _ask_in_rounds(missing, ask, backoff, timeout_ms, may_pass, wait)


async def settle_each(keys: Iterable[K], ask: Callable[[K], Awaitable[T]]) -> dict[K, T | TidelogError]:
    """Return the result of ``ask`` for each item, or the error that it raised; the calls run concurrently."""

    async def settle(key: K) -> T | TidelogError:
        try:
            return await ask(key)
        except TidelogError as error:
            return error

    wanted = list(keys)
    return dict(zip(wanted, await asyncio.gather(*map(settle, wanted)), strict=True))


def now_ms() -> float:
    """Return the time of the running loop, in milliseconds."""
    return asyncio.get_running_loop().time() * 1000


async def _one_round(missing: frozenset[K], ask: AskRound[K, T], left_ms: float) -> Mapping[K, T | TidelogError]:
    try:
        found = await ask(missing, left_ms)
    except TidelogError as error:
        return dict.fromkeys(missing, error)
    silent = error_for(ErrorCode.NETWORK_EXCEPTION, "the node's answer does not contain it")
    return {key: found.get(key, silent) for key in missing}


async def _ask_in_rounds(
    missing: frozenset[K],
    ask: AskRound[K, T],
    backoff: Backoff,
    timeout_ms: float,
    may_pass: MayPass[K],
    wait: ReportedWait,
) -> dict[K, T | TidelogError]:
    deadline_ms = now_ms() + timeout_ms
    outcomes: dict[K, T | TidelogError] = {}
    attempt = 0
    while missing:
        found = await _one_round(missing, ask, max(deadline_ms - now_ms(), 1))
        attempt += 1
        wait_ms = backoff.wait_ms(attempt)
        is_over = now_ms() + wait_ms >= deadline_ms
        again = {k for k, o in found.items() if isinstance(o, TidelogError) and may_pass(k, o) and not is_over}
        outcomes |= {key: outcome for key, outcome in found.items() if key not in again}
        missing = frozenset(again)
        if missing:
            wait.note(next(found[key] for key in missing))
            await asyncio.sleep(wait_ms / 1000)
    return outcomes


def _named(keys: frozenset[K]) -> str:
    return f"answers about {len(keys)} items" if len(keys) != 1 else f"an answer about {next(iter(keys))}"

"""Requests to group coordinators: each gets its own groups, and a request is retried if one has moved or is loading."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

from tidelog.admin.attempts import MayPass, ask_until_settled, now_ms
from tidelog.admin.operations import Outcomes
from tidelog.cluster import Connection, Coordinators
from tidelog.cluster.backoff import Backoff
from tidelog.cluster.coordinator import MOVED
from tidelog_foundation.errors import TidelogError

T = TypeVar("T")

_ATTEMPT_MS = 5_000
"""The longest wait for a coordinator's answer. The client then finds it again, since it may be paused or replaced."""

AskCoordinator = Callable[[Connection, list[str], float], Awaitable[Outcomes[str, T]]]
"""Requests a coordinator's groups from it, within a timeout in seconds."""


async def ask_coordinators(
    coordinators: Coordinators,
    group_ids: Iterable[str],
    ask: AskCoordinator[T],
    *,
    backoff: Backoff,
    timeout_ms: float,
    may_pass: MayPass[str] = lambda _, error: error.code.retriable,
) -> dict[str, T | TidelogError]:
    """Return the outcome of each group. The request must be idempotent, because an answer may be lost."""
    rounds = _Rounds(coordinators, ask)
    return await ask_until_settled(group_ids, rounds.ask, backoff=backoff, timeout_ms=timeout_ms, may_pass=may_pass)


class _Rounds(Generic[T]):
    def __init__(self, coordinators: Coordinators, ask: AskCoordinator[T]) -> None:
        self._coordinators = coordinators
        self._ask_coordinator = ask

    async def ask(self, group_ids: frozenset[str], left_ms: float) -> Outcomes[str, T]:
        """Ask each coordinator once for its groups."""
        deadline_ms = now_ms() + left_ms
        found = await self._coordinators.find_all(sorted(group_ids), timeout_ms=left_ms)
        outcomes: dict[str, T | TidelogError] = {g: f for g, f in found.items() if isinstance(f, TidelogError)}
        by_address: dict[str, tuple[Connection, list[str]]] = {}
        for group_id, located in found.items():
            if not isinstance(located, TidelogError):
                by_address.setdefault(located.address, (located, []))[1].append(group_id)
        answers = [self._ask_one(connection, own, deadline_ms) for connection, own in by_address.values()]
        for answer in await asyncio.gather(*answers):
            outcomes.update(answer)
        return outcomes

    async def _ask_one(self, connection: Connection, group_ids: list[str], deadline_ms: float) -> Outcomes[str, T]:
        timeout_s = min(max(deadline_ms - now_ms(), 1), _ATTEMPT_MS) / 1000
        try:
            outcomes = await connection.call(lambda c: self._ask_coordinator(c, group_ids, timeout_s))
        except TidelogError as error:
            outcomes = dict.fromkeys(group_ids, error)
            moved = group_ids
        else:
            moved = [g for g, o in outcomes.items() if isinstance(o, TidelogError) and o.code in MOVED]
        for group_id in moved:
            self._coordinators.forget(group_id)
        return outcomes

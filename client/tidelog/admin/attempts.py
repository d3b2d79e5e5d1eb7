"""Repeated requests: for groups, of which each coordinator gets its own, and to every node.

A request is retried if a coordinator has moved or is loading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from tidelog.cluster import ClusterClient, Connection, Coordinators
from tidelog.cluster.answers import error_of
from tidelog.cluster.attempts import Outcomes, ask_until_settled, last_answer
from tidelog.cluster.coordinator import MOVED
from tidelog.cluster.loop_time import now_ms
from tidelog_foundation.backoff import Backoff
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.waiting import ReportedWait

K = TypeVar("K")
T = TypeVar("T")


async def settle_each(keys: Iterable[K], ask: Callable[[K], Awaitable[T]]) -> dict[K, T | TidelogError]:
    """Return the result of ``ask`` for each item, or the error that it raised; the calls run concurrently."""

    async def settle(key: K) -> T | TidelogError:
        try:
            return await ask(key)
        except TidelogError as error:
            return error

    wanted = list(keys)
    return dict(zip(wanted, await asyncio.gather(*map(settle, wanted)), strict=True))


ATTEMPT_MS = 5_000
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
) -> dict[str, T | TidelogError]:
    """Return the outcome of each group. The request must be idempotent, because an answer may be lost."""

    async def ask_round(group_ids: frozenset[str], left_ms: float) -> Outcomes[str, T]:
        deadline_ms = now_ms() + left_ms
        found = await coordinators.find_all(sorted(group_ids), timeout_ms=left_ms)
        outcomes: dict[str, T | TidelogError] = {g: f for g, f in found.items() if isinstance(f, TidelogError)}
        by_address: dict[str, tuple[Connection, list[str]]] = {}
        for group_id, located in found.items():
            if not isinstance(located, TidelogError):
                by_address.setdefault(located.address, (located, []))[1].append(group_id)
        answers = [_ask_one(coordinators, ask, c, own, deadline_ms) for c, own in by_address.values()]
        for answer in await asyncio.gather(*answers):
            outcomes.update(answer)
        return outcomes

    return await ask_until_settled(group_ids, ask_round, backoff=backoff, timeout_ms=timeout_ms)


async def _ask_one(
    coordinators: Coordinators, ask: AskCoordinator[T], connection: Connection, group_ids: list[str], deadline_ms: float
) -> Outcomes[str, T]:
    timeout_s = min(max(deadline_ms - now_ms(), 1), ATTEMPT_MS) / 1000
    try:
        outcomes = await connection.call(lambda c: ask(c, group_ids, timeout_s))
    except TidelogError as error:
        outcomes = dict.fromkeys(group_ids, error)
        moved = group_ids
    else:
        moved = [g for g, o in outcomes.items() if isinstance(o, TidelogError) and o.code in MOVED]
    for group_id in moved:
        coordinators.forget(group_id)
    return outcomes


async def ask_every_node(
    cluster: ClusterClient, listed: str, ask: Callable[[Connection, float], Awaitable[Any]], timeout_ms: float
) -> list[tuple[int, Any, TidelogError | None]]:
    """Return each node's id, last response (None for none) and error. ``ask`` gets a timeout in seconds.

    Nodes that are loading or unreachable are asked again until the deadline. ``listed`` names the wait in the log.

    Raises:
        TidelogError: no node answered the request for metadata.
    """
    deadline_ms = now_ms() + timeout_ms
    metadata = await cluster.refresh([], timeout_ms=timeout_ms)
    nodes = sorted(metadata.brokers)
    answers = await asyncio.gather(*(_ask_node(cluster, node, listed, ask, deadline_ms) for node in nodes))
    return [(node, response, error) for node, (response, error) in zip(nodes, answers, strict=True)]


async def _ask_node(
    cluster: ClusterClient,
    node_id: int,
    listed: str,
    ask: Callable[[Connection, float], Awaitable[Any]],
    deadline_ms: float,
) -> tuple[Any, TidelogError | None]:
    async def call(connection: Connection) -> Any:
        return await ask(connection, max(min(deadline_ms - now_ms(), ATTEMPT_MS), 1) / 1000)

    with ReportedWait(f"the {listed} of node {node_id}") as wait:
        attempt = 0
        response: Any = None
        error: TidelogError | None = None
        while True:
            try:
                response = await cluster.connection(node_id).call(call)
            except TidelogError as failure:
                error = last_answer(failure, error, deadline_ms)
            else:
                error = error_of(response)
            attempt += 1
            wait_ms = cluster.backoff.wait_ms(attempt)
            if error is None or not error.code.retriable or now_ms() + wait_ms >= deadline_ms:
                return response, error
            wait.note(error)
            await asyncio.sleep(wait_ms / 1000)

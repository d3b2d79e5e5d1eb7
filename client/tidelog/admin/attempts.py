"""Repeated requests for many items: rounds continue while retriable errors and time remain.

Each leader gets its own partitions, and each coordinator its own groups. A request is retried if a leader or
coordinator has moved, or if a coordinator is loading.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Generic, TypeVar

from tidelog.admin.operations import Outcomes
from tidelog.cluster import ClusterClient, Connection, Coordinators, TopicPartitionKey
from tidelog.cluster.backoff import Backoff, now_ms
from tidelog.cluster.coordinator import MOVED
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


AskLeader = Callable[[Connection, list[TopicPartitionKey], float], Awaitable[Outcomes[TopicPartitionKey, T]]]
"""Requests a leader's partitions from it, within a timeout in milliseconds."""


async def ask_leaders(
    cluster: ClusterClient,
    partitions: Iterable[TopicPartitionKey],
    ask: AskLeader[T],
    *,
    timeout_ms: float,
    may_pass: MayPass[TopicPartitionKey] = lambda _, error: error.code.retriable,
) -> dict[TopicPartitionKey, T | TidelogError]:
    """Return the outcome of each partition; retry those whose errors ``may_pass``, with fresh metadata.

    A missing partition fails at once; one without a leader is retried.
    """
    rounds = _LeaderRounds(cluster, ask)
    return await ask_until_settled(
        partitions,
        rounds.ask,
        backoff=cluster.backoff,
        timeout_ms=timeout_ms,
        may_pass=lambda key, error: key not in rounds.refused and may_pass(key, error),
    )


class _LeaderRounds(Generic[T]):
    def __init__(self, cluster: ClusterClient, ask: AskLeader[T]) -> None:
        self.refused: set[TopicPartitionKey] = set()
        self._cluster = cluster
        self._ask_leader = ask
        self._count = 0

    async def ask(self, keys: frozenset[TopicPartitionKey], left_ms: float) -> Outcomes[TopicPartitionKey, T]:
        """Ask each leader once for its partitions."""
        deadline_ms = now_ms() + left_ms
        topics = {topic for topic, _ in keys}
        self._count += 1
        if self._count > 1:
            await self._cluster.refresh(topics, timeout_ms=left_ms)
        unknown = dict(zip(topics, await asyncio.gather(*(self._learn(t, deadline_ms) for t in topics)), strict=True))
        outcomes: dict[TopicPartitionKey, T | TidelogError] = {}
        by_leader: defaultdict[int, list[TopicPartitionKey]] = defaultdict(list)
        for key in sorted(keys):
            error = unknown[key[0]] or self._cluster.metadata_error(*key)
            leader = self._cluster.metadata.leader(*key)
            if error is not None:
                self.refused.add(key)
                outcomes[key] = error
            elif leader is None:
                outcomes[key] = error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{key[0]}-{key[1]} has no leader")
            else:
                by_leader[leader.node_id].append(key)
        answers = [self._ask_one(node_id, own, deadline_ms) for node_id, own in by_leader.items()]
        for answer in await asyncio.gather(*answers):
            outcomes.update(answer)
        return outcomes

    async def _learn(self, topic: str, deadline_ms: float) -> TidelogError | None:
        try:
            await self._cluster.topic(topic, timeout_ms=deadline_ms - now_ms())
        except TidelogError as error:
            return error
        return None

    async def _ask_one(
        self, node_id: int, keys: list[TopicPartitionKey], deadline_ms: float
    ) -> Outcomes[TopicPartitionKey, T]:
        try:
            connection = self._cluster.connection(node_id)
            return await self._ask_leader(connection, keys, max(deadline_ms - now_ms(), 1))
        except TidelogError as error:
            return dict.fromkeys(keys, error)


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
    rounds = _CoordinatorRounds(coordinators, ask)
    return await ask_until_settled(group_ids, rounds.ask, backoff=backoff, timeout_ms=timeout_ms, may_pass=may_pass)


class _CoordinatorRounds(Generic[T]):
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

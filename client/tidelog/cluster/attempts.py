"""Repeated requests for many items: rounds continue while retriable errors and time remain.

Each leader gets its own partitions. A request is retried if a leader has moved.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

from tidelog.cluster.connections import Connection
from tidelog.cluster.loop_time import now_ms
from tidelog_foundation.backoff import Backoff
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.waiting import ReportedWait

if TYPE_CHECKING:
    from tidelog.cluster.client import ClusterClient

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
TopicPartitionKey = tuple[str, int]
Outcomes = Mapping[K, T | TidelogError]
_MOST_NAMES = 3
_NO_ANSWER = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode._TIMED_OUT})

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
    needs_all: bool = False,
) -> dict[K, T | TidelogError]:
    """Return the outcome of each item: its answer, the error that is not retriable, or the last error.

    ``ask`` gets the remaining items. An item missing from its answer counts as failed, and so do all items when it
    raises. With ``needs_all``, no further round follows once an item has failed.
    """
    missing = frozenset(keys)
    deadline_ms = now_ms() + timeout_ms
    outcomes: dict[K, T | TidelogError] = {}
    refused: dict[K, TidelogError] = {}
    attempt = 0
    with ReportedWait(f"an answer about {_named(missing)}") as wait:
        while missing:
            answers = await _one_round(missing, ask, max(deadline_ms - now_ms(), 1))
            found = {key: last_answer(outcome, refused.get(key), deadline_ms) for key, outcome in answers.items()}
            attempt += 1
            wait_ms = backoff.wait_ms(attempt)
            is_over = now_ms() + wait_ms >= deadline_ms
            again = {k for k, o in found.items() if isinstance(o, TidelogError) and may_pass(k, o) and not is_over}
            settled = {key: outcome for key, outcome in found.items() if key not in again}
            outcomes |= settled
            missing = frozenset(again)
            if needs_all and any(isinstance(outcome, TidelogError) for outcome in settled.values()):
                break
            if missing:
                refused = {key: error for key, error in found.items() if isinstance(error, TidelogError)}
                wait.note(next(found[key] for key in missing))
                await asyncio.sleep(wait_ms / 1000)
    return outcomes


def last_answer(outcome: T | TidelogError, before: TidelogError | None, deadline_ms: float) -> T | TidelogError:
    """Return the outcome of an attempt, or the error of the one before if the deadline cut this attempt short."""
    if before is None or not isinstance(outcome, TidelogError) or now_ms() < deadline_ms:
        return outcome
    return before if outcome.code in _NO_ANSWER else outcome


async def _one_round(missing: frozenset[K], ask: AskRound[K, T], left_ms: float) -> Mapping[K, T | TidelogError]:
    try:
        found = await ask(missing, left_ms)
    except TidelogError as error:
        return dict.fromkeys(missing, error)
    return {key: found[key] if key in found else _silent(key) for key in missing}


def _silent(key: Hashable) -> TidelogError:
    return error_for(ErrorCode.NETWORK_EXCEPTION, f"the node's answer does not contain {_name(key)}")


def _named(keys: frozenset[K]) -> str:
    shown = ", ".join(_name(key) for key in islice(keys, _MOST_NAMES))
    return f"{shown} and {len(keys) - _MOST_NAMES} more" if len(keys) > _MOST_NAMES else shown


def _name(key: Hashable) -> str:
    return f"{key[0]}-{key[1]}" if isinstance(key, tuple) else f'"{key}"'


AskLeader = Callable[[Connection, list[TopicPartitionKey], float], Awaitable[Outcomes[TopicPartitionKey, T]]]
"""Requests a leader's partitions from it, within a timeout in milliseconds."""


async def ask_leaders(
    cluster: ClusterClient,
    partitions: Iterable[TopicPartitionKey],
    ask: AskLeader[T],
    *,
    timeout_ms: float,
    may_pass: MayPass[TopicPartitionKey] = lambda _, error: error.code.retriable,
    needs_all: bool = False,
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
        needs_all=needs_all,
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

"""Requests to partition leaders: each gets its own partitions, and a request is retried if a leader has moved."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

from tidelog.admin.attempts import MayPass, ask_until_settled, now_ms
from tidelog.admin.operations import Outcomes
from tidelog.cluster import ClusterClient, Connection, TopicPartitionKey
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

T = TypeVar("T")

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
    rounds = _Rounds(cluster, ask)
    return await ask_until_settled(
        partitions,
        rounds.ask,
        backoff=cluster.backoff,
        timeout_ms=timeout_ms,
        may_pass=lambda key, error: key not in rounds.refused and may_pass(key, error),
    )


class _Rounds(Generic[T]):
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

"""The creation of topics that clients request (``auto.create.topics.enable``). Clients retry until a topic exists.

This node's own settings define internal topics, and the numbers of partitions and replicas of others (Kafka's
AutoTopicCreationManager). The controller chooses the numbers that the node does not set. Names that arrive during a
request go into the next one, each once. A request that is too large is split, since the topics together may have more
partitions than the controller creates at once. The quota of mutations of the client that first requests a topic counts
its partitions. Topics that exceed it are not created until the client requests them again and its quota permits.
Topics that nodes need have no client.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.ids import REQUEST_ID_SIZE
from tidelog_foundation.requests.quotas import QuotaClient
from tidelog_foundation.requests.topics import CreatableTopic, CreateTopicsRequest
from tidelog_node.handlers import AdminController

logger = logging.getLogger(__name__)

_DEFAULT = -1
"""The number of partitions or replicas that the controller chooses."""
_TIMEOUT_S = 10.0
_MAX_WAITING = 1_000
"""The maximum number of waiting names. Clients retry further ones."""


class TopicCreation:
    """Creates the requested topics in the background task :meth:`run`.

    ``internal`` topics are created with the settings given here, others with ``num_partitions`` partitions that have
    ``replication_factor`` replicas; None is the controller's default.
    """

    def __init__(
        self,
        controller: AdminController,
        internal: Iterable[CreatableTopic] = (),
        num_partitions: int | None = None,
        replication_factor: int | None = None,
    ) -> None:
        self._controller = controller
        self._num_partitions = _DEFAULT if num_partitions is None else num_partitions
        self._replication_factor = _DEFAULT if replication_factor is None else replication_factor
        self._internal = {topic.name: topic for topic in internal}
        self._waiting: dict[str, QuotaClient | None] = {}
        self._under_way: dict[str, QuotaClient | None] = {}
        self._has_work = asyncio.Event()
        self._failures: dict[str, str] = {}

    def want(self, names: Iterable[str], client: QuotaClient | None = None) -> None:
        """Request the creation of topics for a client, unless it is in progress. The names must be valid."""
        for name in names:
            if name not in self._under_way and len(self._waiting) < _MAX_WAITING:
                self._waiting.setdefault(name, client)
                self._has_work.set()

    def failure_of(self, name: str) -> str | None:
        """Return the reason why an internal topic could not be created at the last attempt, or None."""
        return self._failures.get(name)

    async def run(self) -> None:
        """Create the requested topics until cancelled."""
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            self._under_way, self._waiting = self._waiting, {}
            try:
                for client in dict.fromkeys(self._under_way.values()):
                    names = sorted(name for name, other in self._under_way.items() if other == client)
                    await self._create_all(names, client)
            finally:
                self._under_way = {}

    async def _create_all(self, names: list[str], client: QuotaClient | None) -> None:
        parts = [names]
        while parts:
            part = parts.pop()
            try:
                await self._create(part, client)
            except TidelogError as error:
                is_refused = error.code is ErrorCode.POLICY_VIOLATION
                if is_refused and len(part) > 1:
                    middle = len(part) // 2
                    parts += part[middle:], part[:middle]
                    continue
                if not is_refused:
                    # While no controller answers, the other parts would fail too. Clients request them again.
                    part, parts = [*part, *(name for other in reversed(parts) for name in other)], []
                if self._are_news(part, str(error)):
                    logger.warning("Topics could not be created: %s: %s", ", ".join(part), error)

    async def _create(self, names: list[str], client: QuotaClient | None) -> None:
        topics = [
            self._internal.get(name) or CreatableTopic(name, self._num_partitions, self._replication_factor)
            for name in names
        ]
        request = CreateTopicsRequest(
            topics=tuple(topics),
            timeout_ms=int(_TIMEOUT_S * 1000),
            request_id=os.urandom(REQUEST_ID_SIZE),
            quota_client=client,
        )
        response = await self._controller.ask(request, _TIMEOUT_S)
        for result in response.topics:
            if result.error is None:
                self._failures.pop(result.name, None)
                logger.info("Created topic %s at the request of a client", result.name)
            elif result.error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                self._failures.pop(result.name, None)
            elif result.error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                logger.debug("Topic %s exceeds the quota of the client that requests it", result.name)
            elif self._are_news([result.name], result.error.message):
                logger.warning("Topic %s could not be created for a client: %s", result.name, result.error.message)

    def _are_news(self, names: Iterable[str], failure: str) -> bool:
        """Store the failure of internal topics, and return whether it is new.

        Group members request them every second.
        """
        known = {name: self._failures.get(name) for name in names}
        self._failures.update((name, failure) for name in known if name in self._internal)
        return any(text != failure for text in known.values())

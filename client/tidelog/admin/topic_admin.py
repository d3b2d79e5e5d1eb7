"""Operations that create, delete and describe topics."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence

from tidelog.admin.authorized import TOPIC_OPERATIONS, with_operations
from tidelog.admin.operations import Future, Operations, Outcomes, timeout_in_ms
from tidelog.admin.topics import NewTopic, Node, TopicCollection, TopicDescription
from tidelog.cluster import ClusterClient
from tidelog.v1 import admin_service_pb2 as pb
from tidelog_foundation.errors import TidelogError, error_for
from tidelog_foundation.ids import REQUEST_ID_SIZE

_VISIBLE_TIMEOUT_MS = 5_000


class TopicAdmin(Operations):
    """Operations on topics."""

    def create_topics(
        self,
        new_topics: Iterable[NewTopic],
        *,
        operation_timeout: float = 30,
        request_timeout: float | None = None,
        validate_only: bool = False,
    ) -> dict[str, Future[None]]:
        """Create topics. A future is done when its topic exists and is visible, or fails with KafkaException.

        ``operation_timeout`` limits the controller's work, ``request_timeout`` the whole operation (default:
        request.timeout.ms), in seconds. ``validate_only`` only validates.
        """
        topics = list(new_topics)
        request = pb.CreateTopicsRequest(
            topics=[topic.to_proto() for topic in topics],
            timeout_ms=int(operation_timeout * 1000),
            validate_only=validate_only,
            # Nodes and this client retry after a lost answer; the id then identifies the topic as this request's.
            request_id=os.urandom(REQUEST_ID_SIZE),
        )

        async def create() -> Outcomes[str, None]:
            response = await self._change(lambda c, t: c.admin.CreateTopics(request, timeout=t), request_timeout)
            outcomes = {r.name: _error_of(r) for r in response.topics}
            if not validate_only:
                await _await_visible(self._cluster, [name for name, error in outcomes.items() if error is None])
            return outcomes

        return self._futures([topic.topic for topic in topics], create())

    def delete_topics(
        self, topics: Iterable[str], *, operation_timeout: float = 30, request_timeout: float | None = None
    ) -> dict[str, Future[None]]:
        """Delete topics. Timeouts as in :meth:`create_topics`."""
        names = list(topics)
        request = pb.DeleteTopicsRequest(topic_names=names, timeout_ms=int(operation_timeout * 1000))

        async def delete() -> Outcomes[str, None]:
            response = await self._change(lambda c, t: c.admin.DeleteTopics(request, timeout=t), request_timeout)
            return {r.name: _error_of(r) for r in response.topics}

        return self._futures(names, delete())

    def describe_topics(
        self,
        topics: TopicCollection | Iterable[str],
        *,
        include_authorized_operations: bool = False,
        request_timeout: float | None = None,
    ) -> dict[str, Future[TopicDescription]]:
        """Describe topics: partitions, leaders, replicas, and the topics' own settings.

        ``include_authorized_operations`` adds the client's permissions: all operations.
        """
        names = list(TopicCollection.of(topics).topic_names)
        request = pb.DescribeTopicsRequest(topic_names=names)

        async def describe() -> Outcomes[str, TopicDescription]:
            response = await self._ask(lambda c, t: c.admin.DescribeTopics(request, timeout=t), request_timeout)
            metadata = await self._cluster.refresh([], timeout_ms=timeout_in_ms(request_timeout))
            nodes = {int(b.node_id): Node(b.node_id, b.host, b.port, b.rack or None) for b in metadata.brokers.values()}
            found = {d.topic.name: TopicDescription.from_proto(d, nodes) for d in response.topics}
            return with_operations(found, TOPIC_OPERATIONS) if include_authorized_operations else found

        return self._futures(names, describe())


async def _await_visible(cluster: ClusterClient, names: Sequence[str]) -> None:
    # Creation has succeeded in any case; this wait only lets the next node that answers know the topic and its leaders.
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _VISIBLE_TIMEOUT_MS / 1000
    attempt = 0
    while loop.time() < deadline:
        try:
            metadata = await cluster.refresh(names, timeout_ms=_VISIBLE_TIMEOUT_MS)
        except TidelogError:
            return
        topics = [metadata.topics.get(name) for name in names]
        if all(t and t.partitions and all(p.leader_id >= 0 for p in t.partitions.values()) for t in topics):
            return
        attempt += 1
        await asyncio.sleep(cluster.backoff.wait_ms(attempt) / 1000)


def _error_of(result: pb.CreatableTopicResult | pb.DeletableTopicResult) -> TidelogError | None:
    return error_for(result.error.code, result.error.message) if result.HasField("error") else None

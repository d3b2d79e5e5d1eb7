"""confluent-kafka's AdminClient: each operation returns at once with futures, one per topic, partition or node."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from tidelog.admin.elections import ElectionType, election_outcomes, election_request
from tidelog.admin.log_dirs import LogDirDescription, TopicPartitionReplica, describe_node, move_replicas
from tidelog.admin.metadata import ClusterMetadata, list_topics
from tidelog.admin.reassignments import (
    NewPartitionReassignment,
    PartitionReassignment,
    alter_outcomes,
    alter_request,
    list_request,
    ongoing_reassignments,
)
from tidelog.admin.records import DeletedRecords, RecordDeletion, deletion_offsets
from tidelog.admin.topics import DescribeClusterResult, NewTopic, Node, TopicCollection, TopicDescription
from tidelog.cluster import ClusterClient, Connection, Lifetime
from tidelog.cluster.config import ClientConfig
from tidelog.config import parse_config
from tidelog.errors import ErrorCode, TidelogError, error_for
from tidelog.ids import REQUEST_ID_SIZE
from tidelog.message import TopicPartition
from tidelog.transport import network_loop, run_sync
from tidelog.v1 import admin_service_pb2 as pb

logger = logging.getLogger(__name__)

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
Future = concurrent.futures.Future
Outcomes = Mapping[K, "T | TidelogError"]

_VISIBLE_TIMEOUT_MS = 5_000
_READ_ATTEMPT_MS = 5_000
"""One node may take so long over a question before the next is asked."""


class AdminClient:
    """Administers a cluster; may be used from any thread. Close it, or use it as a context manager.

    ::

        with AdminClient({"bootstrap.servers": "127.0.0.1:9094"}) as admin:
            admin.create_topics([NewTopic("flights", 12, 3)])["flights"].result()
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Read the settings (``tidelog.cluster.config.ClientConfig``).

        Raises:
            KafkaException: INVALID_CONFIG.
        """
        self._config = parse_config(ClientConfig, config)
        self._cluster = self._config.cluster_client()
        self._lifetime = Lifetime(self, "admin client", self._cluster.close)

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def create_topics(
        self,
        new_topics: Iterable[NewTopic],
        *,
        operation_timeout: float = 30,
        request_timeout: float | None = None,
        validate_only: bool = False,
    ) -> dict[str, Future[None]]:
        """Create topics; a future is done when its topic is created and visible, or failed with KafkaException.

        ``operation_timeout`` is how long the controller may take, ``request_timeout`` the whole (default:
        request.timeout.ms), in seconds. ``validate_only`` checks and creates nothing.
        """
        topics = list(new_topics)
        request = pb.CreateTopicsRequest(
            topics=[topic.to_proto() for topic in topics],
            timeout_ms=int(operation_timeout * 1000),
            validate_only=validate_only,
            # The nodes and this client ask again when an answer is lost; the topic is then there, and ours.
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
        """Delete topics; timeouts as in :meth:`create_topics`."""
        names = list(topics)
        request = pb.DeleteTopicsRequest(topic_names=names, timeout_ms=int(operation_timeout * 1000))

        async def delete() -> Outcomes[str, None]:
            response = await self._change(lambda c, t: c.admin.DeleteTopics(request, timeout=t), request_timeout)
            return {r.name: _error_of(r) for r in response.topics}

        return self._futures(names, delete())

    def describe_topics(
        self, topics: TopicCollection | Iterable[str], *, request_timeout: float | None = None
    ) -> dict[str, Future[TopicDescription]]:
        """Describe topics: partitions, leaders, replicas, what is set on them."""
        names = list(TopicCollection.of(topics).topic_names)
        request = pb.DescribeTopicsRequest(topic_names=names)

        async def describe() -> Outcomes[str, TopicDescription]:
            response = await self._ask(lambda c, t: c.admin.DescribeTopics(request, timeout=t), request_timeout)
            metadata = await self._cluster.refresh([], timeout_ms=_timeout_ms(request_timeout))
            nodes = {int(b.node_id): Node(b.node_id, b.host, b.port, b.rack or None) for b in metadata.brokers.values()}
            return {d.topic.name: TopicDescription.from_proto(d, nodes) for d in response.topics}

        return self._futures(names, describe())

    def describe_cluster(self, *, request_timeout: float | None = None) -> Future[DescribeClusterResult]:
        """Describe the cluster: its id, the leading controller, nodes and voters."""

        async def describe() -> Outcomes[str, DescribeClusterResult]:
            request = pb.DescribeClusterRequest()
            response = await self._ask(lambda c, t: c.admin.DescribeCluster(request, timeout=t), request_timeout)
            return {"": DescribeClusterResult.from_proto(response)}

        return self._futures([""], describe())[""]

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the cluster's brokers and topics; raises KafkaException when none answers in ``timeout`` seconds."""
        self._lifetime.check()
        return run_sync(list_topics(self._cluster, topic, timeout))

    def delete_records(
        self,
        topic_partition_offsets: Iterable[TopicPartition],
        *,
        operation_timeout: float = 30,
        request_timeout: float | None = None,
    ) -> dict[TopicPartition, Future[DeletedRecords]]:
        """Delete the records below the offset of each partition; OFFSET_END deletes all that are committed (KIP-107).

        A future is done when the records are gone from every replica whose node lives, or failed with KafkaException:
        POLICY_VIOLATION where the topic is only compacted, OFFSET_OUT_OF_RANGE beyond the high watermark,
        REQUEST_TIMED_OUT when a replica is late (the leader deletes nevertheless). Timeouts as in
        :meth:`create_topics`.

        Raises:
            KafkaException: _INVALID_ARG: an offset or a partition below 0, or a partition twice.
        """
        partitions = list(topic_partition_offsets)
        offsets = deletion_offsets(partitions)

        async def delete() -> Outcomes[TopicPartition, DeletedRecords]:
            timeout_ms = _timeout_ms(request_timeout)
            outcomes = await RecordDeletion(self._cluster, offsets, operation_timeout * 1000, timeout_ms).run()
            return {p: outcomes[p.topic, p.partition] for p in partitions}

        return self._futures(partitions, delete())

    def describe_log_dirs(
        self, broker_ids: Iterable[int], *, request_timeout: float | None = None
    ) -> dict[int, Future[dict[str, LogDirDescription]]]:
        """Describe the log directories of nodes: for each node, by path (KIP-113)."""
        ids = list(broker_ids)

        async def describe(broker_id: int) -> Outcomes[int, dict[str, LogDirDescription]]:
            return {broker_id: await describe_node(self._cluster, broker_id, self._request_ms(request_timeout))}

        return {broker_id: self._futures([broker_id], describe(broker_id))[broker_id] for broker_id in ids}

    def alter_replica_log_dirs(
        self, replica_assignment: Mapping[TopicPartitionReplica, str], *, request_timeout: float | None = None
    ) -> dict[TopicPartitionReplica, Future[None]]:
        """Move replicas to other log directories of their nodes: a path of ``log.dirs`` for each (KIP-113).

        A future is done when the move has begun; :meth:`describe_log_dirs` shows how far it is.
        """
        by_node: dict[int, dict[TopicPartitionReplica, str]] = {}
        for replica, path in replica_assignment.items():
            by_node.setdefault(replica.broker_id, {})[replica] = path

        async def move(broker_id: int) -> Outcomes[TopicPartitionReplica, None]:
            return await move_replicas(self._cluster, broker_id, by_node[broker_id], self._request_ms(request_timeout))

        futures: dict[TopicPartitionReplica, Future[None]] = {}
        for broker_id, replicas in by_node.items():
            futures |= self._futures(list(replicas), move(broker_id))
        return futures

    def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        operation_timeout: float = 30,
        request_timeout: float | None = None,
    ) -> Future[dict[TopicPartition, TidelogError | None]]:
        """Elect leaders: the preferred ones or, where nobody leads, any replica that lives (KIP-183, KIP-460).

        Of all partitions when none are given. The result has each partition with None, or with why it has no other
        leader: ELECTION_NOT_NEEDED (left out when all are asked for), PREFERRED_LEADER_NOT_AVAILABLE,
        ELIGIBLE_LEADERS_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION. Timeouts as in :meth:`create_topics`.
        """
        request = election_request(election_type, partitions, int(operation_timeout * 1000))

        async def elect() -> Outcomes[str, dict[TopicPartition, TidelogError | None]]:
            response = await self._change(lambda c, t: c.admin.ElectLeaders(request, timeout=t), request_timeout)
            return {"": election_outcomes(response)}

        return self._futures([""], elect())[""]

    def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, NewPartitionReassignment | None],
        *,
        allow_replication_factor_change: bool = True,
        operation_timeout: float = 30,
        request_timeout: float | None = None,
    ) -> dict[TopicPartition, Future[None]]:
        """Begin to move partitions to other nodes; None cancels what is under way (KIP-455).

        A future is done when the reassignment has begun; :meth:`list_partition_reassignments` shows those that are not
        over. Without ``allow_replication_factor_change`` a target of another size fails with
        INVALID_REPLICATION_FACTOR (KIP-860). Timeouts as in :meth:`create_topics`.
        """
        timeout_ms = int(operation_timeout * 1000)
        changes_factor = allow_replication_factor_change
        request = alter_request(reassignments, timeout_ms, allow_replication_factor_change=changes_factor)

        async def alter() -> Outcomes[TopicPartition, None]:
            return alter_outcomes(
                await self._change(
                    lambda c, t: c.admin.AlterPartitionReassignments(request, timeout=t), request_timeout
                )
            )

        return self._futures(list(reassignments), alter())

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, request_timeout: float | None = None
    ) -> Future[dict[TopicPartition, PartitionReassignment]]:
        """List the reassignments under way, of these partitions or of all (KIP-455)."""
        wanted = None if partitions is None else list(partitions)

        async def list_ongoing() -> Outcomes[str, dict[TopicPartition, PartitionReassignment]]:
            if wanted == []:
                return {"": {}}
            request = list_request(wanted)
            response = await self._ask(
                lambda c, t: c.admin.ListPartitionReassignments(request, timeout=t), request_timeout
            )
            return {"": ongoing_reassignments(response)}

        return self._futures([""], list_ongoing())[""]

    def close(self) -> None:
        """Close the connections; operations under way fail with _DESTROY. A second call does nothing."""
        if self._lifetime.is_over:
            return
        self._lifetime.end()
        self._lifetime.stop()

    def _request_ms(self, timeout_s: float | None) -> float:
        timeout_ms = _timeout_ms(timeout_s)
        return self._cluster.request_timeout_ms if timeout_ms is None else timeout_ms

    async def _ask(self, ask: Callable[[Connection, float], Awaitable[T]], timeout_s: float | None) -> T:
        return await self._cluster.ask_any(ask, timeout_ms=_timeout_ms(timeout_s), attempt_ms=_READ_ATTEMPT_MS)

    async def _change(self, ask: Callable[[Connection, float], Awaitable[T]], timeout_s: float | None) -> T:
        # A change may be asked for only once, and for long. So a node is found first that answers at all.
        await self._cluster.refresh([], timeout_ms=_timeout_ms(timeout_s))
        return await self._cluster.ask_any(ask, timeout_ms=_timeout_ms(timeout_s))

    def _futures(self, keys: Sequence[K], ask: Coroutine[Any, Any, Outcomes[K, T]]) -> dict[K, Future[T]]:
        if self._lifetime.is_over:
            ask.close()
            self._lifetime.check()
        futures: dict[K, Future[T]] = {key: Future() for key in keys}
        for future in futures.values():
            future.set_running_or_notify_cancel()
        asyncio.run_coroutine_threadsafe(_settle(futures, ask), network_loop())
        return futures


async def _settle(futures: Mapping[K, Future[T]], ask: Coroutine[Any, Any, Outcomes[K, T]]) -> None:
    failure = error_for(ErrorCode.UNKNOWN_SERVER_ERROR, "the node's answer leaves it out")
    outcomes: Outcomes[K, T] = {}
    try:
        outcomes = await ask
    except TidelogError as error:
        failure = error
    except asyncio.CancelledError:
        failure = error_for(ErrorCode._DESTROY, "the admin client was closed before the cluster answered")
    except Exception as error:
        logger.exception("an operation of the admin client failed")
        failure = error_for(ErrorCode._FAIL, f"the admin client failed: {error!r}")
    for key, future in futures.items():
        outcome = outcomes.get(key, failure)
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


async def _await_visible(cluster: ClusterClient, names: Sequence[str]) -> None:
    # A courtesy: the node that answers next should know the topic and its leaders. Creation has succeeded in any case.
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


def _timeout_ms(timeout_s: float | None) -> float | None:
    return None if timeout_s is None or timeout_s < 0 else timeout_s * 1000

"""confluent-kafka's AdminClient: each operation returns at once with futures, one per topic, partition or node."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence

from tidelog.admin.configs import ConfigAdmin
from tidelog.admin.elections import ElectionAdmin
from tidelog.admin.features import FeatureAdmin
from tidelog.admin.log_dirs import LogDirDescription, TopicPartitionReplica, describe_node, move_replicas
from tidelog.admin.metadata import ClusterMetadata, list_topics
from tidelog.admin.operations import Future, Outcomes, timeout_in_ms
from tidelog.admin.partitions import PartitionAdmin
from tidelog.admin.reassignments import ReassignmentAdmin
from tidelog.admin.records import DeletedRecords, RecordDeletion, deletion_offsets
from tidelog.admin.topics import DescribeClusterResult, NewTopic, Node, TopicCollection, TopicDescription
from tidelog.cluster import ClusterClient
from tidelog.errors import TidelogError, error_for
from tidelog.ids import REQUEST_ID_SIZE
from tidelog.message import TopicPartition
from tidelog.transport import run_sync
from tidelog.v1 import admin_service_pb2 as pb

_VISIBLE_TIMEOUT_MS = 5_000


class AdminClient(ConfigAdmin, ElectionAdmin, FeatureAdmin, PartitionAdmin, ReassignmentAdmin):
    """Administers a cluster; may be used from any thread. Close it, or use it as a context manager.

    ::

        with AdminClient({"bootstrap.servers": "127.0.0.1:9094"}) as admin:
            admin.create_topics([NewTopic("flights", 12, 3)])["flights"].result()
    """

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
            metadata = await self._cluster.refresh([], timeout_ms=timeout_in_ms(request_timeout))
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
            timeout_ms = timeout_in_ms(request_timeout)
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

"""Operations that create, enlarge, delete and describe topics (KIP-195), with confluent-kafka's names."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.admin.operations import Future, Operations, Outcomes, timeout_in_ms
from tidelog.admin.resources import TOPIC_OPERATIONS, AclOperation, authorized_operations
from tidelog.cluster import ClusterClient
from tidelog.cluster.answers import error_of
from tidelog.uuid import Uuid
from tidelog.v1 import admin_service_pb2 as pb
from tidelog.v1 import log_service_pb2
from tidelog.v1.common_pb2 import ConfigEntry
from tidelog_foundation.config.endpoints import NamedListener
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import REQUEST_ID_SIZE


@dataclass(slots=True)
class NewTopic:
    """A topic to create; -1 means the cluster's default. ``replica_assignment`` lists broker ids per partition."""

    topic: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignment: Sequence[Sequence[int]] = ()
    config: Mapping[str, str] = field(default_factory=dict)

    def to_proto(self) -> pb.CreatableTopic:
        """Return the protobuf message.

        Raises:
            TidelogError: _INVALID_ARG for a value that a request cannot carry, such as a number beyond 32 bits.
            TypeError: a field is of the wrong type.
        """
        try:
            return self._to_proto()
        except ValueError as error:
            raise error_for(ErrorCode._INVALID_ARG, f"new topic {self.topic!r} is not valid: {error}") from error

    def _to_proto(self) -> pb.CreatableTopic:
        if not isinstance(self.topic, str):
            raise TypeError(f"topic must be text, not {type(self.topic).__name__}")
        has_assignment = bool(self.replica_assignment)
        return pb.CreatableTopic(
            name=self.topic,
            num_partitions=-1 if has_assignment else self.num_partitions,
            replication_factor=-1 if has_assignment else self.replication_factor,
            assignments=[
                pb.ReplicaAssignment(partition_index=index, broker_ids=ids)
                for index, ids in enumerate(self.replica_assignment)
            ],
            configs=[ConfigEntry(name=name, value=str(value)) for name, value in self.config.items()],
        )


@dataclass(slots=True)
class NewPartitions:
    """The new number of partitions of a topic, which must be larger than the current one.

    ``replica_assignment`` lists the node ids of each added partition; if it is empty, the controller chooses them.
    """

    topic: str
    new_total_count: int
    replica_assignment: Sequence[Sequence[int]] = ()

    def to_proto(self) -> pb.NewPartitions:
        """Return the protobuf message.

        Raises:
            TidelogError: _INVALID_ARG for a value that a request cannot carry, such as a number beyond 32 bits.
        """
        try:
            assignments = [pb.ReplicaAssignment(broker_ids=ids) for ids in self.replica_assignment]
            return pb.NewPartitions(name=self.topic, count=self.new_total_count, assignments=assignments)
        except (TypeError, ValueError) as error:
            text = f"new partitions of topic {self.topic!r} are not valid: {error}"
            raise error_for(ErrorCode._INVALID_ARG, text) from error


@dataclass(frozen=True, slots=True)
class TopicCollection:
    """The topics to describe, by name."""

    topic_names: Sequence[str]

    @classmethod
    def of(cls, topics: TopicCollection | Iterable[str]) -> TopicCollection:
        """Return a collection of the names, or the collection itself."""
        return topics if isinstance(topics, cls) else cls(list(topics))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Node:
    """A storage node or a controller."""

    id: int
    host: str = ""
    port: int = -1
    rack: str | None = None

    @property
    def id_string(self) -> str:
        """The id as text."""
        return str(self.id)

    def __str__(self) -> str:
        # confluent-kafka also prints the trailing space of a node without a rack.
        return f"({self.id}) {self.host}:{self.port} " + (f"(Rack - {self.rack})" if self.rack else "")


@dataclass(frozen=True, slots=True)
class TopicPartitionInfo:
    """A partition. ``leader`` is None while there is none."""

    id: int
    leader: Node | None
    replicas: list[Node]
    isr: list[Node]
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic's partitions in order, and its own settings; ``config`` omits defaults."""

    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: list[TopicPartitionInfo]
    config: dict[str, str]
    authorized_operations: list[AclOperation] | None = None
    """The operations that the client may perform, if requested."""

    @classmethod
    def from_proto(
        cls, message: pb.TopicDescription, nodes: Mapping[int, Node], *, with_operations: bool = False
    ) -> TopicDescription | TidelogError:
        """Return the description, or the topic's error."""
        topic = message.topic
        if (error := error_of(topic)) is not None:
            return error
        partitions = sorted((_partition(p, nodes) for p in topic.partitions), key=lambda p: p.id)
        config = {entry.name: entry.value for entry in message.configs}
        operations = authorized_operations(message, TOPIC_OPERATIONS) if with_operations else None
        return cls(topic.name, Uuid.from_bytes(topic.topic_id), topic.is_internal, partitions, config, operations)


@dataclass(frozen=True, slots=True)
class DescribeClusterResult:
    """A cluster. ``controller`` is the leader of the quorum of ``voters``, or None if it is unknown.

    ``listeners`` maps node ids to the addresses of all their listeners, including those for Kafka's clients.
    """

    cluster_id: str
    controller: Node | None
    nodes: list[Node]
    voters: list[Node]
    fenced_ids: frozenset[int]
    listeners: dict[int, tuple[NamedListener, ...]]
    authorized_operations: list[AclOperation] | None = None
    """The operations that the client may perform, if requested."""

    @classmethod
    def from_proto(cls, response: pb.DescribeClusterResponse) -> DescribeClusterResult:
        """Return the description in a response."""
        voters = [Node(v.voter_id, v.endpoint.host, v.endpoint.port) for v in response.voters]
        controller = next((v for v in voters if v.id == response.controller_id), None)
        nodes = [Node(b.broker_id, b.host, b.port, b.rack or None) for b in response.brokers]
        fenced = frozenset(b.broker_id for b in response.brokers if b.is_fenced)
        return cls(
            response.cluster_id,
            controller,
            sorted(nodes, key=lambda n: n.id),
            sorted(voters, key=lambda n: n.id),
            fenced,
            {
                b.broker_id: tuple(NamedListener(x.name, x.host, x.port, x.security_protocol) for x in b.listeners)
                for b in response.brokers
            },
        )


def _partition(message: log_service_pb2.PartitionMetadata, nodes: Mapping[int, Node]) -> TopicPartitionInfo:
    def known(ids: Iterable[int]) -> list[Node]:
        return [nodes.get(node_id, Node(node_id)) for node_id in ids]

    leader = known([message.leader_id])[0] if message.leader_id >= 0 else None
    return TopicPartitionInfo(
        message.index, leader, known(message.replica_nodes), known(message.isr_nodes), message.leader_epoch
    )


_VISIBLE_TIMEOUT_MS = 5_000


class TopicAdmin(Operations):
    """Operations on topics and their numbers of partitions."""

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
            outcomes = {r.name: error_of(r) for r in response.topics}
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
            return {r.name: error_of(r) for r in response.topics}

        return self._futures(names, delete())

    def describe_topics(
        self,
        topics: TopicCollection | Iterable[str],
        *,
        include_authorized_operations: bool = False,
        request_timeout: float | None = None,
    ) -> dict[str, Future[TopicDescription]]:
        """Describe topics: partitions, leaders, replicas, and the topics' own settings.

        ``include_authorized_operations`` adds the operations that the client may perform.
        """
        names = list(TopicCollection.of(topics).topic_names)
        request = pb.DescribeTopicsRequest(
            topic_names=names, include_authorized_operations=include_authorized_operations
        )

        async def describe() -> Outcomes[str, TopicDescription]:
            response = await self._ask(lambda c, t: c.admin.DescribeTopics(request, timeout=t), request_timeout)
            metadata = await self._cluster.refresh([], timeout_ms=timeout_in_ms(request_timeout))
            nodes = {int(b.node_id): Node(b.node_id, b.host, b.port, b.rack or None) for b in metadata.brokers.values()}
            return {
                d.topic.name: TopicDescription.from_proto(d, nodes, with_operations=include_authorized_operations)
                for d in response.topics
            }

        return self._futures(names, describe())

    def create_partitions(
        self,
        new_partitions: Iterable[NewPartitions],
        *,
        operation_timeout: float = 30,
        request_timeout: float | None = None,
        validate_only: bool = False,
    ) -> dict[str, Future[None]]:
        """Add partitions to topics. A future is done when they exist, or fails with KafkaException.

        ``operation_timeout`` limits the controller's work, ``request_timeout`` the whole operation (default:
        request.timeout.ms), in seconds. ``validate_only`` only validates. Existing records stay in their partitions,
        while new records with the same keys may go to other ones.
        """
        wanted = list(new_partitions)
        request = pb.CreatePartitionsRequest(
            topics=[topic.to_proto() for topic in wanted],
            timeout_ms=int(operation_timeout * 1000),
            validate_only=validate_only,
        )

        async def create() -> Outcomes[str, None]:
            response = await self._change(lambda c, t: c.admin.CreatePartitions(request, timeout=t), request_timeout)
            return {r.name: error_of(r) for r in response.topics}

        return self._futures([topic.topic for topic in wanted], create())


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

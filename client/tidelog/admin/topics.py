"""The admin client's arguments and results for topics and the cluster, with confluent-kafka's names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.admin.resources import AclOperation
from tidelog.uuid import Uuid
from tidelog.v1 import admin_service_pb2 as pb
from tidelog.v1 import log_service_pb2
from tidelog.v1.common_pb2 import ConfigEntry, ListenerEndpoint
from tidelog_foundation.config.endpoints import NamedListener
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for


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
    """Operations that the client may do, if requested: all, because authorization does not exist yet."""

    @classmethod
    def from_proto(cls, message: pb.TopicDescription, nodes: Mapping[int, Node]) -> TopicDescription | TidelogError:
        """Return the description, or the topic's error."""
        topic = message.topic
        if topic.HasField("error"):
            return error_for(topic.error.code, topic.error.message)
        partitions = sorted((_partition(p, nodes) for p in topic.partitions), key=lambda p: p.id)
        config = {entry.name: entry.value for entry in message.configs}
        return cls(topic.name, Uuid.from_bytes(topic.topic_id), topic.is_internal, partitions, config)


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
    """Operations that the client may do, if requested: all, because authorization does not exist yet."""

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
            {b.broker_id: tuple(map(_listener, b.listeners)) for b in response.brokers},
        )


def _listener(message: ListenerEndpoint) -> NamedListener:
    return NamedListener(message.name, message.host, message.port, message.security_protocol)


def _partition(message: log_service_pb2.PartitionMetadata, nodes: Mapping[int, Node]) -> TopicPartitionInfo:
    def known(ids: Iterable[int]) -> list[Node]:
        return [nodes.get(node_id, Node(node_id)) for node_id in ids]

    leader = known([message.leader_id])[0] if message.leader_id >= 0 else None
    return TopicPartitionInfo(
        message.index, leader, known(message.replica_nodes), known(message.isr_nodes), message.leader_epoch
    )

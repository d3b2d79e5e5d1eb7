"""A client's cluster metadata as an immutable value, and the rules of its updates.

:meth:`ClusterMetadata.apply` and :meth:`ClusterMetadata.with_leader` uphold these rules:

- a node answers from its own image, which may lag: a partition never returns to an older leader epoch while its topic
  id stays the same (KIP-320);
- another topic id means that the topic was deleted and recreated, and its epochs start again;
- an answer replaces the topics that it names and keeps the others, unless all topics were requested;
- an answer without brokers comes from a node without metadata: the known brokers stay;
- the cluster id never changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, KafkaError, error_for
from tidelog_foundation.ids import NO_BROKER, BrokerId, LeaderEpoch, TopicId

NO_TOPIC_ID = TopicId(b"")
"""The id of a topic that has an error instead."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A storage node that serves clients."""

    node_id: BrokerId
    host: str
    port: int
    rack: str = ""

    @property
    def address(self) -> str:
        """The address ``host:port`` in gRPC's format."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition's replicas and leader; ``leader_id`` is -1 while it has none."""

    index: int
    leader_id: BrokerId
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...] = ()
    isr: tuple[BrokerId, ...] = ()
    offline_replicas: tuple[BrokerId, ...] = ()


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic's partitions by index, or an error instead."""

    name: str
    topic_id: TopicId = NO_TOPIC_ID
    is_internal: bool = False
    error: KafkaError | None = None
    partitions: Mapping[int, Partition] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """Brokers by id and topics by name. Immutable: each change returns a new value."""

    cluster_id: str = ""
    controller_id: BrokerId = NO_BROKER
    brokers: Mapping[BrokerId, Broker] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)

    def apply(self, response: pb.GetMetadataResponse, *, all_topics: bool = False) -> ClusterMetadata:
        """Return the metadata after ``response``; ``all_topics`` drops topics that it does not name.

        Raises:
            TidelogError: INCONSISTENT_CLUSTER_ID if it comes from another cluster.
        """
        if self.cluster_id and response.cluster_id and response.cluster_id != self.cluster_id:
            raise error_for(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f'expected cluster "{self.cluster_id}", but the node belongs to "{response.cluster_id}"',
            )
        answered = {t.name: _newer(_topic(t), self.topics.get(t.name)) for t in response.topics}
        brokers = {BrokerId(b.node_id): Broker(BrokerId(b.node_id), b.host, b.port, b.rack) for b in response.brokers}
        return ClusterMetadata(
            response.cluster_id or self.cluster_id,
            BrokerId(response.controller_id),
            MappingProxyType(brokers or dict(self.brokers)),
            MappingProxyType(answered if all_topics else {**self.topics, **answered}),
        )

    def with_leader(self, topic: str, partition: int, leader_id: int, leader_epoch: int) -> ClusterMetadata:
        """Return the metadata after a node named a partition's leader; unchanged unless the epoch is newer."""
        known = self.partition(topic, partition)
        if known is None or leader_epoch <= known.leader_epoch:
            return self
        moved = replace(known, leader_id=BrokerId(leader_id), leader_epoch=LeaderEpoch(leader_epoch))
        old = self.topics[topic]
        changed = replace(old, partitions=MappingProxyType({**old.partitions, partition: moved}))
        return replace(self, topics=MappingProxyType({**self.topics, topic: changed}))

    def partition(self, topic: str, partition: int) -> Partition | None:
        """Return a partition, or None if unknown."""
        known = self.topics.get(topic)
        return None if known is None else known.partitions.get(partition)

    def leader(self, topic: str, partition: int) -> Broker | None:
        """Return the broker that leads a partition; None without a leader or its address."""
        known = self.partition(topic, partition)
        return None if known is None else self.brokers.get(known.leader_id)

    def check_invariants(self) -> None:
        """Assert the invariants: keys match their values, and no topic has both an error and partitions."""
        assert all(node_id == broker.node_id for node_id, broker in self.brokers.items())
        for name, topic in self.topics.items():
            assert name == topic.name
            assert topic.error is None or not topic.partitions, f"{name} has an error and partitions"
            assert all(index == p.index for index, p in topic.partitions.items())


def _topic(message: pb.TopicMetadata) -> Topic:
    error = KafkaError(message.error.code, message.error.message) if message.HasField("error") else None
    partitions = {} if error else {p.index: _partition(p) for p in message.partitions}
    return Topic(
        message.name,
        TopicId(message.topic_id),
        message.is_internal,
        error,
        MappingProxyType(dict(sorted(partitions.items()))),
    )


def _partition(message: pb.PartitionMetadata) -> Partition:
    return Partition(
        message.index,
        BrokerId(message.leader_id),
        LeaderEpoch(message.leader_epoch),
        tuple(BrokerId(i) for i in message.replica_nodes),
        tuple(BrokerId(i) for i in message.isr_nodes),
        tuple(BrokerId(i) for i in message.offline_replicas),
    )


def _newer(answered: Topic, known: Topic | None) -> Topic:
    if known is None or answered.error is not None or answered.topic_id != known.topic_id:
        return answered
    kept = {
        index: old
        for index, old in known.partitions.items()
        if index not in answered.partitions or answered.partitions[index].leader_epoch < old.leader_epoch
    }
    if not kept:
        return answered
    merged = {**answered.partitions, **kept}
    return replace(answered, partitions=MappingProxyType(dict(sorted(merged.items()))))

"""The cluster and its groups as confluent-kafka's ``list_topics()`` and ``list_groups()`` show them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from tidelog import cluster as known
from tidelog.cluster import Broker, ClusterClient
from tidelog.uuid import Uuid
from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, KafkaError

NO_TOPIC_ID = Uuid(0, 0)
"""The id of a missing topic."""


@dataclass(slots=True)
class BrokerMetadata:
    """A storage node."""

    id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.id}"


@dataclass(slots=True)
class PartitionMetadata:
    """A partition: its leader (-1 for none), replicas and in-sync replicas, as node ids."""

    id: int
    leader: int
    replicas: list[int]
    isrs: list[int]
    leader_epoch: int = -1
    error: KafkaError | None = None

    def __str__(self) -> str:
        return str(self.id)


@dataclass(slots=True)
class TopicMetadata:
    """A topic: its partitions by number, or an error. With an error, ``topic_id`` is zero."""

    topic: str
    partitions: dict[int, PartitionMetadata] = field(default_factory=dict)
    error: KafkaError | None = None
    topic_id: Uuid = NO_TOPIC_ID

    def __str__(self) -> str:
        return self.topic


@dataclass(slots=True)
class ClusterMetadata:
    """Nodes by id, topics by name, and the id of the leading controller (-1 if unknown).

    ``orig_broker_name`` is ``host:port/id`` of the node that answered.
    """

    cluster_id: str = ""
    controller_id: int = -1
    brokers: dict[int, BrokerMetadata] = field(default_factory=dict)
    topics: dict[str, TopicMetadata] = field(default_factory=dict)
    orig_broker_id: int = -1
    """The node that answered; -1 if only its bootstrap address is known."""
    orig_broker_name: str | None = None

    def __str__(self) -> str:
        return self.cluster_id


async def list_topics(client: known.ClusterClient, topic: str | None, timeout_s: float) -> ClusterMetadata:
    """Return one topic, or all (None), within ``timeout_s`` seconds (-1: request.timeout.ms).

    Raises:
        TidelogError: no node answered.
    """
    timeout_ms = None if timeout_s < 0 else timeout_s * 1000
    metadata = await client.refresh(None if topic is None else [topic], timeout_ms=timeout_ms)
    names = sorted(metadata.topics) if topic is None else [topic]
    address = client.answered_last
    origin = next((b.node_id for b in metadata.brokers.values() if b.address == address), -1)
    return ClusterMetadata(
        metadata.cluster_id,
        metadata.controller_id,
        {b.node_id: BrokerMetadata(b.node_id, b.host, b.port) for b in metadata.brokers.values()},
        {name: _topic(name, metadata.topics.get(name)) for name in names},
        origin,
        None if address is None else f"{address}/{'bootstrap' if origin < 0 else origin}",
    )


async def cluster_id(client: known.ClusterClient, timeout_s: float) -> str:
    """Return the cluster's id, within ``timeout_s`` seconds (-1: request.timeout.ms).

    Raises:
        TidelogError: no node answered.
    """
    metadata = await client.refresh([], timeout_ms=None if timeout_s < 0 else timeout_s * 1000)
    return metadata.cluster_id


def _topic(name: str, topic: known.Topic | None) -> TopicMetadata:
    if topic is None:
        return TopicMetadata(name, error=KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    partitions = {index: _partition(partition) for index, partition in topic.partitions.items()}
    return TopicMetadata(name, partitions, topic.error, Uuid.from_bytes(topic.topic_id))


def _partition(partition: known.Partition) -> PartitionMetadata:
    return PartitionMetadata(
        partition.index,
        partition.leader_id,
        list(partition.replicas),
        list(partition.isr),
        partition.leader_epoch,
        KafkaError(ErrorCode.LEADER_NOT_AVAILABLE) if partition.leader_id < 0 else None,
    )


@dataclass(slots=True)
class GroupMember:
    """A member of a classic group. Its protocol type defines the encoding of ``metadata`` and ``assignment``."""

    id: str
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(slots=True)
class GroupMetadata:
    """A group. ``state`` is Kafka's name, ``protocol`` the assignor, ``broker`` the coordinator."""

    broker: BrokerMetadata
    id: str
    error: KafkaError | None
    state: str
    protocol_type: str
    protocol: str = ""
    members: list[GroupMember] = field(default_factory=list)

    def __str__(self) -> str:
        return self.id


async def group_metadata(client: ClusterClient, group: str | None, timeout_s: float) -> list[GroupMetadata]:
    """Return one group, or those of every node (None), within ``timeout_s`` seconds (-1: request.timeout.ms).

    Raises:
        TidelogError: a node did not answer.
    """
    timeout_ms = client.request_timeout_ms if timeout_s < 0 else timeout_s * 1000
    deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
    metadata = await client.refresh([], timeout_ms=timeout_ms)
    answers = (_of_node(client, broker, group, deadline) for broker in metadata.brokers.values())
    found = [listed for answer in await asyncio.gather(*answers) for listed in answer]
    return sorted(found, key=lambda listed: listed.id)


async def _of_node(client: ClusterClient, broker: Broker, group: str | None, deadline: float) -> list[GroupMetadata]:
    connection = client.connection(broker.node_id)

    def left_s() -> float:
        return max(deadline - asyncio.get_running_loop().time(), 0.001)

    listed = await connection.call(lambda c: c.groups.ListGroups(pb.ListGroupsRequest(), timeout=left_s()))
    by_id = {g.group_id: g for g in listed.groups if group in (None, g.group_id)}
    classic = [g for g, listing in by_id.items() if listing.group_type.lower() != "consumer"]
    request = pb.DescribeGroupsRequest(group_ids=classic)
    described = {}
    if request.group_ids:
        response = await connection.call(lambda c: c.groups.DescribeGroups(request, timeout=left_s()))
        described = {g.group_id: g for g in response.groups}
    node = BrokerMetadata(broker.node_id, broker.host, broker.port)
    return [_group(node, listing, described.get(group_id)) for group_id, listing in by_id.items()]


def _group(node: BrokerMetadata, listing: pb.GroupListing, described: pb.DescribedGroup | None) -> GroupMetadata:
    if described is None:
        return GroupMetadata(node, listing.group_id, None, listing.group_state, listing.protocol_type)
    error = KafkaError(described.error.code, described.error.message) if described.HasField("error") else None
    members = [
        GroupMember(m.member_id, m.client_id, m.client_host, m.member_metadata, m.member_assignment)
        for m in described.members
    ]
    return GroupMetadata(
        node,
        listing.group_id,
        error,
        described.group_state,
        described.protocol_type,
        described.protocol_data,
        members,
    )

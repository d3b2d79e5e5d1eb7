"""Groups of any protocol type as confluent-kafka's ``list_groups()`` shows them, with their members' raw bytes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from tidelog.admin.metadata import BrokerMetadata
from tidelog.cluster import Broker, ClusterClient
from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import KafkaError


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
    request = pb.DescribeGroupsRequest(group_ids=[g for g, listing in by_id.items() if _is_classic(listing)])
    described = {}
    if request.group_ids:
        response = await connection.call(lambda c: c.groups.DescribeGroups(request, timeout=left_s()))
        described = {g.group_id: g for g in response.groups}
    node = BrokerMetadata(broker.node_id, broker.host, broker.port)
    return [_group(node, listing, described.get(group_id)) for group_id, listing in by_id.items()]


def _is_classic(listing: pb.GroupListing) -> bool:
    return listing.group_type.lower() != "consumer"


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

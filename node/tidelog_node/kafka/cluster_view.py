"""The view of an image for the clients of one listener: the brokers with that listener and the reachable leaders.

It follows Kafka's KRaftMetadataCache. A broker without the listener is invisible, and a partition that it leads has no
leader.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.ids import NO_BROKER, BrokerId, DirectoryId
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_node.kafka.protocol.primitives import NodeEndpoint
from tidelog_quorum.metadata.registrations import BrokerRegistration, PartitionRegistration

_Ids: TypeAlias = tuple[BrokerId, ...]
_MOST_LISTS: Final = 50_000


class ShownBroker(NamedTuple):
    """A broker with the listener, and its address on it."""

    broker: BrokerRegistration
    endpoint: Endpoint


class ShownPartition(NamedTuple):
    """A partition. ``error`` is Kafka's code; with an error ``leader`` may be -1."""

    error: int
    leader: int
    replicas: _Ids
    isr: _Ids
    offline: _Ids


class ClusterView:
    """The brokers of an image as ``listener`` shows them, valid until the brokers change."""

    def __init__(self, brokers: Mapping[BrokerId, BrokerRegistration], listener: str) -> None:
        self.brokers = brokers
        found = ((b, b.endpoint_on(listener)) for _, b in sorted(brokers.items()))
        self.shown = {b.broker_id: ShownBroker(b, endpoint) for b, endpoint in found if endpoint is not None}
        self.alive = {i: s for i, s in self.shown.items() if not s.broker.fenced}
        self._offline: dict[tuple[_Ids, tuple[DirectoryId, ...]], _Ids] = {}

    def any_alive(self) -> int:
        """Return the id of an unfenced broker, -1 if there is none.

        Clients receive it as the controller, since nodes forward controller requests (KIP-590).
        """
        return random.choice(list(self.alive)) if self.alive else NO_BROKER

    def partition(self, partition: PartitionRegistration, version: int) -> ShownPartition:
        """Return a partition in the form of this version of Metadata.

        Version 0 omits unreachable replicas and sets an error. Before version 6 a leader without the listener counts as
        none.
        """
        replicas, isr = partition.replicas, partition.isr
        if version == 0:
            replicas, isr = self._reachable(replicas), self._reachable(isr)
        error, leader = ErrorCode.NONE, partition.leader
        if leader not in self.shown:
            without_listener = version >= 6 and leader in self.brokers
            error = ErrorCode.LISTENER_NOT_FOUND if without_listener else ErrorCode.LEADER_NOT_AVAILABLE
            leader = NO_BROKER
        elif len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
        return ShownPartition(error.code, leader, replicas, isr, self._offline_of(partition))

    def _reachable(self, ids: _Ids) -> _Ids:
        return tuple(i for i in ids if i in self.alive)

    def _offline_of(self, partition: PartitionRegistration) -> _Ids:
        # A cluster has many partitions but few different lists of replicas and directories.
        key = (partition.replicas, partition.directories)
        offline = self._offline.get(key)
        if offline is None:
            if len(self._offline) >= _MOST_LISTS:
                self._offline.clear()
            pairs = zip(*key, strict=True)
            offline = self._offline[key] = tuple(i for i, directory in pairs if not self._is_online(i, directory))
        return offline

    def _is_online(self, replica: BrokerId, directory: DirectoryId) -> bool:
        return replica in self.alive and self.alive[replica].broker.has_online(directory)


def leader_endpoints(
    brokers: Mapping[BrokerId, BrokerRegistration], leaders: Iterable[BrokerId], listener: str
) -> list[NodeEndpoint]:
    """Return the addresses of unfenced leaders on a listener, for a response that names them (KIP-951)."""
    found = []
    for leader in sorted(set(leaders)):
        broker = brokers.get(leader)
        endpoint = None if broker is None or broker.fenced else broker.endpoint_on(listener)
        if broker is not None and endpoint is not None:
            found.append(NodeEndpoint(leader, endpoint.host, endpoint.port, broker.rack or None))
    return found

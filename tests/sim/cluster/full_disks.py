"""The product's ``FullDisks`` of a simulated node, which looks at the simulated disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from tidelog.ids import BrokerId, DirectoryId, LeaderEpoch, TopicId
from tidelog_node.partitions.full_disks import FullDisks
from tidelog_node.partitions.partition import Partition

if TYPE_CHECKING:
    from sim.cluster.replicas import Replicas, SimulatedPartition

_ROOM_BYTES = 2_000


class SimulatedFullDisks(FullDisks):
    """Its own effects: what it asks for is asked of the node that the replicas are on."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        super().__init__(cast(Any, self), self)

    @property
    def online(self) -> list[Any]:
        """The log directories that can be used: the one that there is."""
        return [self._replicas.directory]

    def look_now(self) -> None:
        """Give those their place again whose disk has room."""
        free = self._replicas.node.files.capacity
        if free is not None and free < _ROOM_BYTES:
            return
        for partition in sorted(self._stepped_back, key=str):
            self._return(partition, self._replicas.directory.path)

    def assign(self, topic_id: TopicId, index: int, directory: DirectoryId, *, keeps_log: bool = False) -> None:
        """Tell the controller in which log directory a replica is."""
        self._replicas.assign(topic_id, index, directory, keeps_log)

    def start_fetching(self, partition: Partition, leader_id: BrokerId, leader_epoch: LeaderEpoch) -> None:
        """Copy a partition from its leader."""
        self._replicas.node.start_fetching(partition, leader_id, leader_epoch)

    def stop_fetching(self, partition: Partition) -> None:
        """Copy it no more."""
        self._replicas.node.fetchers.stop(cast("SimulatedPartition", partition))

"""Replicas whose disk is full: others lead and are in sync in their place until there is room again.

A full disk refuses an append and leaves the log as it was. Where Kafka gives up the whole log directory until the next
start, such a replica alone steps back: the controller is told that its directory is lost (KIP-858), which takes it out
of the ISR and lets another member lead, so that nobody waits for it for ``replica.lag.time.max.ms``. It copies nothing
meanwhile; its log stays open, and retention may make the room that it needs. The last replica in sync has nobody to
take its place: it stays, refuses records and serves reads.

When such a replica has its place again it says that its log was never lost. So it stays an eligible leader (KIP-966),
as others that left the ISR do: with a new and empty one in its place, one crash of the others could lose records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from tidelog.errors import TidelogError
from tidelog.ids import LOST_DIRECTORY, NO_BROKER, BrokerId, DirectoryId, LeaderEpoch, TopicId
from tidelog_node.partitions.log_directories import LogDirectories
from tidelog_node.partitions.partition import Partition
from tidelog_quorum.metadata import PartitionRegistration

logger = logging.getLogger(__name__)

_BATCHES = 2
"""There is room again where so many of the largest batches find a place."""


class FullDiskEffects(Protocol):
    """What is asked of the node."""

    def assign(self, topic_id: TopicId, index: int, directory: DirectoryId, *, keeps_log: bool = False) -> None:
        """Tell the controller in which log directory a replica is; with ``keeps_log``, that it was never lost."""
        ...

    def start_fetching(self, partition: Partition, leader_id: BrokerId, leader_epoch: LeaderEpoch) -> None:
        """Copy a partition from its leader."""
        ...

    def stop_fetching(self, partition: Partition) -> None:
        """Copy it no more."""
        ...


class FullDisks:
    """Owned by the registry, on the event loop; only the look at a file system is in a thread."""

    def __init__(self, directories: LogDirectories, effects: FullDiskEffects) -> None:
        self._directories = directories
        self._effects = effects
        self._stepped_back: set[Partition] = set()
        self._placed: set[Partition] = set()

    def step_back(self, partition: Partition, error: TidelogError) -> None:
        """Let others take the place of a replica whose append was refused, where there is one who can.

        A second call does nothing.
        """
        leader = partition.state.leader
        others = () if leader is None else leader.isr.members & leader.eligible.keys() - {leader.local_id}
        if partition in self._stepped_back or (leader is not None and not others):
            return
        logger.error("%s steps back on this node until its disk has room: %s", partition, error.message)
        self._stepped_back.add(partition)
        self._effects.stop_fetching(partition)
        self._effects.assign(partition.topic_id, partition.index, LOST_DIRECTORY)

    def stays_back(self, partition: Partition, registration: PartitionRegistration) -> bool:
        """Return whether a replica is still without a part after a change of its partition.

        It is not when nobody is left who could lead: then it has its place again.
        """
        if partition not in self._stepped_back:
            return False
        others = set(registration.isr) - {partition.state.local_id}
        if registration.leader == NO_BROKER or not others:
            self._stepped_back.discard(partition)
            return False
        self._effects.stop_fetching(partition)
        return True

    def note_place(self, partition: Partition) -> None:
        """Note that the controller has a replica in the directory where its log is."""
        self._placed.add(partition)

    def keeps_log(self, partition: Partition) -> bool:
        """Return whether a replica's log is what it was when the controller had it in its directory."""
        return partition in self._placed

    def forget(self, partition: Partition) -> None:
        """Drop a replica that is here no more, or offline."""
        self._stepped_back.discard(partition)
        self._placed.discard(partition)

    async def look(self) -> None:
        """Give those their place again whose disk has room."""
        for path in {partition.log.directory.parent for partition in self._stepped_back}:
            free = (await asyncio.to_thread(self._directories.space, path))[1]
            for partition in self._those_on(path):
                # A file system that does not say is tried.
                if not 0 <= free < _BATCHES * partition.log.config.max_message_bytes:
                    self._return(partition, path)

    def _those_on(self, path: Path) -> Iterable[Partition]:
        return [partition for partition in self._stepped_back if partition.log.directory.parent == path]

    def _return(self, partition: Partition, path: Path) -> None:
        directory = next((d for d in self._directories.online if d.path == path), None)
        if directory is None:
            return
        logger.info("The disk of %s has room again", partition)
        self._stepped_back.discard(partition)
        self._effects.assign(partition.topic_id, partition.index, directory.id, keeps_log=self.keeps_log(partition))
        state = partition.state
        if state.leader is None and state.leader_id != NO_BROKER:
            self._effects.start_fetching(partition, state.leader_id, state.leader_epoch)

"""What the partitions of a node ask of it, passed on to the fetchers and to those who talk to the controller."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from tidelog.errors import TidelogError
from tidelog.ids import BrokerId, DirectoryId, LeaderEpoch, TopicId
from tidelog_node.partitions.directory_assignments import DirectoryAssignments
from tidelog_node.partitions.fetcher_pool import FetcherPool
from tidelog_node.partitions.isr_changes import IsrChanges
from tidelog_node.partitions.partition import Partition
from tidelog_node.replication.commands import ProposeIsr

_MANY_CHANGES = 64


class NodeEffects:
    """The ``PartitionEffects`` of one node.

    ``on_storage_failure`` is told a partition whose disk refused, ``on_full_disk`` one whose disk has only no room.
    """

    def __init__(
        self,
        on_storage_failure: Callable[[Partition, TidelogError], None],
        on_full_disk: Callable[[Partition, TidelogError], None],
    ) -> None:
        self._on_storage_failure = on_storage_failure
        self._on_full_disk = on_full_disk
        self._fetchers: FetcherPool | None = None
        self._isr_changes: IsrChanges | None = None
        self._assignments: DirectoryAssignments | None = None

    def connect(self, fetchers: FetcherPool, isr_changes: IsrChanges, assignments: DirectoryAssignments | None) -> None:
        """Say who does it; once, before there is a partition."""
        self._fetchers = fetchers
        self._isr_changes = isr_changes
        self._assignments = assignments

    def propose_isr(self, partition: Partition, proposal: ProposeIsr) -> None:
        """Send a proposal to the controller."""
        assert self._isr_changes is not None
        self._isr_changes.submit(partition, proposal)

    def start_fetching(self, partition: Partition, leader_id: BrokerId, leader_epoch: LeaderEpoch) -> None:
        """Copy a partition from its leader."""
        assert self._fetchers is not None
        self._fetchers.start(partition, leader_id, leader_epoch)

    def stop_fetching(self, partition: Partition) -> None:
        """Copy it no more."""
        assert self._fetchers is not None
        self._fetchers.stop(partition)

    def storage_failed(self, partition: Partition, error: TidelogError) -> None:
        """A log's disk failed."""
        self._on_storage_failure(partition, error)

    def disk_is_full(self, partition: Partition, error: TidelogError) -> None:
        """A log cannot grow."""
        self._on_full_disk(partition, error)

    def assign(self, topic_id: TopicId, index: int, directory: DirectoryId, *, keeps_log: bool = False) -> None:
        """Tell the controller in which log directory a replica is; with ``keeps_log``, that it was never lost."""
        if self._assignments is not None:
            self._assignments.submit(topic_id, index, directory, keeps_log=keeps_log)

    @contextlib.contextmanager
    def few_interruptions(self, changes: int) -> Iterator[None]:
        """Let the fetchers begin with many changed partitions at once, at the end."""
        if self._fetchers is None or changes < _MANY_CHANGES:
            yield
            return
        self._fetchers.hold_back()
        try:
            yield
        finally:
            self._fetchers.go_on()

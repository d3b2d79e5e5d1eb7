"""The replica fetchers of a node, one per leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidelog_foundation.ids import BrokerId, LeaderEpoch
from tidelog_node.partitions.fetchers.leader_fetcher import LeaderFetcher
from tidelog_node.partitions.partition import Partition


class FetcherPool:
    """The node's fetchers by leader. The registry directs them (:mod:`tidelog_node.hosting.fetch_sources`)."""

    def __init__(self, tasks: asyncio.TaskGroup, fetcher_of: Callable[[BrokerId], LeaderFetcher]) -> None:
        """``fetcher_of(leader_id)`` returns the fetcher of a leader; its task joins ``tasks``."""
        self._tasks = tasks
        self._fetcher_of = fetcher_of
        self._running: dict[BrokerId, tuple[LeaderFetcher, asyncio.Task[None]]] = {}
        self._is_paused = False

    def pause_additions(self) -> None:
        """Hold back added partitions until :meth:`resume_additions`, because each one would interrupt a poll."""
        self._is_paused = True

    def resume_additions(self) -> None:
        """Fetch the partitions that were deferred."""
        self._is_paused = False
        for fetcher, _ in self._running.values():
            fetcher.begin_deferred()

    def begin(self, leader_id: BrokerId) -> None:
        """Start the fetcher of a leader."""
        fetcher = self._fetcher_of(leader_id)
        task = self._tasks.create_task(fetcher.run(), name=f"fetcher-of-node-{leader_id}")
        self._running[leader_id] = (fetcher, task)

    def end(self, leader_id: BrokerId) -> None:
        """Stop the fetcher of a leader."""
        running = self._running.pop(leader_id, None)
        if running is not None:
            running[1].cancel()

    def add(self, leader_id: BrokerId, partition: Partition, leader_epoch: LeaderEpoch) -> None:
        """Fetch a partition from a leader whose fetcher :meth:`begin` has started."""
        self._running[leader_id][0].add(partition, leader_epoch, is_deferred=self._is_paused)

    def remove(self, leader_id: BrokerId, partition: Partition) -> None:
        """Stop fetching a partition from a leader."""
        running = self._running.get(leader_id)
        if running is not None:
            running[0].remove(partition)

    def stop_all(self) -> None:
        """Stop every fetcher."""
        for _, task in self._running.values():
            task.cancel()
        self._running.clear()

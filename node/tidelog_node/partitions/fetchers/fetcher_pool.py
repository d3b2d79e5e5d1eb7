"""The replica fetchers of a node, one per leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidelog_foundation.ids import BrokerEpoch, BrokerId, LeaderEpoch
from tidelog_node.event_loop.clock import Clock
from tidelog_node.partitions.fetchers.leader_fetcher import FetcherSettings, LeaderFetcher
from tidelog_node.partitions.fetchers.transport import ReplicaTransport
from tidelog_node.partitions.partition import Partition
from tidelog_node.partitions.throttles import ReplicationThrottle


class FetcherPool:
    """The node's fetchers by leader. The registry directs them (:mod:`tidelog_node.hosting.fetch_sources`)."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch],
        address: Callable[[BrokerId], str | None],
        cluster_id: str,
        transport: ReplicaTransport,
        settings: FetcherSettings,
        clock: Clock,
        throttle: ReplicationThrottle,
    ) -> None:
        self._tasks = tasks
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._address = address
        self._cluster_id = cluster_id
        self._transport = transport
        self._settings = settings
        self._clock = clock
        self._throttle = throttle
        self._running: dict[BrokerId, tuple[LeaderFetcher, asyncio.Task[None]]] = {}
        self._holds_back = False

    def hold_back(self) -> None:
        """Hold back added partitions until :meth:`go_on`, because each one would interrupt a poll."""
        self._holds_back = True

    def go_on(self) -> None:
        """Fetch the partitions that were held back."""
        self._holds_back = False
        for fetcher, _ in self._running.values():
            fetcher.begin_held_back()

    def begin(self, leader_id: BrokerId) -> None:
        """Start the fetcher of a leader."""
        fetcher = LeaderFetcher(
            leader_id,
            self._identity,
            self._address,
            self._cluster_id,
            self._transport,
            self._settings,
            self._clock,
            self._throttle,
        )
        task = self._tasks.create_task(fetcher.run(), name=f"fetcher-of-node-{leader_id}")
        self._running[leader_id] = (fetcher, task)

    def end(self, leader_id: BrokerId) -> None:
        """Stop the fetcher of a leader."""
        running = self._running.pop(leader_id, None)
        if running is not None:
            running[1].cancel()

    def add(self, leader_id: BrokerId, partition: Partition, leader_epoch: LeaderEpoch) -> None:
        """Fetch a partition from a leader whose fetcher :meth:`begin` has started."""
        self._running[leader_id][0].add(partition, leader_epoch, is_held_back=self._holds_back)

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

    def _identity(self) -> tuple[BrokerId, BrokerEpoch]:
        return self._broker_id, self._broker_epoch()

"""The fetchers of a node: one per leader that it copies partitions from."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from tidelog.ids import BrokerEpoch, BrokerId, LeaderEpoch
from tidelog_node.partitions.clock import Clock
from tidelog_node.partitions.fetcher import FetcherSettings, LeaderFetcher
from tidelog_node.partitions.partition import Partition
from tidelog_node.partitions.throttles import ReplicationThrottle
from tidelog_node.partitions.transport import ReplicaTransport


class FetcherPool:
    """The fetchers of a node by leader, started when needed and ended when they have nothing to do."""

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
        self._leader_of: dict[Partition, BrokerId] = {}
        self._led: Counter[BrokerId] = Counter()
        self._running: dict[BrokerId, tuple[LeaderFetcher, asyncio.Task[None]]] = {}
        self._holds_back = False

    def hold_back(self) -> None:
        """Let partitions that are started wait for :meth:`go_on`: many are, and each would interrupt a poll."""
        self._holds_back = True

    def go_on(self) -> None:
        """Copy what was held back."""
        self._holds_back = False
        for fetcher, _ in self._running.values():
            fetcher.begin_held_back()

    def start(self, partition: Partition, leader_id: BrokerId, leader_epoch: LeaderEpoch) -> None:
        """Copy a partition from ``leader_id``, and from nobody else."""
        if self._leader_of.get(partition, leader_id) != leader_id:
            self.stop(partition)
        if partition not in self._leader_of:
            self._leader_of[partition] = leader_id
            self._led[leader_id] += 1
        self._fetcher(leader_id).add(partition, leader_epoch, is_held_back=self._holds_back)

    def stop(self, partition: Partition) -> None:
        """Copy a partition no more."""
        leader_id = self._leader_of.pop(partition, None)
        if leader_id is None:
            return
        fetcher, task = self._running[leader_id]
        fetcher.remove(partition)
        self._led[leader_id] -= 1
        if not self._led[leader_id]:
            task.cancel()
            del self._running[leader_id]

    def stop_all(self) -> None:
        """End every fetcher."""
        for _, task in self._running.values():
            task.cancel()
        self._running.clear()
        self._leader_of.clear()
        self._led.clear()

    def _fetcher(self, leader_id: BrokerId) -> LeaderFetcher:
        if leader_id not in self._running:
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
        return self._running[leader_id][0]

    def _identity(self) -> tuple[BrokerId, BrokerEpoch]:
        return self._broker_id, self._broker_epoch()

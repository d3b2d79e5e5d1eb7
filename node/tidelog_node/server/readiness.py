"""The facts about a node by which supervisors decide about traffic and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from tidelog_foundation.ids import BrokerId
from tidelog_foundation.monitoring.backlog import Backlog
from tidelog_foundation.monitoring.checks import Check
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.broker.readiness import NodeFacts, ReplicaFacts, node_checks
from tidelog_node.event_loop import Clock
from tidelog_node.partitions import MetadataCache, PartitionRegistry
from tidelog_node.replication.catch_up import CatchUp, ReplicaKey
from tidelog_node.replication.follower import FollowerState
from tidelog_node.server.lifecycle import BrokerLifecycle
from tidelog_quorum.metadata.image import MetadataImage, TopicImage

_INTERVAL_S: Final = 0.5


class NodeReadiness:
    """Gathers the facts about one node, on its event loop. :meth:`run` observes its replicas, until cancelled.

    A replica that makes no progress for ``window_ms`` does not catch up.
    """

    def __init__(
        self, broker_id: BrokerId, lifecycle: BrokerLifecycle, cache: MetadataCache, clock: Clock, window_ms: int
    ) -> None:
        self.is_stopping = False
        self._broker_id = broker_id
        self._lifecycle = lifecycle
        self._cache = cache
        self._clock = clock
        self._catch_up = CatchUp(window_ms)
        self._backlog = Backlog()
        self._image: MetadataImage | None = None
        self._topics: dict[str, tuple[TopicImage, tuple[ReplicaKey, ...]]] = {}
        """The topics of the latest image, each with the partitions in whose ISR this node should be and is not."""

    def __call__(self) -> Sequence[Check]:
        """Return the checks of this moment."""
        lifecycle, now_ms = self._lifecycle, self._clock.monotonic_ms()
        self._backlog.observe(lifecycle.applied_offset, lifecycle.known_offset, now_ms)
        catching_up = self._catch_up.catching_up(now_ms)
        facts = NodeFacts(
            is_serving=lifecycle.is_serving,
            is_stopping=self.is_stopping,
            is_fenced=lifecycle.is_fenced,
            has_session=lifecycle.has_session,
            applied_offset=lifecycle.applied_offset,
            known_offset=lifecycle.known_offset,
            apply_delay_ms=self._backlog.age_ms(now_ms),
            replicas=ReplicaFacts(
                self._catch_up.has_observed,
                _names(catching_up),
                _names(self._catch_up.stuck(now_ms)),
                self._catch_up.lag(catching_up),
            ),
        )
        return node_checks(facts)

    async def run(self, registry: PartitionRegistry) -> None:
        """Observe the replicas until cancelled."""
        while True:
            image = self._cache.image
            if image.offset >= 0 and image is not self._image:
                await self._find_out_of_sync(image)
            if self._image is not None:
                lags = {key: _lag(registry, key) for _, keys in self._topics.values() for key in keys}
                self._catch_up.observe(lags, self._clock.monotonic_ms())
            await asyncio.sleep(_INTERVAL_S)

    async def _find_out_of_sync(self, image: MetadataImage) -> None:
        known, topics = self._topics, dict[str, tuple[TopicImage, tuple[ReplicaKey, ...]]]()
        async for name, topic in TimeSlices().of(image.topics.items()):
            before = known.get(name)
            # An image shares the topics that have not changed with the one before.
            is_unchanged = before is not None and before[0] is topic
            topics[name] = before if is_unchanged and before else (topic, tuple(_out_of_sync(topic, self._broker_id)))
        self._topics, self._image = topics, image


def _out_of_sync(topic: TopicImage, broker_id: BrokerId) -> Sequence[ReplicaKey]:
    """Return the partitions of which a node has a replica that is not in sync, without those that it is to join."""
    return [
        (topic.name, index)
        for index, partition in topic.partitions.items()
        if broker_id in partition.replicas
        and broker_id not in partition.isr
        and broker_id not in partition.adding_replicas
        and broker_id not in partition.removing_replicas
    ]


def _lag(registry: PartitionRegistry, key: ReplicaKey) -> int | None:
    """Return the distance of a replica from its leader's high watermark, in records; None if it is unknown."""
    partition = registry.get(*key)
    if partition is None or not isinstance(partition.state.role, FollowerState):
        return None
    leader_end = partition.state.role.leader_high_watermark
    return None if leader_end is None else max(0, leader_end - partition.log.log_end_offset)


def _names(keys: Sequence[ReplicaKey]) -> tuple[str, ...]:
    return tuple(f"{topic}-{index}" for topic, index in keys)

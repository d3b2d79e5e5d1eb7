"""The rule by which a process may stop: nothing that is available now becomes unavailable.

- No partition loses its last in-sync replica, and none falls below ``min.insync.replicas``. A member of the ISR counts
  only if its node lives and is not stopping itself.
- A partition whose ``min.insync.replicas`` is the number of its replicas, or that has a single one, suffers from every
  stop, whatever the state of the cluster. It is told apart, since no wait helps.
- A partition that is below ``min.insync.replicas`` already is named, but does not stand against the stop unless the
  process is its last in-sync replica.
- The quorum keeps a majority of voters that answer the leader and have its log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.ids import BrokerId
from tidelog_foundation.requests.quorum import DescribeQuorumResponse
from tidelog_foundation.requests.stop_safety import (
    ALREADY_BELOW,
    BELOW_MIN_INSYNC_REPLICAS,
    LAST_IN_SYNC_REPLICA,
    MAX_NAMED_OBSTACLES,
    NOT_REDUNDANT,
    QUORUM_MAJORITY,
    WAITING_HELPS,
    DescribeStopSafetyResponse,
    StopObstacle,
    StopObstacleCount,
)
from tidelog_quorum.metadata.image import MetadataImage, TopicImage
from tidelog_quorum.metadata.registrations import PartitionRegistration
from tidelog_quorum.metadata.topic_config import min_insync_replicas

MAX_CONTACT_AGE_MS: Final = 2_000
"""The age up to which a voter's answer to the leader shows that it lives."""
MAX_LAG_AGE_MS: Final = 10_000
"""The time up to which a voter may not have had all of the leader's log. Under load it rarely has all of it."""


def describe_stop_safety(obstacles: Iterable[StopObstacle]) -> DescribeStopSafetyResponse:
    """Return the response that names the first obstacles and counts all."""
    named: list[StopObstacle] = []
    counts: Counter[str] = Counter()
    for obstacle in obstacles:
        counts[obstacle.kind] += 1
        if len(named) < MAX_NAMED_OBSTACLES:
            named.append(obstacle)
    return DescribeStopSafetyResponse(
        tuple(named), tuple(StopObstacleCount(kind, count) for kind, count in sorted(counts.items()))
    )


def node_obstacles(image: MetadataImage, broker_id: BrokerId, own: TopicConfig) -> Iterator[StopObstacle]:
    """Yield what stands against stopping a node. ``own`` are the defaults of topics on this controller."""
    for name, topic in image.topics.items():
        if broker_id not in topic.members:
            continue
        min_isr = min_insync_replicas(image, name, own)
        for index, partition in topic.partitions.items():
            if broker_id in partition.isr:
                obstacle = _partition_obstacle(image, broker_id, name, index, partition, min_isr)
                if obstacle is not None:
                    yield obstacle


def waits_for_replicas(image: MetadataImage, broker_id: BrokerId, own: TopicConfig) -> bool:
    """Return whether a replica that catches up on a live node would let a partition do without this node.

    Nodes that are stopping or gone are not waited for, so that a whole cluster can stop at once.
    """
    return any(
        obstacle.kind in WAITING_HELPS and _is_catching_up(image, image.topics[obstacle.topic], obstacle.partition)
        for obstacle in node_obstacles(image, broker_id, own)
    )


def controller_obstacles(quorum: DescribeQuorumResponse, controller_id: int) -> Iterator[StopObstacle]:
    """Yield what stands against stopping a controller, as the leader of the quorum sees it."""
    voters = {voter.replica_id: voter for voter in quorum.voters}
    if controller_id not in voters:
        return
    majority = len(voters) // 2 + 1
    current = tuple(
        sorted(
            i
            for i, voter in voters.items()
            if 0 <= voter.last_fetch_age_ms <= MAX_CONTACT_AGE_MS and 0 <= voter.last_caught_up_age_ms <= MAX_LAG_AGE_MS
        )
    )
    if len(set(current) - {controller_id}) < majority:
        kind = NOT_REDUNDANT if len(voters) - 1 < majority else QUORUM_MAJORITY
        yield StopObstacle(kind, "", -1, current, majority)


def _partition_obstacle(
    image: MetadataImage, broker_id: BrokerId, topic: str, index: int, partition: PartitionRegistration, min_isr: int
) -> StopObstacle | None:
    required = max(1, min(min_isr, len(partition.replicas)))
    in_sync = tuple(member for member in partition.isr if _counts(image, member) or member == broker_id)
    left = len(in_sync) - 1
    if left >= required:
        return None
    if len(partition.replicas) == required:
        kind = NOT_REDUNDANT if left > 0 or len(partition.replicas) == 1 else LAST_IN_SYNC_REPLICA
    elif left == 0:
        kind = LAST_IN_SYNC_REPLICA
    else:
        kind = ALREADY_BELOW if len(in_sync) < required else BELOW_MIN_INSYNC_REPLICAS
    return StopObstacle(kind, topic, index, in_sync, required)


def _is_catching_up(image: MetadataImage, topic: TopicImage, index: int) -> bool:
    partition = topic.partitions[index]
    return any(_counts(image, replica) for replica in partition.replicas if replica not in partition.isr)


def _counts(image: MetadataImage, member: BrokerId) -> bool:
    """Return whether a member of an ISR lives and stays."""
    broker = image.brokers.get(member)
    return broker is not None and broker.is_active

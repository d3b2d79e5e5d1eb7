"""The assignor ``uniform``: members own equally many partitions as far as possible and keep their partitions.

Balance takes precedence over stickiness, as in Kafka's UniformAssignor. If all members subscribe to the same topics,
their numbers of partitions differ by at most one, and no assignment with that property moves fewer partitions. If racks
matter, as many partitions as those numbers allow go to a member in the rack of a replica, which takes precedence over
stickiness (KIP-881 for the clients' assignors; Kafka's assignors of KIP-848 ignore racks).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from tidelog_foundation.rack_placement import Seat, counts_racks, place
from tidelog_node.groups.consumer.assignors.heterogeneous import HeterogeneousAssignment
from tidelog_node.groups.consumer.assignors.spec import (
    NO_RACKS,
    Assignment,
    MemberSpec,
    Racks,
    TopicPartition,
    kept_partitions,
)


def assign_uniform(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[bytes, int], racks: Racks = NO_RACKS
) -> dict[str, Assignment]:
    """Return a balanced assignment that keeps as much as possible (see :class:`.spec.Assignor`)."""
    if len({member.subscribed_topic_ids for member in members.values()}) > 1:
        owned = HeterogeneousAssignment(members, partition_counts).build()
    else:
        owned = _assign_homogeneous(members, partition_counts, racks)
    return {member_id: frozenset(owned[member_id]) for member_id in members}


def _assign_homogeneous(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[bytes, int], racks: Racks
) -> dict[str, list[TopicPartition]]:
    if not members:
        return {}
    topic_ids = sorted(next(iter(members.values())).subscribed_topic_ids)
    free = {(topic_id, index) for topic_id in topic_ids for index in range(partition_counts[topic_id])}
    quota, extras = divmod(len(free), len(members))
    kept = {member_id: kept_partitions(members[member_id], partition_counts) for member_id in sorted(members)}
    # The members with the most partitions get the extra ones, so that the fewest partitions move.
    by_size = sorted(kept, key=lambda member_id: -len(kept[member_id]))
    limits = {member_id: quota + (rank < extras) for rank, member_id in enumerate(by_size)}
    racks_of = {partition: _racks_of(partition, racks) for partition in sorted(free)}
    if counts_racks((member.rack_id for member in members.values()), racks_of.values()):
        seats = [Seat(members[member_id].rack_id, limits[member_id], had) for member_id, had in kept.items()]
        return dict(zip(kept, place(racks_of, seats), strict=True))
    owned = {member_id: partitions[: limits[member_id]] for member_id, partitions in kept.items()}
    free.difference_update(*owned.values())
    _deal(sorted(free), owned, limits)
    return owned


def _racks_of(partition: TopicPartition, racks: Racks) -> frozenset[str]:
    topic_id, index = partition
    of_topic = racks.get(topic_id, ())
    return of_topic[index] if index < len(of_topic) else frozenset()


def _deal(free: list[TopicPartition], owned: dict[str, list[TopicPartition]], limits: Mapping[str, int]) -> None:
    """Assign one partition at a time to each member in turn, until each has its number of partitions."""
    unfilled = deque(member_id for member_id in owned if len(owned[member_id]) < limits[member_id])
    for partition in free:
        member_id = unfilled.popleft()
        owned[member_id].append(partition)
        if len(owned[member_id]) < limits[member_id]:
            unfilled.append(member_id)

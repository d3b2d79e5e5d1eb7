"""The assignor ``range``: each topic in equal shares, with the same partitions of similar topics at one member.

It follows Kafka's RangeAssignor of KIP-848. Topics with the same number of partitions and the same subscribers are
co-partitioned: the member that gets partition 3 of one gets partition 3 of all, so that it can join them. Members keep
their partitions as far as the shares allow; the rest is assigned in ranges. If the shares are uneven, the first
members, by instance id and then member id, get one partition more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog_node.groups.consumer.assignors.spec import NO_RACKS, Assignment, MemberSpec, Racks, TopicPartition

_CoPartitioned = tuple[int, tuple[str, ...]]


def assign_range(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[bytes, int], racks: Racks = NO_RACKS
) -> dict[str, Assignment]:
    """Return equal shares of each topic, regardless of its replicas' racks (see :class:`.spec.Assignor`)."""
    owned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
    for (count, subscribers), topic_ids in _co_partitioned(members, partition_counts).items():
        for index, member_id in enumerate(_shares(count, subscribers, topic_ids, members)):
            owned[member_id].extend((topic_id, index) for topic_id in topic_ids)
    return {member_id: frozenset(partitions) for member_id, partitions in owned.items()}


def _co_partitioned(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[bytes, int]
) -> dict[_CoPartitioned, list[bytes]]:
    """Return the topics in ascending order, grouped by partition count and subscribers."""
    ordered = sorted(members, key=lambda member_id: (members[member_id].instance_id or "", member_id))
    subscribers: dict[bytes, list[str]] = {}
    for member_id in ordered:
        for topic_id in members[member_id].subscribed_topic_ids:
            subscribers.setdefault(topic_id, []).append(member_id)
    sets: dict[_CoPartitioned, list[bytes]] = {}
    for topic_id in sorted(subscribers):
        sets.setdefault((partition_counts[topic_id], tuple(subscribers[topic_id])), []).append(topic_id)
    return sets


def _shares(
    count: int, subscribers: Sequence[str], topic_ids: Sequence[bytes], members: Mapping[str, MemberSpec]
) -> list[str]:
    """Return the owner of each partition of co-partitioned topics."""
    had = _had(count, subscribers, topic_ids, members)
    quota, extras = divmod(count, len(subscribers))
    # Members with more than their share keep an extra partition. The remaining extras go to the first members.
    more_first = sorted(subscribers, key=lambda member_id: len(had[member_id]) <= quota)
    limits = {member_id: quota + (rank < extras) for rank, member_id in enumerate(more_first)}
    owners: dict[int, str] = {}
    for member_id in subscribers:
        owners.update(dict.fromkeys(had[member_id][: limits[member_id]], member_id))
    free = iter([index for index in range(count) if index not in owners])
    for member_id in subscribers:
        for _ in range(limits[member_id] - len(had[member_id])):
            owners[next(free)] = member_id
    return [owners[index] for index in range(count)]


def _had(
    count: int, subscribers: Sequence[str], topic_ids: Sequence[bytes], members: Mapping[str, MemberSpec]
) -> dict[str, list[int]]:
    """Return the partitions that each member has of most of the topics."""
    wanted = frozenset(topic_ids)
    votes: dict[int, dict[str, int]] = {}
    for member_id in subscribers:
        for topic_id, index in members[member_id].partitions:
            if topic_id in wanted:
                of_index = votes.setdefault(index, {})
                of_index[member_id] = of_index.get(member_id, 0) + 1
    had: dict[str, list[int]] = {member_id: [] for member_id in subscribers}
    for index in sorted(index for index in votes if index < count):
        had[max(votes[index], key=votes[index].__getitem__)].append(index)
    return had

"""The assignor ``roundrobin``: it deals the partitions of all topics to the members in turn.

It skips a member that does not subscribe to a partition's topic (Kafka's ``RoundRobinAssignor``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

from tidelog.consumer.assignors.assignor import Assignment, Assignor, KnownTopic, Member
from tidelog.consumer.assignors.range import subscribers_by_topic


class RoundRobinAssignor(Assignor):
    """An assignor for many small topics. Many partitions move when a member joins or leaves."""

    name = "roundrobin"

    def assign(self, topics: Mapping[str, KnownTopic], members: Iterable[Member]) -> Assignment:
        """Deal each partition to the next subscriber after the previous one."""
        ordered = sorted(members, key=lambda member: member.order)
        assignment: Assignment = {member.member_id: [] for member in ordered}
        following = 0
        for topic, subscribers in subscribers_by_topic(topics, ordered).items():
            for partition in range(topics[topic].partitions):
                turn = bisect_left(subscribers, following)
                chosen = subscribers[turn] if turn < len(subscribers) else subscribers[0]
                assignment[ordered[chosen].member_id].append((topic, partition))
                following = chosen + 1
        return assignment

"""The assignor ``uniform`` for members that subscribe to different topics.

First every member keeps the partitions that it may keep. Then each free partition goes to the subscriber with the
fewest partitions; topics with the fewest subscribers come first. Last, partitions move along chains of members, from a
member with many partitions to one that has at least two fewer: each member passes on a partition of a topic that the
next one subscribes to. When no such chain is left, no assignment is more balanced (Harvey et al., "Semi-matchings for
bipartite graphs and load balancing"). Kafka's UniformHeterogeneousAssignmentBuilder only moves partitions directly.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Iterator, Mapping

from tidelog_node.groups.consumer.assignors.spec import MemberSpec, TopicPartition, kept_partitions

_Step = tuple[str, bytes]


class HeterogeneousAssignment:
    """The construction of one assignment; used once."""

    def __init__(self, members: Mapping[str, MemberSpec], partition_counts: Mapping[bytes, int]) -> None:
        self._counts = partition_counts
        self._subscribers = _subscribers(members)
        self._kept = {
            member_id: frozenset(kept_partitions(members[member_id], partition_counts)) for member_id in sorted(members)
        }
        self._owned: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in self._kept}
        self._sizes = dict.fromkeys(self._kept, 0)

    def build(self) -> dict[str, list[TopicPartition]]:
        """Return the partitions of each member."""
        for member_id, partitions in self._kept.items():
            for partition in partitions:
                self._give(member_id, partition)
        self._deal()
        while self._balance():
            pass
        return {
            member_id: [(topic_id, index) for topic_id, indexes in topics.items() for index in indexes]
            for member_id, topics in self._owned.items()
        }

    def _give(self, member_id: str, partition: TopicPartition) -> None:
        topic_id, index = partition
        self._owned[member_id].setdefault(topic_id, set()).add(index)
        self._sizes[member_id] += 1

    def _deal(self) -> None:
        kept = frozenset[TopicPartition]().union(*self._kept.values())
        for topic_id in sorted(self._subscribers, key=lambda topic: (len(self._subscribers[topic]), topic)):
            by_size = [(self._sizes[member_id], member_id) for member_id in self._subscribers[topic_id]]
            heapq.heapify(by_size)
            for index in range(self._counts[topic_id]):
                if (topic_id, index) not in kept:
                    size, member_id = by_size[0]
                    self._give(member_id, (topic_id, index))
                    heapq.heapreplace(by_size, (size + 1, member_id))

    def _balance(self) -> bool:
        """Move partitions once from each member that has too many, and return whether any moved."""
        moved = False
        for member_id in sorted(self._sizes, key=lambda member: (-self._sizes[member], member)):
            while chain := self._chain_from(member_id):
                moved = True
                for (giver, topic_id), (taker, _) in itertools.pairwise(chain):
                    self._move(topic_id, giver, taker)
        return moved

    def _chain_from(self, member_id: str) -> list[_Step]:
        """Return the shortest chain to a member with at least two partitions fewer.

        Each step has the topic that it gives.
        """
        limit = self._sizes[member_id] - 2
        came_from: dict[str, _Step] = {}
        reached, topics = {member_id}, set[bytes]()
        queue = deque([member_id])
        while queue:
            giver = queue.popleft()
            for topic_id in sorted(self._topics_of(giver) - topics):
                topics.add(topic_id)
                for taker in self._by_size(topic_id, reached):
                    came_from[taker] = giver, topic_id
                    if self._sizes[taker] <= limit:
                        return _chain(came_from, member_id, taker)
                    reached.add(taker)
                    queue.append(taker)
        return []

    def _topics_of(self, member_id: str) -> set[bytes]:
        return {topic_id for topic_id, indexes in self._owned[member_id].items() if indexes}

    def _by_size(self, topic_id: bytes, reached: set[str]) -> Iterator[str]:
        members = [member_id for member_id in self._subscribers[topic_id] if member_id not in reached]
        return iter(sorted(members, key=lambda member: (self._sizes[member], member)))

    def _move(self, topic_id: bytes, giver: str, taker: str) -> None:
        """Move a partition of a topic, preferably back to its previous owner, else one that has moved already."""
        index = min(
            self._owned[giver][topic_id],
            key=lambda index: (
                (topic_id, index) not in self._kept[taker],
                (topic_id, index) in self._kept[giver],
                -index,
            ),
        )
        self._owned[giver][topic_id].discard(index)
        self._sizes[giver] -= 1
        self._give(taker, (topic_id, index))


def _subscribers(members: Mapping[str, MemberSpec]) -> dict[bytes, list[str]]:
    subscribers: dict[bytes, list[str]] = {}
    for member_id in sorted(members):
        for topic_id in members[member_id].subscribed_topic_ids:
            subscribers.setdefault(topic_id, []).append(member_id)
    return subscribers


def _chain(came_from: Mapping[str, _Step], start: str, end: str) -> list[_Step]:
    chain: list[_Step] = [(end, b"")]
    while chain[-1][0] != start:
        chain.append(came_from[chain[-1][0]])
    return chain[::-1]

"""The assignor ``range``: each topic's partitions in rows, one row per subscriber, the first ones one longer.

Topics with equally many partitions and the same subscribers are divided alike: partition 7 of each goes to the same
member, as joins need it (Kafka's ``RangeAssignor``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.consumer.assignors.assignor import Assignment, Member, Topic
from tidelog.consumer.assignors.protocol import Key


class RangeAssignor:
    """Kafka's default; static members keep their rows over restarts, as members are ordered by instance id."""

    name = "range"
    is_cooperative = False

    def user_data(self, owned: frozenset[Key], generation: int) -> bytes | None:
        """Return nothing: the past does not matter."""
        return None

    def assign(self, topics: Mapping[str, Topic], members: Iterable[Member]) -> Assignment:
        """Divide each topic by itself."""
        ordered = sorted(members, key=lambda member: member.order)
        assignment: Assignment = {member.member_id: [] for member in ordered}
        for topic, subscribers in subscribers_by_topic(topics, ordered).items():
            length, longer = divmod(topics[topic].partitions, len(subscribers))
            start = 0
            for row, subscriber in enumerate(subscribers):
                end = start + length + (row < longer)
                assignment[ordered[subscriber].member_id] += ((topic, index) for index in range(start, end))
                start = end
        return assignment


def subscribers_by_topic(topics: Mapping[str, Topic], members: list[Member]) -> dict[str, list[int]]:
    """Return for each topic that is there who subscribes to it, by index; the topics in ascending order."""
    found: dict[str, list[int]] = {}
    for index, member in enumerate(members):
        for topic in member.subscription.topics:
            found.setdefault(topic, []).append(index)
    return {topic: found[topic] for topic in sorted(found) if topic in topics}

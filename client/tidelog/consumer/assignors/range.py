"""The assignor ``range``: each topic's partitions in consecutive ranges, one per subscriber, the first ones longer.

Topics with the same number of partitions and the same subscribers are divided alike: partition 7 of each goes to the
same member, which joins need (Kafka's ``RangeAssignor``).

If racks matter, a member first gets partitions with a replica in its rack, up to its share (KIP-881). Equal shares and
equal division of topics take precedence over racks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidelog.consumer.assignors.assignor import Assignment, Assignor, KnownTopic, Member
from tidelog.consumer.assignors.protocol import Key
from tidelog_foundation.rack_placement import counts_racks


class RangeAssignor(Assignor):
    """Kafka's default assignor. Static members keep their ranges across restarts, because they sort by instance id."""

    name = "range"

    def assign(self, topics: Mapping[str, KnownTopic], members: Iterable[Member]) -> Assignment:
        """Divide each topic separately."""
        ordered = sorted(members, key=lambda member: member.order)
        rows = [_Rows(name, topics, ordered, who) for name, who in subscribers_by_topic(topics, ordered).items()]
        if any(each.counts_racks for each in rows):
            _divide_by_racks(rows)
        assignment: Assignment = {member.member_id: [] for member in ordered}
        for each in rows:
            each.divide_rest()
            for subscriber, indexes in each.given.items():
                assignment[ordered[subscriber].member_id] += ((each.topic, index) for index in sorted(indexes))
        return assignment


class _Rows:
    """One topic during its division; ``given`` maps a subscriber's index to its partitions."""

    def __init__(
        self, topic: str, topics: Mapping[str, KnownTopic], ordered: Sequence[Member], subscribers: Sequence[int]
    ) -> None:
        self.topic = topic
        self.subscribers = tuple(subscribers)
        self.racks = [racks_of(topics, (topic, index)) for index in range(topics[topic].partitions)]
        self.given: dict[int, list[int]] = {subscriber: [] for subscriber in subscribers}
        self._rack_of = {subscriber: ordered[subscriber].subscription.rack or None for subscriber in subscribers}
        self._length, self._longer = divmod(len(self.racks), len(subscribers))
        self._left = dict.fromkeys(range(len(self.racks)))
        self.counts_racks = counts_racks(self._rack_of.values(), self.racks)

    def room(self, subscriber: int) -> int:
        """Return the number of partitions that a subscriber may still get; the first subscribers have longer ranges."""
        return max(0, self._length + (self._longer > 0) - len(self.given[subscriber]))

    def is_local(self, subscriber: int, index: int) -> bool:
        """Return True if a partition has a replica in the subscriber's rack, or the subscriber has no rack."""
        rack = self._rack_of[subscriber]
        return rack is None or rack in self.racks[index]

    def give(self, subscriber: int, indexes: Sequence[int]) -> None:
        """Give partitions to a subscriber with enough room."""
        self.given[subscriber] += indexes
        if indexes and len(self.given[subscriber]) > self._length:
            self._longer -= 1
        for index in indexes:
            del self._left[index]

    def divide_by_racks(self) -> None:
        """Give each subscriber in turn partitions of its rack."""
        for subscriber in self.subscribers:
            local = [index for index in self._left if self.is_local(subscriber, index)]
            self.give(subscriber, local[: self.room(subscriber)])

    def divide_rest(self) -> None:
        """Give the remaining partitions in consecutive ranges."""
        rest, start = list(self._left), 0
        for subscriber in self.subscribers:
            end = start + self.room(subscriber)
            self.give(subscriber, rest[start:end])
            start = end


def _divide_by_racks(rows: Sequence[_Rows]) -> None:
    """Give subscribers partitions of their racks, and the same ones of topics that are divided alike."""
    alike: dict[tuple[tuple[int, ...], int], list[_Rows]] = {}
    for each in rows:
        alike.setdefault((each.subscribers, len(each.racks)), []).append(each)
    for together in alike.values():
        if len(together) > 1:
            _divide_alike(together)
        elif together[0].counts_racks:
            together[0].divide_by_racks()


def _divide_alike(together: Sequence[_Rows]) -> None:
    for index in range(len(together[0].racks)):
        for subscriber in together[0].subscribers:
            if all(each.room(subscriber) and each.is_local(subscriber, index) for each in together):
                for each in together:
                    each.give(subscriber, [index])
                break


def racks_of(topics: Mapping[str, KnownTopic], key: Key) -> frozenset[str]:
    """Return the known racks of a partition's replicas."""
    topic, index = key
    racks = topics[topic].racks
    return racks[index] if index < len(racks) else frozenset()


def subscribers_by_topic(topics: Mapping[str, KnownTopic], members: list[Member]) -> dict[str, list[int]]:
    """Return the subscribers of each existing topic, by index; topics ascend."""
    found: dict[str, list[int]] = {}
    for index, member in enumerate(members):
        for topic in member.subscription.topics:
            found.setdefault(topic, []).append(index)
    return {topic: found[topic] for topic in sorted(found) if topic in topics}

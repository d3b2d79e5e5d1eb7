"""The assignor ``range``: each topic's partitions in rows, one row per subscriber, the first ones one longer.

Topics with equally many partitions and the same subscribers are divided alike: partition 7 of each goes to the same
member, as joins need it (Kafka's ``RangeAssignor``).

Where racks make a difference a member first gets partitions with a replica in its rack, as far as its share allows
(KIP-881). Equal shares come before that, and so does it that topics are divided alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidelog.consumer.assignors.assignor import Assignment, Member, Topic
from tidelog.consumer.assignors.protocol import Key
from tidelog_foundation.rack_placement import counts_racks


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
    """One topic while it is divided: ``given`` are the partitions of each subscriber, by its index."""

    def __init__(
        self, topic: str, topics: Mapping[str, Topic], ordered: Sequence[Member], subscribers: Sequence[int]
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
        """Return how many more partitions a subscriber may get; those that come first have the longer rows."""
        return max(0, self._length + (self._longer > 0) - len(self.given[subscriber]))

    def is_local(self, subscriber: int, index: int) -> bool:
        """Return whether a partition has a replica in the subscriber's rack; one without a rack is not choosy."""
        rack = self._rack_of[subscriber]
        return rack is None or rack in self.racks[index]

    def give(self, subscriber: int, indexes: Sequence[int]) -> None:
        """Give partitions to a subscriber that has room for them."""
        self.given[subscriber] += indexes
        if indexes and len(self.given[subscriber]) > self._length:
            self._longer -= 1
        for index in indexes:
            del self._left[index]

    def divide_by_racks(self) -> None:
        """Give each subscriber partitions of its rack, one subscriber after the other."""
        for subscriber in self.subscribers:
            local = [index for index in self._left if self.is_local(subscriber, index)]
            self.give(subscriber, local[: self.room(subscriber)])

    def divide_rest(self) -> None:
        """Give what is left, in rows."""
        rest, start = list(self._left), 0
        for subscriber in self.subscribers:
            end = start + self.room(subscriber)
            self.give(subscriber, rest[start:end])
            start = end


def _divide_by_racks(rows: Sequence[_Rows]) -> None:
    """Give partitions of their racks to subscribers; of topics that are divided alike the same ones."""
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


def racks_of(topics: Mapping[str, Topic], key: Key) -> frozenset[str]:
    """Return the racks of a partition's replicas, as far as they are known."""
    topic, index = key
    racks = topics[topic].racks
    return racks[index] if index < len(racks) else frozenset()


def subscribers_by_topic(topics: Mapping[str, Topic], members: list[Member]) -> dict[str, list[int]]:
    """Return for each topic that is there who subscribes to it, by index; the topics in ascending order."""
    found: dict[str, list[int]] = {}
    for index, member in enumerate(members):
        for topic in member.subscription.topics:
            found.setdefault(topic, []).append(index)
    return {topic: found[topic] for topic in sorted(found) if topic in topics}

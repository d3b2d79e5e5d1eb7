"""What an assignor is, and what it is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tidelog.consumer.assignors.protocol import Key, Subscription


class Topic(Protocol):
    """What an assignor must know of a topic; ``racks[p]`` are those of partition p's replicas, if they are known."""

    @property
    def partitions(self) -> int:
        """How many partitions it has."""
        ...

    @property
    def racks(self) -> tuple[frozenset[str], ...]:
        """The racks of each partition's replicas."""
        ...


@dataclass(frozen=True, slots=True)
class Member:
    """A member of the group as its leader sees it."""

    member_id: str
    subscription: Subscription
    instance_id: str | None = None

    @property
    def order(self) -> tuple[bool, str]:
        """Static members by their instance ids, then the others (Kafka's ``MemberInfo``): it outlasts restarts."""
        return (self.instance_id is None, self.member_id if self.instance_id is None else self.instance_id)


Assignment = dict[str, list[Key]]


class Assignor(Protocol):
    """Divides partitions among members. Without state: what it needs of the past travels in the subscriptions."""

    name: str
    is_cooperative: bool
    """Whether members keep their partitions while the group rebalances (KIP-429)."""

    def user_data(self, owned: frozenset[Key], generation: int) -> bytes | None:
        """Return what a member's subscription carries for this assignor."""
        ...

    def assign(self, topics: Mapping[str, Topic], members: Iterable[Member]) -> Assignment:
        """Return each member's partitions; a topic that is not in ``topics`` is not there yet."""
        ...

"""The interface of an assignor, and its arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from tidelog.consumer.assignors.protocol import Key, Subscription


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """A topic's metadata; ``racks[p]`` are the racks of partition p's replicas, if known."""

    topic_id: bytes
    partitions: int
    racks: tuple[frozenset[str], ...] = ()


@dataclass(frozen=True, slots=True)
class Member:
    """A group member as the leader sees it."""

    member_id: str
    subscription: Subscription
    instance_id: str | None = None

    @property
    def order(self) -> tuple[bool, str]:
        """A sort key that survives restarts: static members by instance id, then the others
        (Kafka's ``MemberInfo``).
        """
        return (self.instance_id is None, self.member_id if self.instance_id is None else self.instance_id)


Assignment = dict[str, list[Key]]


class Assignor(Protocol):
    """Divides partitions among members. It has no state; the subscriptions carry the previous assignment."""

    name: ClassVar[str]
    is_cooperative: ClassVar[bool] = False
    """True if members keep their partitions while the group rebalances (KIP-429)."""

    def user_data(self, owned: frozenset[Key], generation: int) -> bytes | None:
        """Return this assignor's data in a member's subscription; None if the previous assignment does not matter."""
        return None

    def assign(self, topics: Mapping[str, KnownTopic], members: Iterable[Member]) -> Assignment:
        """Return each member's partitions. A topic missing from ``topics`` does not exist yet."""

"""What an assignor is given and what it gives: Kafka's GroupSpec and GroupAssignment as plain values.

An assignor is a pure function. What it answers depends on its arguments alone, not on the order of their keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

TopicPartition = tuple[bytes, int]
"""A topic's id and one of its partitions."""

Assignment = frozenset[TopicPartition]
"""The partitions of one member."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member as an assignor sees it; ``partitions`` are those of the target assignment before.

    Each partition is in the ``partitions`` of at most one member.
    """

    subscribed_topic_ids: frozenset[bytes]
    partitions: Assignment
    instance_id: str | None = None
    rack_id: str | None = None


Racks = Mapping[bytes, Sequence[frozenset[str]]]
"""By topic, the racks of each partition's replicas; without those of topics of which they are not known."""


NO_RACKS: Racks = MappingProxyType({})


class Assignor(Protocol):
    """Divides the partitions of topics among the members of a group."""

    def __call__(
        self, members: Mapping[str, MemberSpec], partition_counts: Mapping[bytes, int], racks: Racks = NO_RACKS
    ) -> dict[str, Assignment]:
        """Return what each member is to own: every partition of a subscribed topic, once, at a subscriber of it.

        ``partition_counts`` has every topic that a member subscribes to; the answer has every member.
        """
        ...


def kept_partitions(member: MemberSpec, partition_counts: Mapping[bytes, int]) -> list[TopicPartition]:
    """Return what a member has and may keep, as far as subscriptions and topics go.

    One partition of each topic comes after the other, so that who keeps the first of them keeps some of each.
    """
    kept = [
        (partition, topic_id)
        for topic_id, partition in member.partitions
        if topic_id in member.subscribed_topic_ids and partition < partition_counts[topic_id]
    ]
    return [(topic_id, partition) for partition, topic_id in sorted(kept)]

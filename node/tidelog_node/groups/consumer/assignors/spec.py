"""The input and output of an assignor: Kafka's GroupSpec and GroupAssignment as plain values.

An assignor is a pure function. Its result depends on its arguments alone and not on the order of their keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from tidelog_foundation.dataclass import dataclass

TopicPartition = tuple[bytes, int]
"""A topic id and a partition index."""

Assignment = frozenset[TopicPartition]
"""The partitions of one member."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member as an assignor sees it. ``partitions`` is its previous target assignment.

    Each partition is in the ``partitions`` of at most one member.
    """

    subscribed_topic_ids: frozenset[bytes]
    partitions: Assignment
    instance_id: str | None = None
    rack_id: str | None = None


Racks = Mapping[bytes, Sequence[frozenset[str]]]
"""The racks of each partition's replicas, by topic. Topics with unknown racks are omitted."""


NO_RACKS: Racks = MappingProxyType({})


class Assignor(Protocol):
    """A function that divides the partitions of topics among the members of a group."""

    def __call__(
        self, members: Mapping[str, MemberSpec], partition_counts: Mapping[bytes, int], racks: Racks = NO_RACKS
    ) -> dict[str, Assignment]:
        """Return each member's assignment: every partition of a subscribed topic once, at one of its subscribers.

        ``partition_counts`` has every topic that a member subscribes to; the result has every member.
        """


def kept_partitions(member: MemberSpec, partition_counts: Mapping[bytes, int]) -> list[TopicPartition]:
    """Return the partitions of a member that its subscription and the existing topics allow it to keep.

    The topics alternate, so that a prefix contains partitions of each topic.
    """
    kept = [
        (partition, topic_id)
        for topic_id, partition in member.partitions
        if topic_id in member.subscribed_topic_ids and partition < partition_counts[topic_id]
    ]
    return [(topic_id, partition) for partition, topic_id in sorted(kept)]

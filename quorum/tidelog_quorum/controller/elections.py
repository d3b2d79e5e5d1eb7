"""Who leads a partition when brokers come and go (Kafka's PartitionChangeBuilder with elections ``ONLINE``).

Rules:

- a leader is a member of the ISR that is neither fenced nor shutting down, and whose log directory is online
  (KIP-858); never anybody else (no unclean election);
- the present leader stays while it is eligible; else the first eligible one in the order of the replicas follows;
- a broker that goes away leaves the ISR, as a replica does whose log directory fails, but the ISR never becomes empty:
  its last member stays, with leader -1. When
  all members go at once the one that led stays, for it has whatever was acknowledged;
- the leader epoch grows with a change of leader; a mere shrink of the ISR grows the partition epoch alone (since
  Kafka 3.6, KAFKA-15021).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tidelog.ids import NO_BROKER, BrokerId, DirectoryId, TopicId
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import MetadataRecord, PartitionChangeRecord
from tidelog_quorum.metadata.registrations import PartitionRegistration


def changes_without(image: MetadataImage, gone: frozenset[BrokerId]) -> list[MetadataRecord]:
    """Return the changes after which none of ``gone`` leads, or is in an ISR that has another member."""
    return _changes(image, lambda p: gone.intersection(p.isr) or None)


def changes_without_directories(
    image: MetadataImage, broker_id: BrokerId, lost: frozenset[DirectoryId]
) -> list[MetadataRecord]:
    """Return the changes after which no replica of a broker in one of ``lost`` leads, or is in an ISR with others."""
    gone = frozenset({broker_id})
    return _changes(image, lambda p: gone if broker_id in p.isr and p.directory_of(broker_id) in lost else None)


def changes_with(image: MetadataImage, returned: BrokerId) -> list[MetadataRecord]:
    """Return the elections that become possible when ``returned`` is unfenced: of partitions without a leader."""
    broker = image.brokers[returned]
    after = dataclasses.replace(image, brokers={**image.brokers, returned: dataclasses.replace(broker, fenced=False)})
    return _changes(after, lambda p: frozenset() if p.leader == NO_BROKER else None)


def change_of(
    image: MetadataImage,
    topic_id: TopicId,
    index: int,
    partition: PartitionRegistration,
    gone: frozenset[BrokerId],
    directories: tuple[DirectoryId, ...] | None = None,
) -> PartitionChangeRecord | None:
    """Return the change that leaves ``gone`` out and elects who can lead; None when nothing changes.

    With ``directories`` the election is by these, and they are part of the change.
    """
    moved = partition if directories is None else dataclasses.replace(partition, directories=directories)
    isr = tuple(b for b in partition.isr if b not in gone)
    leader = _elect(partition, isr, lambda b: b not in gone and image.can_serve(moved, b))
    isr = isr or _last_member(partition)
    if (leader, isr, moved) == (partition.leader, partition.isr, partition):
        return None
    return PartitionChangeRecord(
        topic_id,
        index,
        leader=None if leader == partition.leader else leader,
        isr=None if isr == partition.isr else isr,
        directories=directories,
    )


def leads_any(image: MetadataImage, broker_id: BrokerId) -> bool:
    """Return whether a broker leads at least one partition."""
    return any(partition.leader == broker_id for _, _, partition in image.partitions())


def _changes(
    image: MetadataImage, gone_from: Callable[[PartitionRegistration], frozenset[BrokerId] | None]
) -> list[MetadataRecord]:
    """Return the changes of the partitions for which ``gone_from`` says who goes, if only nobody; None skips one."""
    records: list[MetadataRecord] = []
    for topic, index, partition in image.partitions():
        gone = gone_from(partition)
        if gone is None:
            continue
        change = change_of(image, topic.topic_id, index, partition, gone)
        if change is not None:
            records.append(change)
    return records


def _elect(
    partition: PartitionRegistration, isr: tuple[BrokerId, ...], eligible: Callable[[BrokerId], bool]
) -> BrokerId:
    candidates = [b for b in partition.replicas if b in isr and eligible(b)]
    if partition.leader in candidates:
        return partition.leader
    return candidates[0] if candidates else NO_BROKER


def _last_member(partition: PartitionRegistration) -> tuple[BrokerId, ...]:
    return partition.isr[:1] if partition.leader == NO_BROKER else (partition.leader,)

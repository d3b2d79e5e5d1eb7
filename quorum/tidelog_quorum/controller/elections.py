"""Who leads a partition when brokers come and go (Kafka's PartitionChangeBuilder with elections ``ONLINE``).

Rules:

- a leader is a member of the ISR that is neither fenced nor shutting down; never anybody else (no unclean election);
- the present leader stays while it is eligible; else the first eligible one in the order of the replicas follows;
- a broker that goes away leaves the ISR, but the ISR never becomes empty: its last member stays, with leader -1. When
  all members go at once the one that led stays, for it has whatever was acknowledged;
- the leader epoch grows with a change of leader; a mere shrink of the ISR grows the partition epoch alone (since
  Kafka 3.6, KAFKA-15021).
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.ids import NO_BROKER, BrokerId
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import MetadataRecord, PartitionChangeRecord
from tidelog_quorum.metadata.registrations import PartitionRegistration


def changes_without(image: MetadataImage, gone: frozenset[BrokerId]) -> list[MetadataRecord]:
    """Return the changes after which none of ``gone`` leads, or is in an ISR that has another member."""
    return _changes(
        image,
        concerns=lambda p: not gone.isdisjoint(p.isr),
        eligible=lambda b: b not in gone and _is_active(image, b),
        gone=gone,
    )


def changes_with(image: MetadataImage, returned: BrokerId) -> list[MetadataRecord]:
    """Return the elections that become possible when ``returned`` is unfenced: of partitions without a leader."""
    return _changes(
        image,
        concerns=lambda p: p.leader == NO_BROKER,
        eligible=lambda b: b == returned or _is_active(image, b),
        gone=frozenset(),
    )


def leads_any(image: MetadataImage, broker_id: BrokerId) -> bool:
    """Return whether a broker leads at least one partition."""
    return any(partition.leader == broker_id for _, _, partition in image.partitions())


def _changes(
    image: MetadataImage,
    concerns: Callable[[PartitionRegistration], bool],
    eligible: Callable[[BrokerId], bool],
    gone: frozenset[BrokerId],
) -> list[MetadataRecord]:
    records: list[MetadataRecord] = []
    for topic, index, partition in image.partitions():
        if not concerns(partition):
            continue
        isr = tuple(b for b in partition.isr if b not in gone)
        leader = _elect(partition, isr, eligible)
        isr = isr or _last_member(partition)
        if leader != partition.leader or isr != partition.isr:
            records.append(
                PartitionChangeRecord(
                    topic.topic_id,
                    index,
                    leader=None if leader == partition.leader else leader,
                    isr=None if isr == partition.isr else isr,
                )
            )
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


def _is_active(image: MetadataImage, broker_id: BrokerId) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.is_active

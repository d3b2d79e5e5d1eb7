"""Which partitions an event concerns, and by which rules each of them changes (``partition_change``).

A partition is *settled* when its ISR has only replicas that can serve, or none but a last one (see there), and when it
has a leader if one can be elected. Brokers that come and go, log directories that fail and settings that change may
unsettle it; :func:`settled` says what settles it again. It depends only on the brokers as they will be, not on what
happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.ids import NO_BROKER, UNASSIGNED_DIRECTORY, BrokerId, DirectoryId, TopicId
from tidelog_quorum.controller.partition_change import ElectionRules, PartitionTarget, partition_change
from tidelog_quorum.metadata.features import uses_elr
from tidelog_quorum.metadata.image import MetadataImage, TopicImage
from tidelog_quorum.metadata.records import PartitionChangeRecord
from tidelog_quorum.metadata.registrations import BrokerRegistration, PartitionRegistration
from tidelog_quorum.metadata.topic_config import min_insync_replicas, unclean_leader_election_enable

Brokers: TypeAlias = Mapping[BrokerId, BrokerRegistration]
Candidate: TypeAlias = tuple[TopicImage, int, PartitionRegistration]
NOBODY: frozenset[BrokerId] = frozenset()
_NOT_MOVED: Mapping[BrokerId, DirectoryId] = MappingProxyType({})


def rules_of(image: MetadataImage, topic_name: str, own: TopicConfig) -> ElectionRules:
    """Return by what a topic's partitions elect; ``own`` are the settings of the controller's properties file."""
    return ElectionRules(
        min_isr=min_insync_replicas(image, topic_name, own),
        uses_elr=uses_elr(image),
        allows_unclean=unclean_leader_election_enable(image, topic_name, own),
    )


def leads_any(image: MetadataImage, broker_id: BrokerId) -> bool:
    """Return whether a broker leads at least one partition."""
    return any(broker_id in topic.leaders for topic in image.topics.values())


def held_by(image: MetadataImage, brokers: frozenset[BrokerId]) -> Iterator[Candidate]:
    """Yield the partitions in whose ISR or ELR one of ``brokers`` is."""
    for topic in image.topics.values():
        if brokers.isdisjoint(topic.members):
            continue
        for index, partition in topic.partitions.items():
            if not brokers.isdisjoint(partition.isr) or not brokers.isdisjoint(partition.eligible_leader_replicas):
                yield topic, index, partition


def held_in(image: MetadataImage, broker_id: BrokerId, lost: frozenset[DirectoryId]) -> Iterator[Candidate]:
    """Yield the partitions in whose ISR or ELR a broker is with a replica in one of the directories ``lost``."""
    for topic, index, partition in held_by(image, frozenset({broker_id})):
        if partition.directory_of(broker_id) in lost:
            yield topic, index, partition


def without_leader(image: MetadataImage) -> Iterator[Candidate]:
    """Yield the partitions that nobody leads."""
    for topic in image.topics.values():
        if NO_BROKER in topic.leaders:
            yield from ((topic, i, p) for i, p in topic.partitions.items() if p.leader == NO_BROKER)


def doubtful(image: MetadataImage) -> Iterator[Candidate]:
    """Yield all partitions that are not settled and perhaps some that are: what an earlier leader may have left."""
    active = {b.broker_id for b in image.brokers.values() if b.is_active}
    # With the broker: a directory that was copied has its id on two of them.
    online = {(b.broker_id, d) for b in image.brokers.values() for d in (UNASSIGNED_DIRECTORY, *b.log_dirs)}
    for topic, index, partition in image.partitions():
        places = zip(partition.replicas, partition.directories, strict=True)
        is_served = active.issuperset(partition.isr) and online.issuperset(places)
        if partition.leader == NO_BROKER or not is_served:
            yield topic, index, partition


def settled(
    brokers: Brokers,
    rules: ElectionRules,
    topic_id: TopicId,
    index: int,
    partition: PartitionRegistration,
    unclean_shutdown: frozenset[BrokerId] = NOBODY,
    directories: Mapping[BrokerId, DirectoryId] | None = None,
) -> PartitionChangeRecord | None:
    """Return the change that settles a partition, or None if it is.

    ``brokers`` is who is registered after the change. ``unclean_shutdown`` are brokers that may have lost records;
    their replicas leave the ISR and the ELR where that is in use. ``directories`` are those of replicas that move.
    """
    moved = directories or _NOT_MOVED
    gone = unclean_shutdown if rules.uses_elr else NOBODY
    places = {**dict(zip(partition.replicas, partition.directories, strict=True)), **moved}
    serving = [b for b in partition.isr if b not in gone and _can_serve(brokers.get(b), places[b])]
    target = PartitionTarget(isr=tuple(serving), directories=moved, unclean_shutdown=gone)
    return partition_change(brokers, rules, topic_id, index, partition, target, rules.election)


def changes_by_rules(image: MetadataImage, own: TopicConfig, topics: Iterable[str]) -> list[PartitionChangeRecord]:
    """Return the changes of ELRs that follow when the rules of ``topics`` have become those of ``image``.

    They belong into the same entry as the change of ``min.insync.replicas`` or of the feature: once the high watermark
    may advance with fewer replicas, one that was eligible does not hold all that is committed any more (KIP-966).
    Partitions that are led and have no ELR need none.
    """
    records: list[PartitionChangeRecord] = []
    for name in topics:
        topic, rules = image.topics[name], rules_of(image, name, own)
        for index, partition in topic.partitions.items():
            is_led = partition.leader != NO_BROKER
            if is_led and not partition.eligible_leader_replicas and not partition.last_known_elr:
                continue
            change = settled(image.brokers, rules, topic.topic_id, index, partition)
            if change is not None:
                records.append(change)
    return records


def ends_elr(change: PartitionChangeRecord) -> bool:
    """Return whether a change empties an ELR and does nothing else."""
    return change.last_known_elr in (None, ()) and change == PartitionChangeRecord(
        change.topic_id, change.partition_id, eligible_leader_replicas=(), last_known_elr=change.last_known_elr
    )


def _can_serve(broker: BrokerRegistration | None, directory: DirectoryId) -> bool:
    return broker is not None and broker.is_active and broker.has_online(directory)

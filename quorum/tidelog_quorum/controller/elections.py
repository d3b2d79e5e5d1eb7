"""The partitions that an event affects, and the election rules of each (``partition_change``).

A partition is *settled* when all members of its ISR can serve, or only a last one is left (see there), and when it has
a leader if one can be elected. Brokers that come and go, failed log directories and changed settings may unsettle it;
:func:`settled` returns the change that settles it again. That change depends only on the future state of the brokers,
not on the event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Protocol, TypeAlias

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.dataclass import dataclass
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
    """Return the election rules of a topic; ``own`` are the settings of the controller's properties file."""
    return ElectionRules(
        min_isr=min_insync_replicas(image, topic_name, own),
        uses_elr=uses_elr(image),
        allows_unclean=unclean_leader_election_enable(image, topic_name, own),
    )


def leads_any(image: MetadataImage, broker_id: BrokerId) -> bool:
    """Return whether a broker leads at least one partition."""
    return any(broker_id in topic.leaders for topic in image.topics.values())


class PartitionScan:
    """An iterator over partitions of an image, found topic by topic as they are needed; plain data, unlike a generator.

    ``selection`` chooses the partitions of a topic.
    """

    __slots__ = ("_found", "_image", "_names", "_selection")

    def __init__(self, image: MetadataImage, selection: Selection) -> None:
        self._image = image
        self._selection = selection
        self._names = deque(image.topics)
        self._found: deque[Candidate] = deque()

    def __iter__(self) -> PartitionScan:
        """Return the scan itself."""
        return self

    def __next__(self) -> Candidate:
        """Return the next partition."""
        if not self.find():
            raise StopIteration
        return self._found.popleft()

    def __copy__(self) -> PartitionScan:
        """Return a scan of the remaining partitions that leaves this one as it is."""
        scan = PartitionScan(self._image, self._selection)
        scan._names, scan._found = self._names.copy(), self._found.copy()
        return scan

    def find(self) -> bool:
        """Return whether there is another partition."""
        while not self._found and self._names:
            self._found.extend(self._selection.of(self._image.topics[self._names.popleft()]))
        return bool(self._found)


class Selection(Protocol):
    """A choice of a topic's partitions."""

    def of(self, topic: TopicImage) -> Iterable[Candidate]:
        """Return the chosen partitions of a topic."""


@dataclass(frozen=True, slots=True)
class AllPartitions:
    """All partitions."""

    def of(self, topic: TopicImage) -> Iterable[Candidate]:
        """Return all partitions of a topic."""
        return ((topic, index, partition) for index, partition in topic.partitions.items())


@dataclass(frozen=True, slots=True)
class _WithMembers:
    brokers: frozenset[BrokerId]
    lost: frozenset[DirectoryId] | None = None

    def of(self, topic: TopicImage) -> Iterable[Candidate]:
        if self.brokers.isdisjoint(topic.members):
            return
        for index, partition in topic.partitions.items():
            elr = partition.eligible_leader_replicas
            if self.brokers.isdisjoint(partition.isr) and self.brokers.isdisjoint(elr):
                continue
            if self.lost is None or any(partition.directory_of(b) in self.lost for b in self.brokers):
                yield topic, index, partition


@dataclass(frozen=True, slots=True)
class _WithoutLeader:
    replica: BrokerId | None

    def of(self, topic: TopicImage) -> Iterable[Candidate]:
        if NO_BROKER in topic.leaders:
            for index, partition in topic.partitions.items():
                if partition.leader == NO_BROKER and (self.replica is None or self.replica in partition.replicas):
                    yield topic, index, partition


@dataclass(frozen=True, slots=True)
class _PossiblyUnsettled:
    active: frozenset[BrokerId]
    online: frozenset[tuple[BrokerId, DirectoryId]]

    def of(self, topic: TopicImage) -> Iterable[Candidate]:
        for index, partition in topic.partitions.items():
            places = zip(partition.replicas, partition.directories, strict=True)
            is_served = self.active.issuperset(partition.isr) and self.online.issuperset(places)
            if partition.leader == NO_BROKER or not is_served:
                yield topic, index, partition


def with_members(image: MetadataImage, brokers: frozenset[BrokerId]) -> PartitionScan:
    """Return the partitions with one of ``brokers`` in their ISR or ELR."""
    return PartitionScan(image, _WithMembers(brokers))


def with_members_in(image: MetadataImage, broker_id: BrokerId, lost: frozenset[DirectoryId]) -> PartitionScan:
    """Return the partitions with a broker in their ISR or ELR whose replica is in one of the ``lost`` directories."""
    return PartitionScan(image, _WithMembers(frozenset({broker_id}), lost))


def without_leader(image: MetadataImage, replica: BrokerId | None = None) -> PartitionScan:
    """Return the partitions without a leader, all of them or those with a replica on a broker."""
    return PartitionScan(image, _WithoutLeader(replica))


def possibly_unsettled(image: MetadataImage) -> PartitionScan:
    """Return all partitions that are not settled, and possibly some that are: an earlier leader may have left some."""
    active = frozenset(b.broker_id for b in image.brokers.values() if b.is_active)
    # Paired with the broker: a copied directory has its id on two brokers.
    online = frozenset((b.broker_id, d) for b in image.brokers.values() for d in (UNASSIGNED_DIRECTORY, *b.log_dirs))
    return PartitionScan(image, _PossiblyUnsettled(active, online))


def settled(
    brokers: Brokers,
    rules: ElectionRules,
    topic_id: TopicId,
    index: int,
    partition: PartitionRegistration,
    unclean_shutdown: frozenset[BrokerId] = NOBODY,
    directories: Mapping[BrokerId, DirectoryId] | None = None,
) -> PartitionChangeRecord | None:
    """Return the change that settles a partition, or None if it is settled.

    ``brokers`` are the registrations after the change. ``unclean_shutdown`` are brokers that may have lost records;
    with ELR, their replicas leave the ISR and the ELR. ``directories`` are those of replicas that move.
    """
    moved = directories or _NOT_MOVED
    gone = unclean_shutdown if rules.uses_elr else NOBODY
    places = {**dict(zip(partition.replicas, partition.directories, strict=True)), **moved}
    serving = [b for b in partition.isr if b not in gone and _can_serve(brokers.get(b), places[b])]
    target = PartitionTarget(isr=tuple(serving), directories=moved, unclean_shutdown=gone)
    return partition_change(brokers, rules, topic_id, index, partition, target, rules.election)


def changes_by_rules(image: MetadataImage, own: TopicConfig, topics: Iterable[str]) -> list[PartitionChangeRecord]:
    """Return the ELR changes that follow when the rules of ``topics`` become those of ``image``.

    They belong in the same entry as the change of ``min.insync.replicas`` or of the feature: once the high watermark
    may advance with fewer replicas, a replica that was eligible may lack committed records (KIP-966). Partitions with a
    leader and no ELR need no change.
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
    """Return whether a change only empties an ELR."""
    return change.last_known_elr in (None, ()) and change == PartitionChangeRecord(
        change.topic_id, change.partition_id, eligible_leader_replicas=(), last_known_elr=change.last_known_elr
    )


def _can_serve(broker: BrokerRegistration | None, directory: DirectoryId) -> bool:
    return broker is not None and broker.is_active and broker.has_online(directory)

"""The differences between two images, for observers that act on changes, such as a node's partitions and caches.

Maps that two images share are skipped by identity, so the cost is that of the changes plus one look at each topic.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.ids import BrokerId, TopicId
from tidelog_foundation.requests.configs import ConfigResourceType
from tidelog_quorum.metadata.image import MetadataImage, TopicImage
from tidelog_quorum.metadata.registrations import BrokerRegistration, PartitionRegistration


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """A partition before and after. ``before`` is None if it is new, ``after`` if it is deleted."""

    topic_name: str
    topic_id: TopicId
    index: int
    before: PartitionRegistration | None
    after: PartitionRegistration | None


@dataclass(frozen=True, slots=True)
class MetadataDelta:
    """The differences between two images.

    A topic that was deleted and created again under its name is in ``deleted_topics`` with its old id and in
    ``created_topics`` with its new one. ``changed_partitions`` names those of deleted topics too, with ``after`` None,
    before those of created ones.
    """

    deleted_topics: tuple[TopicImage, ...] = ()
    created_topics: tuple[TopicImage, ...] = ()
    changed_partitions: tuple[PartitionChange, ...] = ()
    changed_brokers: Mapping[BrokerId, BrokerRegistration | None] | None = None
    topics_with_changed_config: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        """True if no field has a change."""
        return self == MetadataDelta()


def delta_between(before: MetadataImage, after: MetadataImage) -> MetadataDelta:
    """Return the differences that an observer must apply to go from one image to the other."""
    deleted, created, changes = _topic_changes(before, after)
    return MetadataDelta(
        deleted_topics=tuple(deleted),
        created_topics=tuple(created),
        changed_partitions=tuple(changes),
        changed_brokers=_broker_changes(before, after),
        topics_with_changed_config=_config_changes(before, after),
    )


def _topic_changes(
    before: MetadataImage, after: MetadataImage
) -> tuple[list[TopicImage], list[TopicImage], list[PartitionChange]]:
    deleted: list[TopicImage] = []
    created: list[TopicImage] = []
    changes: list[PartitionChange] = []
    if before.topics is after.topics:
        return deleted, created, changes
    if before.topic_names is not after.topic_names:
        deleted = [t for t in before.topics.values() if t.topic_id not in after.topic_names]
        created = [t for t in after.topics.values() if t.topic_id not in before.topic_names]
    for topic in deleted:
        changes += [PartitionChange(topic.name, topic.topic_id, i, p, None) for i, p in topic.partitions.items()]
    for name, topic in after.topics.items():
        old = before.topics.get(name)
        if old is not topic:
            same = old is not None and old.topic_id == topic.topic_id
            changes += _partition_changes(old if same else None, topic)
    return deleted, created, changes


def _partition_changes(before: TopicImage | None, after: TopicImage) -> list[PartitionChange]:
    old = {} if before is None else before.partitions
    changes = [
        PartitionChange(after.name, after.topic_id, index, old.get(index), partition)
        for index, partition in after.partitions.items()
        if (known := old.get(index)) is not partition and known != partition
    ]
    gone = [i for i in old if i not in after.partitions]
    return changes + [PartitionChange(after.name, after.topic_id, i, old[i], None) for i in gone]


def _broker_changes(before: MetadataImage, after: MetadataImage) -> Mapping[BrokerId, BrokerRegistration | None] | None:
    if before.brokers is after.brokers:
        return None
    ids = before.brokers.keys() | after.brokers.keys()
    return {i: after.brokers.get(i) for i in sorted(ids) if before.brokers.get(i) != after.brokers.get(i)} or None


def _config_changes(before: MetadataImage, after: MetadataImage) -> frozenset[str]:
    if before.configs is after.configs:
        return frozenset()
    resources = before.configs.keys() | after.configs.keys()
    return frozenset(
        r.name
        for r in resources
        if r.type is ConfigResourceType.TOPIC and before.configs.get(r) != after.configs.get(r)
    )

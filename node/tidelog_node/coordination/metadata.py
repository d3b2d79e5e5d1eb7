"""The metadata that groups use, updated from images: the topics of the cluster, and timings of single groups."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog_foundation.ids import BrokerId
from tidelog_foundation.requests.configs import ConfigResourceType
from tidelog_node.groups.events import TopicInfo
from tidelog_node.groups.settings import OwnTimings, own_timings
from tidelog_quorum.metadata.image import ConfigResource, MetadataImage, TopicImage


class GroupTopics:
    """The topics of the cluster. ``current`` is immutable and replaced on every change."""

    def __init__(self) -> None:
        self.current: Mapping[str, TopicInfo] = {}
        self._image: MetadataImage | None = None
        self._seen: Mapping[str, TopicImage] = {}
        self._racks: dict[BrokerId, str] = {}

    def follow(self, image: MetadataImage) -> bool:
        """Apply an image and return whether anything relevant to groups has changed."""
        if image is self._image:
            return False
        self._image = image
        racks = {broker_id: broker.rack for broker_id, broker in image.brokers.items() if broker.rack}
        if image.topics is self._seen and racks == self._racks:
            return False
        known = self.current if racks == self._racks else {}
        before, self._seen, self._racks = self._seen, image.topics, racks
        topics = {
            name: self._info(topic, known.get(name) if before.get(name) is topic else None)
            for name, topic in image.topics.items()
        }
        if topics == self.current:
            return False
        self.current = topics
        return True

    def _info(self, topic: TopicImage, known: TopicInfo | None) -> TopicInfo:
        if known is not None:
            return known
        partitions = len(topic.partitions)
        if not self._racks:
            return TopicInfo(topic.topic_id, topic.name, partitions)
        replicas = (topic.partitions[index].replicas for index in range(partitions))
        racks = tuple(frozenset(self._racks[b] for b in brokers if b in self._racks) for brokers in replicas)
        return TopicInfo(topic.topic_id, topic.name, partitions, racks)


class GroupTimings:
    """The timings of single groups. ``current`` is immutable and replaced on every change."""

    def __init__(self) -> None:
        self.current: Mapping[str, OwnTimings] = {}
        self._seen: Mapping[ConfigResource, Mapping[str, str]] = {}

    def follow(self, image: MetadataImage) -> None:
        """Apply an image."""
        if image.configs is self._seen:
            return
        self._seen = image.configs
        found = {
            resource.name: own_timings(settings)
            for resource, settings in image.configs.items()
            if resource.type is ConfigResourceType.GROUP
        }
        if found != self.current:
            self.current = found

"""A cache of topics encoded for Metadata responses, once per listener and version until they change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidelog_node.kafka.cluster_view import ClusterView
from tidelog_node.kafka.protocol.metadata_bytes import Partition, TopicWriter
from tidelog_quorum.metadata import MetadataImage, TopicImage
from tidelog_quorum.metadata.description import INTERNAL_TOPICS

MAX_BYTES: Final = 32 * 1024**2


class EncodedTopics:
    """A cache of at most ``max_bytes``. A fence, registration or unregistration of a broker clears it.

    Deleted topics are not tracked. When the cache has twice as many topics as the cluster, it drops all of them.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._size = 0
        self._topic_count = 0
        self._views: dict[str, ClusterView] = {}
        self._kept: dict[tuple[str, int], tuple[TopicWriter, dict[str, tuple[TopicImage, bytes]]]] = {}

    @property
    def size(self) -> int:
        """The size of the cached bytes."""
        return self._size

    def view(self, image: MetadataImage, listener: str) -> ClusterView:
        """Return the view of an image's brokers for the clients of a listener."""
        self._topic_count = len(image.topics)
        view = self._views.get(listener)
        if view is None or view.brokers is not image.brokers:
            if any(known.brokers is not image.brokers for known in self._views.values()):
                self._clear()
            view = self._views[listener] = ClusterView(image.brokers, listener)
        return view

    def writer(self, listener: str, version: int) -> TopicWriter:
        """Return the writer of topics in a version."""
        return self._of(listener, version)[0]

    def topic(self, view: ClusterView, listener: str, version: int, topic: TopicImage) -> bytes:
        """Return a topic's bytes without their ending. They are not cached if the view is outdated."""
        writer, kept = self._of(listener, version)
        known = kept.get(topic.name)
        if known is not None and known[0] is topic and self._views.get(listener) is view:
            return known[1]
        is_internal = topic.name in INTERNAL_TOPICS
        encoded = writer.topic(0, topic.name, topic.topic_id, is_internal, _partitions(view, topic, version))
        if self._views.get(listener) is not view:
            return encoded
        if known is not None:
            self._size -= len(known[1])
        if self._size + len(encoded) > self._max_bytes or len(kept) >= 2 * self._topic_count:
            self._forget_topics()
        if len(encoded) <= self._max_bytes:
            self._size += len(encoded)
            kept[topic.name] = (topic, encoded)
        return encoded

    def _of(self, listener: str, version: int) -> tuple[TopicWriter, dict[str, tuple[TopicImage, bytes]]]:
        key = (listener, version)
        if key not in self._kept:
            self._kept[key] = (TopicWriter(version), {})
        return self._kept[key]

    def _clear(self) -> None:
        self._views.clear()
        self._kept.clear()
        self._size = 0

    def _forget_topics(self) -> None:
        for _, kept in self._kept.values():
            kept.clear()
        self._size = 0


def _partitions(view: ClusterView, topic: TopicImage, version: int) -> Iterator[Partition]:
    for index, partition in sorted(topic.partitions.items()):
        shown = view.partition(partition, version)
        yield (
            shown.error,
            index,
            shown.leader,
            partition.leader_epoch,
            shown.replicas,
            shown.isr,
            shown.offline,
        )

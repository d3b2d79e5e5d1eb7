"""The offsets of a stream together with the ids of its topics, and their JSON in Spark's checkpoint. Pure.

The JSON is that of Spark's Kafka source, with two further keys that no topic can have as its name: ``@ids`` has the ids
of the topics, and ``@start`` the start of the first micro-batch, next to its end. Checkpoints without these keys are
valid; the stream then learns the ids. The same offsets have the same text, because Spark takes another text for new
data.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from tidelog_foundation.errors import ConfigError
from tidelog_foundation.ids import TopicId, topic_id_text
from tidelog_spark.source.offsets import Offsets

OffsetTree = dict[str, Any]
_IDS: Final = "@ids"
_START: Final = "@start"
UNRESOLVED: Final[Mapping[str, None]] = MappingProxyType({_START: None})
"""The start of a new stream before its first planning."""


@dataclass(frozen=True, slots=True)
class Logs:
    """The topics of a query by id, and the first offset and the end of each log, at one time.

    The end is the last stable offset, or the high watermark for readers of uncommitted records.
    """

    ids: Mapping[str, TopicId] = field(default_factory=dict)
    earliest: Offsets = field(default_factory=dict)
    latest: Offsets = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """The next offset of each partition, by topic id.

    ``ids`` lacks topics of checkpoints that were written without ids. ``start`` is the start of the first micro-batch,
    in its end alone: Spark does not log it.
    """

    offsets: Offsets = field(default_factory=dict)
    ids: Mapping[str, TopicId] = field(default_factory=dict)
    start: StreamOffsets | None = None

    def has_same_topic(self, topic: str, ids: Mapping[str, TopicId]) -> bool:
        """Return False if the topic has one id here and another in ``ids``; an unknown id fits all."""
        return topic not in self.ids or topic not in ids or self.ids[topic] == ids[topic]

    def is_at(self, other: StreamOffsets) -> bool:
        """Return whether both have the same offsets of the same topics."""
        return self.offsets == other.offsets and self.ids == other.ids

    def begin_of(self, ids: Mapping[str, TopicId]) -> Offsets:
        """Return the offsets without those of topics that have another id in ``ids``: these begin anew."""
        return {key: offset for key, offset in self.offsets.items() if self.has_same_topic(key[0], ids)}


def to_json(stream: StreamOffsets) -> OffsetTree:
    """Return the form in Spark's checkpoint: topics by name, and their partitions by number."""
    tree: OffsetTree = {}
    for topic, partition in sorted(stream.offsets):
        tree.setdefault(topic, {})[str(partition)] = stream.offsets[topic, partition]
    if stream.ids:
        tree[_IDS] = {topic: topic_id_text(stream.ids[topic]) for topic in sorted(stream.ids)}
    if stream.start is not None:
        tree[_START] = to_json(stream.start)
    return tree


def from_json(tree: Mapping[str, Any]) -> StreamOffsets:
    """Parse the form of `to_json`.

    Raises:
        ConfigError: it is something else, for example the checkpoint of another source.
    """
    try:
        ids = {topic: _parse_id(text) for topic, text in tree.get(_IDS, {}).items()}
        start = from_json(tree[_START]) if _START in tree else None
        topics = {topic: parts for topic, parts in tree.items() if topic not in (_IDS, _START)}
        offsets = {
            (topic, int(index)): int(offset) for topic, parts in topics.items() for index, offset in parts.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"the checkpoint has offsets that the source cannot read: {dict(tree)}: {error}") from error
    return StreamOffsets(offsets, ids, start)


def _parse_id(text: str) -> TopicId:
    try:
        topic_id = base64.urlsafe_b64decode(text + "==")
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not a topic id") from error
    if len(topic_id) != 16:
        raise ValueError(f"{text!r} is not a topic id")
    return TopicId(topic_id)

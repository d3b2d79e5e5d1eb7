"""The part of the classic consumers' embedded protocol that a coordinator reads or writes.

The messages are Kafka's ``ConsumerProtocolSubscription`` and ``ConsumerProtocolAssignment``, versions 0 to 3; a later
version begins with the fields of version 3. The coordinator needs them when a group changes its protocol and when a
consumer group has classic members. Otherwise it passes the bytes through.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog_foundation.dataclass import dataclass
from tidelog_node.shards.wire import Reader, Writer

CONSUMER_PROTOCOL_TYPE = "consumer"
_NO_GENERATION = -1
_HIGHEST_VERSION = 3
NamedPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member's subscription. ``owned`` contains the partitions that it keeps during a rebalance (KIP-429)."""

    version: int
    topics: tuple[str, ...]
    owned: frozenset[NamedPartition] = frozenset()
    generation: int = _NO_GENERATION
    rack_id: str | None = None


def read_subscription(data: bytes) -> Subscription:
    """Return a member's subscription.

    Raises:
        ValueError: The bytes end too early or contain an impossible length.
    """
    reader = Reader(data)
    version = reader.int16()
    topics = tuple(sorted(set(reader.array(reader.string))))
    reader.nullable_bytes()
    owned = _read_partitions(reader) if version >= 1 else frozenset()
    generation = reader.int32() if version >= 2 else _NO_GENERATION
    rack_id = reader.nullable_string() if version >= 3 else None
    return Subscription(version, topics, owned, generation, rack_id or None)


def read_assignment(data: bytes) -> tuple[frozenset[NamedPartition], bytes]:
    """Return a member's partitions and its assignor's user data, both empty if there are no bytes.

    Raises:
        ValueError: The bytes end too early or contain an impossible length.
    """
    if not data:
        return frozenset(), b""
    reader = Reader(data)
    reader.int16()
    return _read_partitions(reader), reader.nullable_bytes() or b""


def encode_assignment(partitions: Iterable[NamedPartition], version: int) -> bytes:
    """Return a member's assignment without user data, in the ``version`` of its subscription."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    writer = Writer()
    writer.int16(max(0, min(version, _HIGHEST_VERSION)))
    writer.array(by_topic, lambda topic: _write_topic(writer, topic, by_topic[topic]))
    writer.int32(-1)
    return bytes(writer)


def _write_topic(writer: Writer, topic: str, indexes: Iterable[int]) -> None:
    writer.string(topic)
    writer.array(indexes, writer.int32)


def _read_partitions(reader: Reader) -> frozenset[NamedPartition]:
    topics = reader.array(lambda: (reader.string(), reader.array(reader.int32)))
    return frozenset((topic, index) for topic, indexes in topics for index in indexes)


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all the metadata, or None if one cannot be read.

    Every later version begins with the fields of version 0, which suffice.
    """
    topics: set[str] = set()
    try:
        for data in metadata:
            reader = Reader(data)
            reader.int16()
            topics.update(reader.array(reader.string))
    except ValueError:
        return None
    return frozenset(topics)

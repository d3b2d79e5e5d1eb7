"""Kafka's ``ConsumerProtocol``, byte for byte: the messages between members and leader of a classic group.

JoinGroup carries a member's subscription, SyncGroup its assignment. The formats are ``ConsumerProtocolSubscription``
and ``ConsumerProtocolAssignment``, versions 0 to 3. A later version begins with the fields of version 3 and is read
as version 3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from tidelog_foundation.errors import ErrorCode, error_for

PROTOCOL_TYPE = "consumer"
HIGHEST_VERSION = 3
Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member's topics and partitions. ``owned`` was assigned in ``generation`` (-1: unknown)."""

    topics: frozenset[str]
    user_data: bytes | None = None
    owned: frozenset[Key] = frozenset()
    generation: int = -1
    rack: str | None = None


def encode_subscription(subscription: Subscription, version: int = HIGHEST_VERSION) -> bytes:
    """Return a subscription as JoinGroup carries it, without fields that the version lacks."""
    parts = [struct.pack(">hi", version, len(subscription.topics))]
    parts += [_string(topic) for topic in sorted(subscription.topics)]
    parts.append(_nullable_bytes(subscription.user_data))
    if version >= 1:
        parts.append(encode_partitions(subscription.owned))
    if version >= 2:
        parts.append(struct.pack(">i", subscription.generation))
    if version >= 3:
        parts.append(_string(subscription.rack))
    return b"".join(parts)


def decode_subscription(data: bytes) -> Subscription:
    """Return the subscription in a member's bytes.

    Raises:
        TidelogError: _BAD_MSG: the data is too short or contains an impossible length.
    """
    reader = Reader(data, "subscription")
    version = reader.int16()
    topics = frozenset(reader.string() or "" for _ in range(reader.length()))
    user_data = reader.nullable_bytes()
    owned = reader.partitions() if version >= 1 else frozenset()
    generation = reader.int32() if version >= 2 else -1
    rack = reader.string() if version >= 3 else None
    return Subscription(topics, user_data, owned, generation, rack)


def encode_assignment(
    partitions: Iterable[Key], user_data: bytes | None = None, version: int = HIGHEST_VERSION
) -> bytes:
    """Return a member's partitions as SyncGroup carries them."""
    return struct.pack(">h", version) + encode_partitions(partitions) + _nullable_bytes(user_data)


def decode_assignment(data: bytes) -> frozenset[Key]:
    """Return the partitions that a leader assigned; empty data means no partitions.

    Raises:
        TidelogError: _BAD_MSG: the data is too short or contains an impossible length.
    """
    if not data:
        return frozenset()
    reader = Reader(data, "assignment")
    reader.int16()
    return reader.partitions()


def encode_partitions(partitions: Iterable[Key]) -> bytes:
    """Return partitions grouped by topic; topics and partitions ascend."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    parts = [struct.pack(">i", len(by_topic))]
    for topic, indexes in by_topic.items():
        parts += (_string(topic), struct.pack(f">i{len(indexes)}i", len(indexes), *indexes))
    return b"".join(parts)


class Reader:
    """A reader of Kafka's types in sequence. Errors name ``what``, the expected message."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self._position = 0

    @property
    def remaining(self) -> int:
        """The number of unread bytes."""
        return len(self._data) - self._position

    def int16(self) -> int:
        """Read two bytes."""
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        """Read four bytes."""
        return int.from_bytes(self._take(4), "big", signed=True)

    def length(self) -> int:
        """Read the length of an array; null counts as empty."""
        count = self.int32()
        if not -1 <= count <= self.remaining:
            raise self._bad(f"it claims {count} elements with {self.remaining} bytes left")
        return max(count, 0)

    def string(self) -> str | None:
        """Read a string, or null."""
        size = self.int16()
        if size == -1:
            return None
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as error:
            raise self._bad(f"a string is not UTF-8: {error}") from error

    def nullable_bytes(self) -> bytes | None:
        """Read bytes, or null."""
        size = self.int32()
        return None if size == -1 else self._take(size)

    def partitions(self) -> frozenset[Key]:
        """Read partitions grouped by topic."""
        found: list[Key] = []
        for _ in range(self.length()):
            topic = self.string() or ""
            count = self.length()
            found += ((topic, index) for index in struct.unpack(f">{count}i", self._take(4 * count)))
        return frozenset(found)

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= self.remaining:
            raise self._bad(f"{size} bytes are wanted at {self._position} of {len(self._data)}")
        start = self._position
        self._position += size
        return self._data[start : self._position]

    def _bad(self, problem: str) -> Exception:
        return error_for(ErrorCode._BAD_MSG, f"the consumer protocol's {self._what} cannot be read: {problem}")


def _string(value: str | None) -> bytes:
    if value is None:
        return struct.pack(">h", -1)
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def _nullable_bytes(value: bytes | None) -> bytes:
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value

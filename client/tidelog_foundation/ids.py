"""Distinct types for the numbers that are easily mixed up: a broker's id, the epochs, offsets."""

from __future__ import annotations

import base64
from typing import NewType

BrokerId = NewType("BrokerId", int)
"""A storage node's ``broker.id``; ``NO_BROKER`` where there is none."""

BrokerEpoch = NewType("BrokerEpoch", int)
"""The metadata offset of a broker's latest registration (KIP-631)."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Grows by one with each leader of a partition (KIP-101)."""

PartitionEpoch = NewType("PartitionEpoch", int)
"""Grows by one with each change of a partition's registration (KIP-497)."""

TopicId = NewType("TopicId", bytes)
"""The 16 bytes that tell a topic from an earlier one of the same name (KIP-516)."""

DirectoryId = NewType("DirectoryId", bytes)
"""The 16 bytes that tell a node's log directory from all others (KIP-858)."""

NO_BROKER = BrokerId(-1)
NO_EPOCH = LeaderEpoch(-1)
UNKNOWN_OFFSET = -1
UNASSIGNED_DIRECTORY = DirectoryId(bytes(16))
"""Of a replica whose node has not said where it is; it counts as usable, since it may only be new."""
LOST_DIRECTORY = DirectoryId(bytes(15) + b"\x01")
"""Of a replica for which its node can use no directory; it counts as offline."""


REQUEST_ID_SIZE = 8
"""The bytes of the id that a request to create topics may have."""


def topic_id_of_request(request_id: bytes, drawn: TopicId) -> TopicId:
    """Return the id of a topic that a request creates: the request's, then the end of a random one.

    The random half keeps it from being that of an earlier topic when a request comes again after the topic was
    deleted. Without a request's id it is the random one.
    """
    return TopicId(request_id + drawn[len(request_id) :])


def is_topic_of_request(topic_id: TopicId, request_id: bytes) -> bool:
    """Return whether a topic was created by an earlier attempt of a request."""
    return len(request_id) == REQUEST_ID_SIZE and topic_id.startswith(request_id)


def topic_id_text(topic_id: TopicId) -> str:
    """Return what Kafka prints for a topic's id."""
    return uuid_text(topic_id)


def uuid_text(value: bytes) -> str:
    """Return the 22 characters of unpadded URL-safe base64 that Kafka prints for an id of 16 bytes."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")

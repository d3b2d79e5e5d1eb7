"""Distinct types for numbers that are easily confused: broker ids, epochs, offsets."""

from __future__ import annotations

import base64
from typing import NewType

BrokerId = NewType("BrokerId", int)
"""A storage node's ``broker.id``, or ``NO_BROKER``."""

BrokerEpoch = NewType("BrokerEpoch", int)
"""The metadata offset of a broker's latest registration (KIP-631)."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""A number that grows by one with each leader of a partition (KIP-101)."""

PartitionEpoch = NewType("PartitionEpoch", int)
"""A number that grows by one with each change of a partition's registration (KIP-497)."""

TopicId = NewType("TopicId", bytes)
"""The 16 bytes that distinguish a topic from an earlier one of the same name (KIP-516)."""

DirectoryId = NewType("DirectoryId", bytes)
"""The 16 bytes that identify a node's log directory (KIP-858)."""

AclId = NewType("AclId", bytes)
"""The 16 bytes that identify an ACL in the metadata log (KIP-801)."""

LinkId = NewType("LinkId", bytes)
"""The 16 bytes that identify a cluster link."""

NO_BROKER = BrokerId(-1)
NO_EPOCH = LeaderEpoch(-1)
UNKNOWN_OFFSET = -1
UNASSIGNED_DIRECTORY = DirectoryId(bytes(16))
"""The directory of a replica whose location is unknown; it counts as usable, because it may only be new."""
LOST_DIRECTORY = DirectoryId(bytes(15) + b"\x01")
"""The directory of a replica for which its node has no usable directory; it counts as offline."""


REQUEST_ID_SIZE = 8
"""The size of the id in a request to create topics."""


def topic_id_of_request(request_id: bytes, drawn: TopicId) -> TopicId:
    """Return the id of a topic that a request creates: the request's id, then the end of a random one.

    The random part distinguishes the topic from an earlier one if the request is repeated after a deletion. Without a
    request id, the whole id is random.
    """
    return TopicId(request_id + drawn[len(request_id) :])


def is_topic_of_request(topic_id: TopicId, request_id: bytes) -> bool:
    """Return True if an earlier attempt of the request created the topic."""
    return len(request_id) == REQUEST_ID_SIZE and topic_id.startswith(request_id)


def topic_id_text(topic_id: TopicId) -> str:
    """Return a topic's id in Kafka's text format."""
    return uuid_text(topic_id)


def uuid_text(value: bytes) -> str:
    """Return a 16-byte id in Kafka's text format, 22 characters of unpadded URL-safe base64."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")

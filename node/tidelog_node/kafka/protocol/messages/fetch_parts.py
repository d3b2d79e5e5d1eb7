"""The common parts of Fetch requests and responses: versions and topics."""

from __future__ import annotations

from typing import Final

from tidelog_node.fetching import TopicRef
from tidelog_node.kafka.protocol.primitives import read_string, write_string
from tidelog_node.kafka.protocol.reader import MalformedMessageError, Reader
from tidelog_node.kafka.protocol.writer import Writer

VERSIONS: Final = (4, 18)
FLEXIBLE: Final = 12
WITH_LOG_START: Final = 5
WITH_SESSIONS: Final = 7
WITH_LEADER_EPOCH: Final = 9
WITH_RACK: Final = 11
WITH_TOPIC_IDS: Final = 13
WITH_REPLICA_STATE: Final = 15
WITH_ENDPOINTS: Final = 16


def read_topic(reader: Reader, version: int) -> TopicRef:
    """Read a topic's name, or from version 13 on its id."""
    if version >= WITH_TOPIC_IDS:
        return reader.uuid()
    name = read_string(reader, is_flexible=version >= FLEXIBLE)
    if name is None:
        raise MalformedMessageError(f"the topic before {reader.position} has no name")
    return name


def write_topic(writer: Writer, topic: TopicRef, version: int) -> None:
    """Write a topic's name or id, depending on the version."""
    if isinstance(topic, bytes):
        assert version >= WITH_TOPIC_IDS, "this version identifies topics by name"
        writer.uuid(topic)
    else:
        assert version < WITH_TOPIC_IDS, "this version identifies topics by id"
        write_string(writer, topic, is_flexible=version >= FLEXIBLE)

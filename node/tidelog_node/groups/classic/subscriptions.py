"""The protocols that members send, and the topics that the coordinator reads from consumers' metadata.

The metadata is Kafka's ConsumerProtocolSubscription. Every later version begins with the fields of version 0.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog_node.groups.messages import JoinGroupRequest
from tidelog_node.groups.wire import Reader


def protocols_of(request: JoinGroupRequest) -> tuple[tuple[str, bytes], ...]:
    """Return the protocols of a request. A repeated name counts once, as in Kafka's collection."""
    return tuple({protocol.name: protocol.metadata for protocol in request.protocols}.items())


def rebalance_timeout_of(request: JoinGroupRequest) -> int:
    """Return the time to wait for a member to join again, by default its session timeout, as in old versions."""
    return request.rebalance_timeout_ms if request.rebalance_timeout_ms > 0 else request.session_timeout_ms


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all the metadata, or None if one cannot be read."""
    topics: set[str] = set()
    try:
        for data in metadata:
            reader = Reader(data)
            reader.int16()
            topics.update(reader.array(reader.string))
    except ValueError:
        return None
    return frozenset(topics)

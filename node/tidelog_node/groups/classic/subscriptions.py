"""What the coordinator reads of members' protocols; of consumers' metadata the topics.

That is Kafka's ConsumerProtocolSubscription in version 0, as which every later version begins.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.v1 import group_service_pb2 as pb
from tidelog_node.groups.wire import Reader


def protocols_of(request: pb.JoinGroupRequest) -> tuple[tuple[str, bytes], ...]:
    """Return the protocols of a request; a name that comes twice counts once, as in Kafka's collection."""
    return tuple({protocol.name: protocol.metadata for protocol in request.protocols}.items())


def rebalance_timeout_of(request: pb.JoinGroupRequest) -> int:
    """Return how long to wait for a member to join again; its session timeout where it does not say, as of old."""
    return request.rebalance_timeout_ms if request.rebalance_timeout_ms > 0 else request.session_timeout_ms


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all the metadata; None when one cannot be read."""
    topics: set[str] = set()
    try:
        for data in metadata:
            reader = Reader(data)
            reader.int16()
            topics.update(reader.array(reader.string))
    except ValueError:
        return None
    return frozenset(topics)

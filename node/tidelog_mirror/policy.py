"""Replication policies: the names of remote topics and of MirrorMaker 2's internal topics (KIP-382, KIP-690).

The rules are those of Kafka's DefaultReplicationPolicy and IdentityReplicationPolicy. A remote topic of the default
policy begins with the alias of its source: ``A.orders``. The identity policy keeps names, except that of heartbeats.
"""

from __future__ import annotations

from typing import Final

from tidelog_foundation.dataclass import dataclass

DEFAULT_POLICY: Final = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"
IDENTITY_POLICY: Final = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
POLICIES: Final = (
    DEFAULT_POLICY,
    IDENTITY_POLICY,
    DEFAULT_POLICY.rpartition(".")[2],
    IDENTITY_POLICY.rpartition(".")[2],
)
"""The names by which a file can choose a policy."""
HEARTBEATS: Final = "heartbeats"
_KAFKAS: Final = ("__", ".")
_CONNECTS: Final = ("-internal", ".internal")
_MAX_HOPS: Final = 100


@dataclass(frozen=True, slots=True)
class ReplicationPolicy:
    """The policy of a flow. ``internal_separator`` is that of internal topics."""

    is_identity: bool = False
    separator: str = "."
    internal_separator: str = "."

    def remote_topic(self, source: str, topic: str) -> str:
        """Return the target's name for a topic of a source."""
        if self.is_identity and not self.is_heartbeats(topic):
            return topic
        return f"{source}{self.separator}{topic}"

    def topic_source(self, topic: str) -> str | None:
        """Return the alias of the cluster that a topic was copied from, or None for a topic that is no copy."""
        if self.is_identity and not self.is_heartbeats(topic):
            return None
        source, separator, _ = topic.partition(self.separator)
        return source if separator else None

    def upstream_topic(self, topic: str) -> str | None:
        """Return a remote topic's name on its source; None if the name shows no source."""
        if self.is_identity and not self._is_remote_heartbeats(topic):
            return topic
        _, separator, upstream = topic.partition(self.separator)
        return upstream if separator else None

    def original_topic(self, topic: str) -> str:
        """Return the name of a topic without any alias of a source."""
        if self.is_identity and not self._is_remote_heartbeats(topic):
            return topic
        return topic.rpartition(self.separator)[2] if self.is_identity else topic.split(self.separator)[-1]

    def is_heartbeats(self, topic: str) -> bool:
        """Return whether a topic is that of heartbeats, or a copy of it."""
        return topic == HEARTBEATS or self._is_remote_heartbeats(topic)

    def offset_syncs_topic(self, alias: str) -> str:
        """Return the topic of the offset syncs with the other cluster, ``alias``."""
        return f"mm2-offset-syncs{self.internal_separator}{alias}{self.internal_separator}internal"

    def checkpoints_topic(self, source: str) -> str:
        """Return the target's topic of checkpoints of a source's groups."""
        return f"{source}{self.internal_separator}checkpoints{self.internal_separator}internal"

    def is_internal(self, topic: str) -> bool:
        """Return whether a topic belongs to Kafka, Connect or MirrorMaker, and is never copied."""
        ending = f"{self.internal_separator}internal"
        is_own = topic.startswith("mm2") and topic.endswith(ending)
        is_checkpoints = topic.endswith(f"{self.internal_separator}checkpoints{ending}")
        return is_own or is_checkpoints or topic.startswith(_KAFKAS) or topic.endswith(_CONNECTS)

    def is_cycle(self, topic: str, target: str) -> bool:
        """Return whether a topic has come from the target, over any number of clusters."""
        found: str | None = topic
        for _ in range(_MAX_HOPS):
            if found is None:
                return False
            source = self.topic_source(found)
            if source is None:
                return False
            if source == target:
                return True
            upstream = self.upstream_topic(found)
            if upstream == found:
                return False
            found = upstream
        return True

    def _is_remote_heartbeats(self, topic: str) -> bool:
        return topic.endswith(f"{self.separator}{HEARTBEATS}")


def offsets_topic(source: str) -> str:
    """Return the target's topic of positions in a source, the one that MirrorMaker 2's workers use."""
    return f"mm2-offsets.{source}.internal"

"""The sources of cluster links, as handlers and mirrors use them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from typing import Protocol

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerId, LeaderEpoch, TopicId
from tidelog_foundation.link_settings import LinkConfig


@dataclass(frozen=True, slots=True)
class SourceLeader:
    """The leader of a partition on the source; its id is -1 if there is none."""

    broker_id: BrokerId
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """A topic of the source, with its partitions by index."""

    topic_id: TopicId
    partitions: Mapping[int, SourceLeader]


@dataclass(frozen=True, slots=True)
class SourceMetadata:
    """A source's answer about some of its topics. ``errors`` are those of topics that it does not describe."""

    cluster_id: str
    brokers: Mapping[BrokerId, str]
    """The addresses of its brokers, as ``host:port``."""
    topics: Mapping[str, SourceTopic] = field(default_factory=dict)
    errors: Mapping[str, TidelogError] = field(default_factory=dict)


class Source(Protocol):
    """The source of a link: a cluster that is reached as a client, by Kafka's protocol."""

    async def metadata(self, topics: Collection[str]) -> SourceMetadata:
        """Return the source's answer about topics.

        Raises:
            TidelogError: No broker answers.
        """

    async def topic_settings(self, topic: str) -> dict[str, str]:
        """Return the settings that are set on a topic itself.

        Raises:
            TidelogError: The source refuses, or does not answer.
        """

    def close(self) -> None:
        """Close all connections."""


class MirrorStatus(Protocol):
    """A mirror partition that this node leads."""

    @property
    def source_high_watermark(self) -> int:
        """The high watermark of the source's last answer, -1 before the first."""

    @property
    def error(self) -> TidelogError | None:
        """Why the last fetch failed, None after a success."""


class Links(Protocol):
    """The cluster links of a node."""

    def open_source(self, config: LinkConfig) -> Source:
        """Return the source of a link with these settings; it connects when it is first used.

        Raises:
            ConfigError: The certificates or keys of the settings are invalid.
        """

    def mirror(self, topic_id: bytes, index: int) -> MirrorStatus | None:
        """Return a mirror partition that this node leads, or None."""

"""Cluster links and mirror topics, with the words of Confluent's Cluster Linking.

A link names another cluster. Its mirror topics are copies of topics of that cluster, with the same names and ids. They
are read-only until they are stopped by a promotion or a failover.
"""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerEpoch, BrokerId, LeaderEpoch, LinkId, TopicId
from tidelog_foundation.requests.request import Request

_NO_LINK_ID = LinkId(b"")
_NO_TOPIC_ID = TopicId(b"")


class MirrorState(IntEnum):
    """The state of a mirror topic."""

    UNSPECIFIED = 0
    ACTIVE = 1
    PAUSED = 2
    PENDING_STOPPED = 3
    """A promotion waits until the mirror has all records of its source."""
    STOPPED = 4
    """The topic is writable, and no mirror any more."""
    FAILED = 5
    """The source has no such topic any more."""


class MirrorOperation(IntEnum):
    """A change of a mirror topic's state."""

    UNSPECIFIED = 0
    PROMOTE = 1
    FAILOVER = 2
    PAUSE = 3
    RESUME = 4
    FAIL = 5
    """A node has found that the source has no such topic. Administrators cannot request it."""


@dataclass(frozen=True, slots=True)
class LinkSetting:
    """A setting of a link."""

    name: str
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClusterLink:
    """A link to the cluster ``source_cluster_id``. Its settings may contain passwords."""

    link_id: LinkId
    name: str
    source_cluster_id: str
    settings: tuple[LinkSetting, ...] = ()

    @property
    def values(self) -> dict[str, str]:
        """The settings by name."""
        return {setting.name: setting.value for setting in self.settings}


@dataclass(frozen=True, slots=True)
class CreateClusterLinkResponse:
    """The link exists."""

    link_id: LinkId = _NO_LINK_ID


@dataclass(frozen=True, slots=True)
class CreateClusterLinkRequest(Request[CreateClusterLinkResponse]):
    """A request to create a link.

    The node that receives it sets ``link_id``, and ``source_cluster_id`` to the id that the source answers; those of a
    client are ignored.
    """

    name: str
    settings: tuple[LinkSetting, ...] = ()
    link_id: LinkId = _NO_LINK_ID
    source_cluster_id: str = ""
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class AlterClusterLinkResponse:
    """The settings are changed."""


@dataclass(frozen=True, slots=True)
class AlterClusterLinkRequest(Request[AlterClusterLinkResponse]):
    """A request to set settings of a link, and to remove others. The link must still lead to the same cluster."""

    name: str
    settings: tuple[LinkSetting, ...] = ()
    removed: tuple[str, ...] = ()
    source_cluster_id: str = ""
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class DeleteClusterLinkResponse:
    """The link is gone."""


@dataclass(frozen=True, slots=True)
class DeleteClusterLinkRequest(Request[DeleteClusterLinkResponse]):
    """A request to delete a link all of whose mirror topics are stopped or deleted."""

    name: str
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class ClusterLinkDescription:
    """A link with the settings that are not secret, and the number of its mirror topics that are not stopped."""

    name: str
    link_id: LinkId
    source_cluster_id: str
    settings: tuple[LinkSetting, ...] = ()
    mirror_topics: int = 0


@dataclass(frozen=True, slots=True)
class ListClusterLinksResponse:
    """All links, by name."""

    links: tuple[ClusterLinkDescription, ...] = ()


@dataclass(frozen=True, slots=True)
class ListClusterLinksRequest(Request[ListClusterLinksResponse]):
    """A request for all links."""


@dataclass(frozen=True, slots=True)
class CreateMirrorTopicResponse:
    """The mirror topic exists, with this number of partitions."""

    num_partitions: int = 0


@dataclass(frozen=True, slots=True)
class CreateMirrorTopicRequest(Request[CreateMirrorTopicResponse]):
    """A request to create a mirror topic. ``replication_factor`` -1 stands for the default of this cluster.

    The node that receives it sets ``topic_id``, ``num_partitions`` and ``settings`` from the source's answers.
    """

    link_name: str
    topic: str
    replication_factor: int = -1
    topic_id: TopicId = _NO_TOPIC_ID
    num_partitions: int = 0
    settings: tuple[LinkSetting, ...] = ()
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class MirrorTopicResult:
    """The outcome for one mirror topic."""

    topic: str
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class AlterMirrorTopicsResponse:
    """One result per topic of the request."""

    topics: tuple[MirrorTopicResult, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterMirrorTopicsRequest(Request[AlterMirrorTopicsResponse]):
    """A request to change the state of mirror topics. Each is changed or refused by itself."""

    operation: MirrorOperation
    topics: tuple[str, ...] = ()
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class MirrorPartitionReport:
    """A leader's report about a mirror partition, which names its leader epoch.

    ``least_leader_epoch`` is the source's leader epoch: the partition needs at least that. ``is_drained`` means that
    the high watermark has reached the source's end. ``num_partitions`` is the number of partitions that the topic has
    on the source, 0 if unknown.
    """

    topic_id: TopicId
    index: int
    leader_epoch: LeaderEpoch
    least_leader_epoch: LeaderEpoch
    is_drained: bool = False
    num_partitions: int = 0


@dataclass(frozen=True, slots=True)
class ReportMirrorPartitionsResponse:
    """The reports are taken. What they lead to is in the metadata log."""


@dataclass(frozen=True, slots=True)
class ReportMirrorPartitionsRequest(Request[ReportMirrorPartitionsResponse]):
    """Reports of a broker about mirror partitions that it leads."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    partitions: tuple[MirrorPartitionReport, ...] = ()


@dataclass(frozen=True, slots=True)
class MirrorSettingsReport:
    """The settings that a mirror topic has on its source, by the leader of its first partition in ``leader_epoch``."""

    topic_id: TopicId
    leader_epoch: LeaderEpoch
    settings: tuple[LinkSetting, ...] = ()


@dataclass(frozen=True, slots=True)
class ReportMirrorSettingsResponse:
    """One result for each topic whose settings have changed or been refused."""

    topics: tuple[MirrorTopicResult, ...] = ()


@dataclass(frozen=True, slots=True)
class ReportMirrorSettingsRequest(Request[ReportMirrorSettingsResponse]):
    """Reports of a broker about the settings of mirror topics, whose first partitions it leads."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    topics: tuple[MirrorSettingsReport, ...] = ()


@dataclass(frozen=True, slots=True)
class MirrorPartitionDescription:
    """A mirror partition as its leader sees it. Offsets are -1 if unknown.

    ``source_high_watermark`` is that of the source's last answer. ``error`` is why the last fetch failed.
    """

    index: int
    leader_epoch: LeaderEpoch
    log_end_offset: int
    high_watermark: int
    source_high_watermark: int = -1
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class MirrorTopicDescription:
    """A mirror topic, with those of its partitions that the answering node leads."""

    topic: str
    link_name: str
    state: MirrorState
    num_partitions: int = 0
    partitions: tuple[MirrorPartitionDescription, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeMirrorTopicsResponse:
    """The mirror topics by name."""

    topics: tuple[MirrorTopicDescription, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeMirrorTopicsRequest(Request[DescribeMirrorTopicsResponse]):
    """A request for mirror topics: those of a link, or of all links if the name is empty."""

    link_name: str = ""

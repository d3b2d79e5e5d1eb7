"""Cluster links and mirror topics. confluent-kafka has no such operations; the words are those of Cluster Linking."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from tidelog.admin.operations import Future, Operations, Outcomes, change_timeout_ms
from tidelog.cluster.answers import error_of
from tidelog.v1 import admin_service_pb2 as pb
from tidelog.v1 import metadata_record_pb2 as record_pb
from tidelog_foundation.errors import ErrorCode, TidelogError


class MirrorTopicState(IntEnum):
    """The state of a mirror topic. STOPPED: it is writable, and no mirror any more."""

    ACTIVE = 1
    PAUSED = 2
    PENDING_STOPPED = 3
    STOPPED = 4
    FAILED = 5


@dataclass(frozen=True, slots=True)
class ClusterLinkListing:
    """A link. Secret settings have the value [hidden]. ``mirror_topics`` counts those that are not stopped."""

    name: str
    link_id: bytes
    source_cluster_id: str
    settings: dict[str, str]
    mirror_topics: int


@dataclass(frozen=True, slots=True)
class MirrorPartitionInfo:
    """A mirror partition as its leader sees it. ``lag`` is in records, None if it is unknown.

    ``error`` is why the leader's last fetch failed.
    """

    partition: int
    leader_epoch: int
    log_end_offset: int
    high_watermark: int
    lag: int | None
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class MirrorTopicInfo:
    """A mirror topic. ``partitions`` lacks those whose leader has not answered, and those of a stopped topic."""

    topic: str
    link_name: str
    state: MirrorTopicState
    num_partitions: int
    partitions: dict[int, MirrorPartitionInfo] = field(default_factory=dict)

    @property
    def lag(self) -> int | None:
        """The lag of all partitions together in records, None while that of one is unknown."""
        lags = [self.partitions[i].lag if i in self.partitions else None for i in range(self.num_partitions)]
        known = [lag for lag in lags if lag is not None]
        return sum(known) if len(known) == len(lags) else None


class LinkAdmin(Operations):
    """Operations on cluster links and mirror topics."""

    def create_cluster_link(
        self, name: str, settings: Mapping[str, str], *, request_timeout: float | None = None
    ) -> Future[None]:
        """Create a link to the cluster at ``bootstrap.servers`` of the settings.

        The future fails with KafkaException: INVALID_CONFIG; an error of the connection to the source;
        DUPLICATE_RESOURCE; UNSUPPORTED_VERSION below ``metadata.version`` 5.
        """
        request = pb.CreateClusterLinkRequest(
            name=name, settings=_settings(settings), timeout_ms=change_timeout_ms(request_timeout)
        )

        async def create() -> None:
            await self._change(lambda c, t: c.admin.CreateClusterLink(request, timeout=t), request_timeout)

        return self._future(create())

    def alter_cluster_link(
        self,
        name: str,
        settings: Mapping[str, str],
        *,
        removed: Iterable[str] = (),
        request_timeout: float | None = None,
    ) -> Future[None]:
        """Set settings of a link and remove others. Its mirrors continue with the new ones.

        The future fails with KafkaException: RESOURCE_NOT_FOUND; INVALID_CONFIG; INVALID_REQUEST if the link would lead
        to another cluster.
        """
        request = pb.AlterClusterLinkRequest(
            name=name,
            settings=_settings(settings),
            removed=list(removed),
            timeout_ms=change_timeout_ms(request_timeout),
        )

        async def alter() -> None:
            await self._change(lambda c, t: c.admin.AlterClusterLink(request, timeout=t), request_timeout)

        return self._future(alter())

    def delete_cluster_link(self, name: str, *, request_timeout: float | None = None) -> Future[None]:
        """Delete a link, all of whose mirror topics are stopped or deleted.

        The future fails with KafkaException: RESOURCE_NOT_FOUND; INVALID_REQUEST if the link has mirror topics.
        """
        request = pb.DeleteClusterLinkRequest(name=name, timeout_ms=change_timeout_ms(request_timeout))

        async def delete() -> None:
            await self._change(lambda c, t: c.admin.DeleteClusterLink(request, timeout=t), request_timeout)

        return self._future(delete())

    def list_cluster_links(self, *, request_timeout: float | None = None) -> Future[list[ClusterLinkListing]]:
        """Return all links, by name."""

        async def list_all() -> list[ClusterLinkListing]:
            request = pb.ListClusterLinksRequest()
            response = await self._ask(lambda c, t: c.admin.ListClusterLinks(request, timeout=t), request_timeout)
            return [
                ClusterLinkListing(
                    link.name,
                    link.link_id,
                    link.source_cluster_id,
                    {s.name: s.value for s in link.settings},
                    link.mirror_topics,
                )
                for link in response.links
            ]

        return self._future(list_all())

    def create_mirror_topics(
        self,
        link_name: str,
        topics: Iterable[str],
        *,
        replication_factor: int = -1,
        request_timeout: float | None = None,
    ) -> dict[str, Future[None]]:
        """Create mirrors of topics of the link's source, with the same names, ids and partitions.

        ``replication_factor`` -1 stands for ``default.replication.factor``. A future fails with KafkaException:
        RESOURCE_NOT_FOUND, UNKNOWN_TOPIC_OR_PARTITION, TOPIC_ALREADY_EXISTS, or an error of the source.
        """

        async def create(topic: str) -> None:
            request = pb.CreateMirrorTopicRequest(
                link_name=link_name,
                topic=topic,
                replication_factor=replication_factor,
                timeout_ms=change_timeout_ms(request_timeout),
            )
            await self._change(lambda c, t: c.admin.CreateMirrorTopic(request, timeout=t), request_timeout)

        return {topic: self._future(create(topic)) for topic in topics}

    def promote_mirror_topics(
        self, topics: Iterable[str], *, request_timeout: float | None = None
    ) -> dict[str, Future[None]]:
        """Begin to promote mirror topics: each becomes writable once it has all records of its source.

        The writers of the source must have stopped. A future is done when the promotion has begun; the state is STOPPED
        at its end. A future fails with KafkaException: INVALID_REQUEST in another state.
        """
        return self._alter_mirrors(pb.MIRROR_OPERATION_PROMOTE, topics, request_timeout)

    def failover_mirror_topics(
        self, topics: Iterable[str], *, request_timeout: float | None = None
    ) -> dict[str, Future[None]]:
        """Make mirror topics writable at once, without the records that have not arrived."""
        return self._alter_mirrors(pb.MIRROR_OPERATION_FAILOVER, topics, request_timeout)

    def pause_mirror_topics(
        self, topics: Iterable[str], *, request_timeout: float | None = None
    ) -> dict[str, Future[None]]:
        """Stop copying mirror topics for a time; they stay read-only."""
        return self._alter_mirrors(pb.MIRROR_OPERATION_PAUSE, topics, request_timeout)

    def resume_mirror_topics(
        self, topics: Iterable[str], *, request_timeout: float | None = None
    ) -> dict[str, Future[None]]:
        """Copy mirror topics again that are paused or failed."""
        return self._alter_mirrors(pb.MIRROR_OPERATION_RESUME, topics, request_timeout)

    def describe_mirror_topics(
        self, link_name: str = "", *, request_timeout: float | None = None
    ) -> Future[dict[str, MirrorTopicInfo]]:
        """Return the mirror topics of a link, or of all links, with their partitions as their leaders see them.

        The future fails with KafkaException: RESOURCE_NOT_FOUND.
        """
        request = pb.DescribeMirrorTopicsRequest(link_name=link_name)

        async def describe() -> dict[str, MirrorTopicInfo]:
            timeout_ms = self._request_ms(request_timeout)
            # A new client does not know all nodes yet.
            await self._cluster.refresh([], timeout_ms=timeout_ms)
            response = await self._ask(lambda c, t: c.admin.DescribeMirrorTopics(request, timeout=t), request_timeout)
            responses = await asyncio.gather(
                *(self._describe_at(node_id, request, timeout_ms) for node_id in self._cluster.metadata.brokers)
            )
            return _merged([response, *(r for r in responses if r is not None)])

        return self._future(describe())

    async def _describe_at(
        self, node_id: int, request: pb.DescribeMirrorTopicsRequest, timeout_ms: float
    ) -> pb.DescribeMirrorTopicsResponse | None:
        """Return the answer of a node, or None if it does not answer: the others still count."""
        try:
            connection = await self._node(node_id, timeout_ms, ErrorCode.BROKER_NOT_AVAILABLE)
            return await connection.call(lambda c: c.admin.DescribeMirrorTopics(request, timeout=timeout_ms / 1000))
        except TidelogError:
            return None

    def _alter_mirrors(
        self, operation: pb.MirrorOperation.ValueType, topics: Iterable[str], request_timeout: float | None
    ) -> dict[str, Future[None]]:
        names = list(dict.fromkeys(topics))
        request = pb.AlterMirrorTopicsRequest(
            operation=operation, topics=names, timeout_ms=change_timeout_ms(request_timeout)
        )

        async def alter() -> Outcomes[str, None]:
            response = await self._change(lambda c, t: c.admin.AlterMirrorTopics(request, timeout=t), request_timeout)
            return {result.topic: error_of(result) for result in response.topics}

        return self._futures(names, alter())


def _settings(settings: Mapping[str, str]) -> list[record_pb.LinkSetting]:
    return [record_pb.LinkSetting(name=name, value=value) for name, value in settings.items()]


def _merged(responses: Sequence[pb.DescribeMirrorTopicsResponse]) -> dict[str, MirrorTopicInfo]:
    """Return the topics of the first response with the partitions of all; the newest leader epoch counts."""
    found = {
        t.topic: MirrorTopicInfo(t.topic, t.link_name, MirrorTopicState(t.state), t.num_partitions)
        for t in responses[0].topics
    }
    for topic in (t for response in responses for t in response.topics if t.topic in found):
        partitions = found[topic.topic].partitions
        for p in topic.partitions:
            known = partitions.get(p.index)
            if known is None or known.leader_epoch <= p.leader_epoch:
                lag = None if p.source_high_watermark < 0 else max(0, p.source_high_watermark - p.high_watermark)
                partitions[p.index] = MirrorPartitionInfo(
                    p.index, p.leader_epoch, p.log_end_offset, p.high_watermark, lag, error_of(p)
                )
    return found

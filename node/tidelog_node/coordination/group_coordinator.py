"""The group coordinator of a node: the shards of groups for the partitions of __consumer_offsets that it leads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.logs.events import EventLog
from tidelog_node.broker.report import Report
from tidelog_node.coordination.coordinator import CoordinatorEnvironment, ShardCoordinator, TopicCreator
from tidelog_node.coordination.metadata import GroupTimings, GroupTopics
from tidelog_node.coordination.offsets_topic import OFFSETS_TOPIC
from tidelog_node.coordination.session_waits import SessionWaits
from tidelog_node.coordination.shard_kind import ShardCore, ShardKind, ShardTerm
from tidelog_node.coordination.views import OpenView, ShardViews, open_rocks_view
from tidelog_node.event_loop import Clock
from tidelog_node.groups.events import (
    GroupNews,
    GroupRequest,
    GroupResponse,
    TimingsChanged,
    TopicInfo,
    TopicsChanged,
    TransactionEnded,
)
from tidelog_node.groups.messages import (
    Coordinator,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetFetchGroup,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)
from tidelog_node.groups.settings import OwnTimings
from tidelog_node.partitions import MetadataCache, Partition, PartitionRegistry
from tidelog_node.shards.events import ClientIdentity
from tidelog_node.shards.store import RecordStore
from tidelog_node.shards.wire import MAX_STRING_BYTES, is_too_long

logger = logging.getLogger(__name__)
GroupCore: TypeAlias = ShardCore[GroupRequest, GroupResponse, GroupNews, Report]
VIEW_FOLDER = "group-view"
MAX_SESSION_WAITS = 10_000
MOVED_MS = 15_000
"""The default of group.consumer.max.heartbeat.interval.ms.

Each member of the consumer protocol sends a heartbeat within it; members of the classic protocol send one every 3 s by
default.
"""
SESSION_WAIT_MS = 3_000
"""Half of the default minimum session timeout. Heartbeats on the same connection wait as well."""


class GroupCoordinator(ShardCoordinator[GroupRequest, GroupResponse, GroupNews, Report]):
    """The group coordinator of a node, on its event loop. ``log_directories`` returns the online directories.

    ``has_session`` returns True if no controller can have elected another leader for this node's partitions.
    """

    def __init__(
        self,
        partitions: PartitionRegistry,
        metadata: MetadataCache,
        topic_creator: TopicCreator,
        log_directories: Callable[[], list[Path]],
        new_core: Callable[[RecordStore], GroupCore],
        clock: Clock,
        compression: str = "none",
        commit_timeout_ms: int = 5_000,
        has_session: Callable[[], bool] = lambda: True,
        session_wait_ms: int = SESSION_WAIT_MS,
        moved_ms: int = MOVED_MS,
        open_view: OpenView = open_rocks_view,
    ) -> None:
        super().__init__(
            _GroupKind(new_core, metadata, has_session),
            CoordinatorEnvironment(partitions, metadata, topic_creator, clock),
            ShardViews(log_directories, VIEW_FOLDER, open_view),
            compression,
            commit_timeout_ms,
            moved_ms,
        )
        self._session_waits = SessionWaits(has_session, clock, session_wait_ms, MAX_SESSION_WAITS)

    async def run(self) -> None:
        """Coordinate until cancelled. Waiting calls are then answered with NOT_COORDINATOR."""
        try:
            await super().run()
        finally:
            self._session_waits.end()

    def coordinator_of(self, group_id: str, listener: str | None = None) -> Coordinator:
        """Return the coordinator of a group (FindCoordinator), and request __consumer_offsets if it does not exist.

        The address is that of the coordinator's listener of this name, or its gRPC endpoint if ``listener`` is None.
        """
        try:
            return Coordinator(group_id, None, *self.leader_of(group_id, listener))
        except TidelogError as error:
            return Coordinator(group_id, error.detached())

    async def wait_for_session(self) -> None:
        """Wait until the node may return committed offsets, for SESSION_WAIT_MS at most.

        A node that coordinates no group does not wait, so that clients are sent to the coordinator at once.
        """
        if self.is_coordinating:
            await self._session_waits.wait()

    async def call(self, shard: int, request: GroupRequest, client: ClientIdentity) -> GroupResponse:
        """Return the answer of one shard.

        OffsetFetch never fails with COORDINATOR_NOT_AVAILABLE. librdkafka does not retry after it, and the consumer
        would wait forever for the offsets of its partitions. It retries after COORDINATOR_LOAD_IN_PROGRESS, unless its
        assignment has changed since the request. Callers therefore first call :meth:`wait_for_session`.

        Raises:
            TidelogError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
        """
        try:
            return await super().call(shard, request, client)
        except TidelogError as error:
            if isinstance(request, OffsetFetchGroup) and error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
                raise error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message) from error
            raise


class _GroupKind(ShardKind[GroupRequest, GroupResponse, GroupNews, Report]):
    """The shards of groups. They share the limit on lines about members and rebalances."""

    topic = OFFSETS_TOPIC
    noun = "groups"

    def __init__(
        self, new_core: Callable[[RecordStore], GroupCore], metadata: MetadataCache, has_session: Callable[[], bool]
    ) -> None:
        self._new_core = new_core
        self._metadata = metadata
        self._has_session = has_session
        self._topics = GroupTopics()
        self._timings = GroupTimings()
        self._log = EventLog(logger)

    def check_id(self, owner: str) -> None:
        if is_too_long(owner):
            text = f"a group's id of {len(owner)} characters does not fit into {MAX_STRING_BYTES} bytes"
            raise error_for(ErrorCode.INVALID_GROUP_ID, text)

    def new_core(self, store: RecordStore) -> GroupCore:
        return self._new_core(store)

    def news(self) -> _GroupNewsFeed:
        return _GroupNewsFeed(self)

    def execute(self, term: ShardTerm[GroupNews], command: Report) -> None:
        self._log.write(command.text, *command.arguments)

    def transaction_ended(self, owners: frozenset[str]) -> GroupNews:
        return TransactionEnded(owners)

    def needs_news(self, request: GroupRequest) -> bool:
        # A commit must be accepted for every topic that this node already knows.
        return isinstance(request, OffsetCommitRequest | TxnOffsetCommitRequest)

    def waits_for_clients(self, request: GroupRequest) -> bool:
        return isinstance(request, JoinGroupRequest | SyncGroupRequest)

    def refusal(self, request: GroupRequest, partition: Partition) -> TidelogError | None:
        """Refuse to return offsets that another coordinator may have advanced, since no replica confirmed these."""
        if isinstance(request, OffsetFetchGroup) and not self._has_session():
            text = f"no controller has heard of this node for a session: {partition} may have another leader"
            return error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
        return None

    def topics(self) -> Mapping[str, TopicInfo]:
        """Return the topics of the newest image."""
        self._topics.follow(self._metadata.image)
        return self._topics.current

    def timings(self) -> Mapping[str, OwnTimings]:
        """Return the timings that the newest image sets on groups."""
        self._timings.follow(self._metadata.image)
        return self._timings.current


class _GroupNewsFeed:
    """The topics and timings that have changed since one shard was last notified."""

    def __init__(self, kind: _GroupKind) -> None:
        self._kind = kind
        self._topics: Mapping[str, TopicInfo] | None = None
        self._timings: Mapping[str, OwnTimings] = {}

    def take(self) -> Sequence[GroupNews]:
        news: list[GroupNews] = []
        if (topics := self._kind.topics()) is not self._topics:
            self._topics = topics
            news.append(TopicsChanged(topics))
        if (timings := self._kind.timings()) != self._timings:
            self._timings = timings
            news.append(TimingsChanged(timings))
        return news

"""The requests that a shard of groups answers, and the events that only shards of groups have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_node.broker.report import Report
from tidelog_node.groups import messages
from tidelog_node.groups.settings import OwnTimings
from tidelog_node.groups.value_formats import OffsetCommitValue
from tidelog_node.shards.events import RequestReceived, ShardCommand, ShardEvent

GroupRequest = (
    messages.JoinGroupRequest
    | messages.SyncGroupRequest
    | messages.HeartbeatRequest
    | messages.LeaveGroupRequest
    | messages.ConsumerGroupHeartbeatRequest
    | messages.OffsetCommitRequest
    | messages.TxnOffsetCommitRequest
    | messages.OffsetFetchGroup
    | messages.OffsetDeleteRequest
    | messages.ListGroupsRequest
    | messages.DescribeGroupsRequest
    | messages.ConsumerGroupDescribeRequest
    | messages.DeleteGroupsRequest
)
"""The requests that one shard answers. Requests for several groups arrive split by shard, ListGroups at each shard."""


@dataclass(frozen=True, slots=True)
class AllOffsets:
    """The committed offsets of a group, by topic and partition, in no particular order.

    The answer to OffsetFetch for all topics. Building a message of them takes too long for one step of the shard.
    """

    group_id: str
    committed: Sequence[tuple[tuple[str, int], OffsetCommitValue]] = ()
    error: TidelogError | None = None
    unstable: frozenset[tuple[str, int]] = frozenset()
    """The partitions whose offsets an open transaction may change, if the request asked for stable ones."""


GroupResponse = (
    messages.JoinGroupResponse
    | messages.SyncGroupResponse
    | messages.HeartbeatResponse
    | messages.LeaveGroupResponse
    | messages.ConsumerGroupHeartbeatResponse
    | messages.OffsetCommitResponse
    | messages.TxnOffsetCommitResponse
    | messages.OffsetFetchGroupResult
    | AllOffsets
    | messages.OffsetDeleteResponse
    | messages.ListGroupsResponse
    | messages.DescribeGroupsResponse
    | messages.ConsumerGroupDescribeResponse
    | messages.DeleteGroupsResponse
)


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """The attributes of a topic that groups use. ``racks[p]`` contains the racks of the replicas of partition p."""

    topic_id: bytes
    name: str
    partitions: int
    racks: tuple[frozenset[str], ...] = ()


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """The topics of the cluster, by name."""

    topics: Mapping[str, TopicInfo]


@dataclass(frozen=True, slots=True)
class TimingsChanged:
    """The timings set on single groups, by group id."""

    own_timings: Mapping[str, OwnTimings]


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """A transaction with offsets of these groups was committed or aborted. The store has the result."""

    group_ids: frozenset[str]


GroupCall: TypeAlias = RequestReceived[GroupRequest]
GroupNews: TypeAlias = TopicsChanged | TimingsChanged | TransactionEnded
"""The events that only shards of groups have."""
Event: TypeAlias = ShardEvent[GroupRequest] | GroupNews
Command: TypeAlias = ShardCommand[GroupResponse] | Report

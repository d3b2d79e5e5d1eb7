"""The events that a shard of groups processes and the commands that it returns to the shell.

The shell executes each :class:`WriteRecords` before it delivers the next event. It appends the records to the shard's
partition and answers with :class:`RecordsWritten`, or with :class:`WriteFailed` if nothing was appended. Later it
delivers :class:`RecordsCommitted` once every in-sync replica has the records, or :class:`WriteFailed` if that is
uncertain. Responses that depend on a write are returned as commands when it is committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidelog_foundation.errors import TidelogError
from tidelog_node.groups import messages
from tidelog_node.groups.settings import OwnTimings
from tidelog_node.groups.value_formats import OffsetCommitValue

GroupRequest = (
    messages.JoinGroupRequest
    | messages.SyncGroupRequest
    | messages.HeartbeatRequest
    | messages.LeaveGroupRequest
    | messages.ConsumerGroupHeartbeatRequest
    | messages.OffsetCommitRequest
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


GroupResponse = (
    messages.JoinGroupResponse
    | messages.SyncGroupResponse
    | messages.HeartbeatResponse
    | messages.LeaveGroupResponse
    | messages.ConsumerGroupHeartbeatResponse
    | messages.OffsetCommitResponse
    | messages.OffsetFetchGroupResult
    | AllOffsets
    | messages.OffsetDeleteResponse
    | messages.ListGroupsResponse
    | messages.DescribeGroupsResponse
    | messages.ConsumerGroupDescribeResponse
    | messages.DeleteGroupsResponse
)


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """The caller's ``client.id`` and host address, as descriptions show them."""

    client_id: str
    host: str


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A record of __consumer_offsets. A ``value`` of None deletes the key."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """The attributes of a topic that groups use. ``racks[p]`` contains the racks of the replicas of partition p."""

    topic_id: bytes
    name: str
    partitions: int
    racks: tuple[frozenset[str], ...] = ()


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A call. One :class:`Respond` answers it, possibly much later."""

    call_id: int
    request: GroupRequest
    client: ClientIdentity


@dataclass(frozen=True, slots=True)
class RequestAbandoned:
    """The caller has gone, and nobody waits for the answer."""

    call_id: int


@dataclass(frozen=True, slots=True)
class RecordsWritten:
    """The records are in the log but not yet committed."""

    write_id: int


@dataclass(frozen=True, slots=True)
class RecordsCommitted:
    """The records are committed. Writes are committed in order."""

    write_id: int


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """The records were not appended. After :class:`RecordsWritten`, it is unknown whether they will be committed."""

    write_id: int
    error: TidelogError


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """The topics of the cluster, by name."""

    topics: Mapping[str, TopicInfo]


@dataclass(frozen=True, slots=True)
class TimingsChanged:
    """The timings set on single groups, by group id."""

    own_timings: Mapping[str, OwnTimings]


@dataclass(frozen=True, slots=True)
class TimePassed:
    """A deadline may have passed."""


Event = (
    RequestReceived
    | RequestAbandoned
    | RecordsWritten
    | RecordsCommitted
    | WriteFailed
    | TopicsChanged
    | TimingsChanged
    | TimePassed
)


@dataclass(frozen=True, slots=True)
class WriteRecords:
    """Append these records as one batch. The module describes the events that follow."""

    write_id: int
    records: tuple[GroupRecord, ...]


@dataclass(frozen=True, slots=True)
class Respond:
    """Answer a call."""

    call_id: int
    response: GroupResponse


Command = WriteRecords | Respond

"""What a shard of groups is told, and what it asks the shell to do.

The shell carries out each :class:`WriteRecords` before it takes the next event: it appends the records to the
shard's partition and answers with :class:`RecordsWritten`, or :class:`WriteFailed` when nothing was appended. Later
comes :class:`RecordsCommitted`, once every in-sync replica has them, or :class:`WriteFailed` when that is not certain.
Responses that depend on a write are commanded when it is committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import TidelogError
from tidelog_node.groups.settings import OwnTimings
from tidelog_node.groups.value_formats import OffsetCommitValue

GroupRequest = (
    pb.JoinGroupRequest
    | pb.SyncGroupRequest
    | pb.HeartbeatRequest
    | pb.LeaveGroupRequest
    | pb.ConsumerGroupHeartbeatRequest
    | pb.OffsetCommitRequest
    | pb.OffsetFetchGroup
    | pb.OffsetDeleteRequest
    | pb.ListGroupsRequest
    | pb.DescribeGroupsRequest
    | pb.ConsumerGroupDescribeRequest
    | pb.DeleteGroupsRequest
)
"""The requests that one shard answers. Those for several groups come divided by shard, ListGroups to each shard."""


@dataclass(frozen=True, slots=True)
class AllOffsets:
    """The committed offsets of a group, by topic and partition, in no order.

    The answer to OffsetFetch with all topics: a message of them takes too long to make in one step of the shard.
    """

    group_id: str
    committed: Sequence[tuple[tuple[str, int], OffsetCommitValue]] = ()
    error: TidelogError | None = None


GroupResponse = (
    pb.JoinGroupResponse
    | pb.SyncGroupResponse
    | pb.HeartbeatResponse
    | pb.LeaveGroupResponse
    | pb.ConsumerGroupHeartbeatResponse
    | pb.OffsetCommitResponse
    | pb.OffsetFetchGroupResult
    | AllOffsets
    | pb.OffsetDeleteResponse
    | pb.ListGroupsResponse
    | pb.DescribeGroupsResponse
    | pb.ConsumerGroupDescribeResponse
    | pb.DeleteGroupsResponse
)


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """Who calls: ``client.id`` and the host's address, as descriptions show them."""

    client_id: str
    host: str


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A record of __consumer_offsets; ``value`` None deletes the key."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as far as groups are concerned; ``racks[p]`` are those of partition p's replicas."""

    topic_id: bytes
    name: str
    partitions: int
    racks: tuple[frozenset[str], ...] = ()


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A call; it is answered by one :class:`Respond`, maybe much later."""

    call_id: int
    request: GroupRequest
    client: ClientIdentity


@dataclass(frozen=True, slots=True)
class RequestAbandoned:
    """The caller has gone away: nobody waits for the answer."""

    call_id: int


@dataclass(frozen=True, slots=True)
class RecordsWritten:
    """The records are in the log, and not yet committed."""

    write_id: int


@dataclass(frozen=True, slots=True)
class RecordsCommitted:
    """The records are committed. Writes are committed in their order."""

    write_id: int


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """The records were not appended; or after :class:`RecordsWritten`: whether they will be committed is not known."""

    write_id: int
    error: TidelogError


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """The topics of the cluster, by name."""

    topics: Mapping[str, TopicInfo]


@dataclass(frozen=True, slots=True)
class TimingsChanged:
    """What is set on single groups, by their ids."""

    own_timings: Mapping[str, OwnTimings]


@dataclass(frozen=True, slots=True)
class TimePassed:
    """A deadline may be over."""


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
    """Append these records as one batch; see the module for what follows."""

    write_id: int
    records: tuple[GroupRecord, ...]


@dataclass(frozen=True, slots=True)
class Respond:
    """Answer a call."""

    call_id: int
    response: GroupResponse


Command = WriteRecords | Respond

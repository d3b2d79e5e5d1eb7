"""Committed offsets of groups.

OffsetCommit, OffsetFetch, OffsetDelete (KIP-211, KIP-447, KIP-496, KIP-709, KIP-848).
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import (
    INT32,
    LAST_VERSION,
    Message,
    Structure,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
    uuid,
)


@dataclass(slots=True)
class OffsetCommitRequestPartition(Structure):
    """An offset to commit. A leader epoch of -1 means unknown."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=6, default=-1)
    committed_metadata: str | None = string(nullable=0)


@dataclass(slots=True)
class OffsetCommitRequestTopic(Structure):
    """A topic, by name up to version 9 and by id from version 10 on."""

    name: str = string(until=9)
    topic_id: bytes = uuid(since=10)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@dataclass(slots=True)
class OffsetCommitRequest(Message):
    """A commit of offsets. A retention time of -1 means the cluster's.

    A generation or epoch of -1 with an empty member id is a commit from a client that is not a member.
    """

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.OFFSET_COMMIT, (2, 10), 8

    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    group_instance_id: str | None = string(since=7, nullable=7, default=None)
    retention_time_ms: int = int64(since=2, until=4, default=-1)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


@dataclass(slots=True)
class OffsetCommitResponsePartition(Structure):
    """The result of one partition."""

    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True)
class OffsetCommitResponseTopic(Structure):
    """A topic's results, with the name or id of the request."""

    name: str = string(until=9)
    topic_id: bytes = uuid(since=10)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@dataclass(slots=True)
class OffsetCommitResponse(Message):
    """The results in the order of the request."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.OFFSET_COMMIT, (2, 10), 8

    throttle_time_ms: int = int32(since=3)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)


@dataclass(slots=True)
class OffsetFetchRequestTopic(Structure):
    """A topic, by name up to version 9 and by id from version 10 on."""

    name: str = string(until=9)
    topic_id: bytes = uuid(since=10)
    partition_indexes: list[int] = array(INT32)


@dataclass(slots=True)
class OffsetFetchRequestGroup(Structure):
    """A group whose offsets are requested. Null topics request all committed offsets."""

    group_id: str = string()
    member_id: str | None = string(since=9, nullable=9, default=None)
    member_epoch: int = int32(since=9, default=-1)
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, nullable=8)


@dataclass(slots=True)
class OffsetFetchRequest(Message):
    """A request for committed offsets: of one group up to version 7, of several from version 8 on."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.OFFSET_FETCH, (1, 10), 6

    group_id: str = string(until=7)
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, until=7, nullable=2)
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8)
    require_stable: bool = boolean(since=7)


@dataclass(slots=True)
class OffsetFetchResponsePartition(Structure):
    """A committed offset, -1 if there is none."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=5, default=-1)
    metadata: str | None = string(nullable=0)
    error_code: int = int16()


@dataclass(slots=True)
class OffsetFetchResponseTopic(Structure):
    """A topic, by name up to version 9 and by id from version 10 on."""

    name: str = string(until=9)
    topic_id: bytes = uuid(since=10)
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


@dataclass(slots=True)
class OffsetFetchResponseGroup(Structure):
    """The committed offsets of a group."""

    group_id: str = string()
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic)
    error_code: int = int16()


@dataclass(slots=True)
class OffsetFetchResponse(Message):
    """The committed offsets. In version 1 each partition has the error of the group."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.OFFSET_FETCH, (1, 10), 6

    throttle_time_ms: int = int32(since=3)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, until=7)
    error_code: int = int16(since=2, until=7)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8)


@dataclass(slots=True)
class OffsetDeleteRequestPartition(Structure):
    """A partition."""

    partition_index: int = int32()


@dataclass(slots=True)
class OffsetDeleteRequestTopic(Structure):
    """Partitions of a topic."""

    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


@dataclass(slots=True)
class OffsetDeleteRequest(Message):
    """The offsets of a group to delete."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.OFFSET_DELETE, (0, 0), LAST_VERSION

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


@dataclass(slots=True)
class OffsetDeleteResponsePartition(Structure):
    """The result of one partition."""

    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True)
class OffsetDeleteResponseTopic(Structure):
    """Partitions of a topic."""

    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


@dataclass(slots=True)
class OffsetDeleteResponse(Message):
    """The results per topic. If the group has an error, there are no topics."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.OFFSET_DELETE, (0, 0), LAST_VERSION

    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)

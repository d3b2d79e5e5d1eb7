"""Committed offsets of groups.

OffsetCommit, OffsetFetch, OffsetDelete (KIP-211, KIP-447, KIP-496, KIP-709, KIP-848).
"""

from __future__ import annotations

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


class OffsetCommitRequestPartition(Structure):
    """An offset to commit. A leader epoch of -1 means unknown."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=6, default=-1)
    committed_metadata: str | None = string(nullable=0)


class OffsetCommitRequestTopic(Structure):
    """A topic, by name up to version 9 and by id from version 10 on."""

    name: str = string(until=9)
    topic_id: bytes = uuid(since=10)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class OffsetCommitRequest(Message, api=ApiKey.OFFSET_COMMIT, versions=(2, 10), flexible=8):
    """A commit of offsets. A retention time of -1 means the cluster's.

    A generation or epoch of -1 with an empty member id is a commit from a client that is not a member.
    """

    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    group_instance_id: str | None = string(since=7, nullable=7, default=None)
    retention_time_ms: int = int64(since=2, until=4, default=-1)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(Structure):
    """The result of one partition."""

    partition_index: int = int32()
    error_code: int = int16()


class OffsetCommitResponseTopic(Structure):
    """A topic's results, with the name or id of the request."""

    name: str = string(until=9)
    topic_id: bytes = uuid(since=10)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


class OffsetCommitResponse(Message, answers=OffsetCommitRequest):
    """The results in the order of the request."""

    throttle_time_ms: int = int32(since=3)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)


class OffsetFetchRequestTopic(Structure):
    """A topic, by name up to version 9 and by id from version 10 on."""

    name: str = string(until=9)
    topic_id: bytes = uuid(since=10)
    partition_indexes: list[int] = array(INT32)


class OffsetFetchRequestGroup(Structure):
    """A group whose offsets are requested. Null topics request all committed offsets."""

    group_id: str = string()
    member_id: str | None = string(since=9, nullable=9, default=None)
    member_epoch: int = int32(since=9, default=-1)
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, nullable=8)


class OffsetFetchRequest(Message, api=ApiKey.OFFSET_FETCH, versions=(1, 10), flexible=6):
    """A request for committed offsets: of one group up to version 7, of several from version 8 on."""

    group_id: str = string(until=7)
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, until=7, nullable=2)
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8)
    require_stable: bool = boolean(since=7)


class OffsetFetchResponsePartition(Structure):
    """A committed offset, -1 if there is none."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=5, default=-1)
    metadata: str | None = string(nullable=0)
    error_code: int = int16()


class OffsetFetchResponseTopic(Structure):
    """A topic, by name up to version 9 and by id from version 10 on."""

    name: str = string(until=9)
    topic_id: bytes = uuid(since=10)
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


class OffsetFetchResponseGroup(Structure):
    """The committed offsets of a group."""

    group_id: str = string()
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic)
    error_code: int = int16()


class OffsetFetchResponse(Message, answers=OffsetFetchRequest):
    """The committed offsets. In version 1 each partition has the error of the group."""

    throttle_time_ms: int = int32(since=3)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, until=7)
    error_code: int = int16(since=2, until=7)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8)


class OffsetDeleteRequestPartition(Structure):
    """A partition."""

    partition_index: int = int32()


class OffsetDeleteRequestTopic(Structure):
    """Partitions of a topic."""

    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


class OffsetDeleteRequest(Message, api=ApiKey.OFFSET_DELETE, versions=(0, 0), flexible=LAST_VERSION):
    """The offsets of a group to delete."""

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(Structure):
    """The result of one partition."""

    partition_index: int = int32()
    error_code: int = int16()


class OffsetDeleteResponseTopic(Structure):
    """Partitions of a topic."""

    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


class OffsetDeleteResponse(Message, answers=OffsetDeleteRequest):
    """The results per topic. If the group has an error, there are no topics."""

    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)

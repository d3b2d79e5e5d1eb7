"""OffsetCommit, OffsetFetch and OffsetDelete: the offsets that groups have committed.

Newer versions name topics by their ids. What is not known is said so of its partitions, whatever else is wrong with a
commit, as in Kafka's KafkaApis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from tidelog.errors import ErrorCode
from tidelog.ids import TopicId
from tidelog.v1 import group_service_pb2 as pb
from tidelog_node.handlers import group_offsets
from tidelog_node.kafka.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from tidelog_node.kafka.served import Api, Caller, KafkaNode, MessageApi
from tidelog_quorum.metadata import MetadataImage

_TOPIC_IDS = 10
_KNOWS_MEMBER_EPOCHS = 9
_SEVERAL_GROUPS = 8
_GROUP_ERROR = 2
_NO_EPOCH = -1
_NO_OFFSET = -1
_NO_RETENTION = -1
_Codes: TypeAlias = dict[tuple[str, int], int]
"""By topic and partition."""


async def offset_commit(node: KafkaNode, request: OffsetCommitRequest, caller: Caller) -> OffsetCommitResponse:
    """Commit the offsets of the partitions that there are; answered when they are on all in-sync replicas."""
    image = node.context.metadata.image
    names = _names(image, request.topics, caller)
    asked = pb.OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        without_member_epochs=caller.version < _KNOWS_MEMBER_EPOCHS,
        retention_time_ms=None if request.retention_time_ms == _NO_RETENTION else request.retention_time_ms,
    )
    for name, topic in zip(names, request.topics, strict=True):
        known = [_committed(p) for p in topic.partitions if name and image.partition(name, p.partition_index)]
        if known:
            asked.topics.add(name=name, partitions=known)
    codes: _Codes = {}
    if asked.topics:
        answer = await group_offsets.offset_commit(node.groups, asked, caller.client)
        codes = {(topic.name, part.index): part.error.code for topic in answer.topics for part in topic.partitions}
    return OffsetCommitResponse(
        topics=[_commit_result(name, topic, codes) for name, topic in zip(names, request.topics, strict=True)]
    )


def _committed(partition: OffsetCommitRequestPartition) -> pb.OffsetCommitPartition:
    epoch = partition.committed_leader_epoch
    return pb.OffsetCommitPartition(
        index=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=None if epoch == _NO_EPOCH else epoch,
        committed_metadata=partition.committed_metadata or "",
    )


def _commit_result(name: str | None, topic: OffsetCommitRequestTopic, codes: _Codes) -> OffsetCommitResponseTopic:
    unknown = (ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION).code
    indexes = [partition.partition_index for partition in topic.partitions]
    partitions = [OffsetCommitResponsePartition(i, codes.get((name or "", i), unknown)) for i in indexes]
    return OffsetCommitResponseTopic(topic.name, topic.topic_id, partitions)


async def offset_fetch(node: KafkaNode, request: OffsetFetchRequest, caller: Caller) -> OffsetFetchResponse:
    """Return what groups have committed; up to version 7 one group."""
    names_several = caller.version >= _SEVERAL_GROUPS
    one = OffsetFetchRequestGroup(group_id=request.group_id, topics=request.topics)
    groups = request.groups if names_several else [one]
    image = node.context.metadata.image
    asked = pb.OffsetFetchRequest(
        groups=[_asked_group(image, group, caller) for group in groups], require_stable=request.require_stable
    )
    answer = await group_offsets.offset_fetch(node.groups, asked, caller.client)
    results = [_group_result(image, group, result, caller) for group, result in zip(groups, answer.groups, strict=True)]
    if names_several:
        return OffsetFetchResponse(groups=results)
    return OffsetFetchResponse(topics=results[0].topics, error_code=results[0].error_code)


def _asked_group(image: MetadataImage, group: OffsetFetchRequestGroup, caller: Caller) -> pb.OffsetFetchGroup:
    topics = group.topics or []
    names = _names(image, topics, caller)
    # An epoch without a member is that of nobody.
    member_id = "" if group.member_id is None and group.member_epoch >= 0 else group.member_id
    return pb.OffsetFetchGroup(
        group_id=group.group_id,
        member_id=member_id,
        member_epoch=group.member_epoch,
        topics=[
            pb.OffsetFetchTopic(name=name, partitions=topic.partition_indexes)
            for name, topic in zip(names, topics, strict=True)
            if name is not None
        ],
        all_topics=group.topics is None,
    )


def _group_result(
    image: MetadataImage, group: OffsetFetchRequestGroup, result: pb.OffsetFetchGroupResult, caller: Caller
) -> OffsetFetchResponseGroup:
    code = result.error.code
    if code and caller.version < _GROUP_ERROR:
        topics = [_failed_topic(topic, code) for topic in group.topics or ()]
    elif code:
        topics = []
    elif group.topics is None:
        topics = list(_all_topics(image, result, caller))
    else:
        topics = list(_asked_topics(image, group.topics, result, caller))
    return OffsetFetchResponseGroup(group.group_id, topics, code)


def _all_topics(
    image: MetadataImage, result: pb.OffsetFetchGroupResult, caller: Caller
) -> Iterator[OffsetFetchResponseTopic]:
    for topic in result.topics:
        known = image.topics.get(topic.name)
        if caller.version < _TOPIC_IDS:
            yield _fetched_topic(OffsetFetchRequestTopic(name=topic.name), topic)
        elif known is not None:
            yield _fetched_topic(OffsetFetchRequestTopic(topic_id=known.topic_id), topic)


def _asked_topics(
    image: MetadataImage, topics: Sequence[OffsetFetchRequestTopic], result: pb.OffsetFetchGroupResult, caller: Caller
) -> Iterator[OffsetFetchResponseTopic]:
    results = iter(result.topics)
    for name, topic in zip(_names(image, topics, caller), topics, strict=True):
        if name is None:
            yield _failed_topic(topic, ErrorCode.UNKNOWN_TOPIC_ID.code)
        else:
            yield _fetched_topic(topic, next(results))


def _fetched_topic(topic: OffsetFetchRequestTopic, result: pb.OffsetFetchTopicResult) -> OffsetFetchResponseTopic:
    partitions = [
        OffsetFetchResponsePartition(
            part.index, part.committed_offset, part.committed_leader_epoch, part.metadata, part.error.code
        )
        for part in result.partitions
    ]
    return OffsetFetchResponseTopic(topic.name, topic.topic_id, partitions)


def _failed_topic(topic: OffsetFetchRequestTopic, code: int) -> OffsetFetchResponseTopic:
    partitions = [
        OffsetFetchResponsePartition(index, _NO_OFFSET, _NO_EPOCH, "", code) for index in topic.partition_indexes
    ]
    return OffsetFetchResponseTopic(topic.name, topic.topic_id, partitions)


async def offset_delete(node: KafkaNode, request: OffsetDeleteRequest, caller: Caller) -> OffsetDeleteResponse:
    """Delete offsets of a group (KIP-496); partitions that there are not keep nothing that could be deleted."""
    image = node.context.metadata.image
    asked = pb.OffsetDeleteRequest(group_id=request.group_id)
    for topic in request.topics:
        partitions = [i for i in _indexes(topic) if image.partition(topic.name, i) is not None]
        if partitions:
            asked.topics.add(name=topic.name, partitions=partitions)
    answer = await group_offsets.offset_delete(node.groups, asked, caller.client)
    if answer.HasField("error"):
        return OffsetDeleteResponse(error_code=answer.error.code)
    codes = {(result.name, part.index): part.error.code for result in answer.topics for part in result.partitions}
    return OffsetDeleteResponse(topics=[_delete_result(topic, codes) for topic in request.topics])


def _indexes(topic: OffsetDeleteRequestTopic) -> list[int]:
    return [partition.partition_index for partition in topic.partitions]


def _delete_result(topic: OffsetDeleteRequestTopic, codes: _Codes) -> OffsetDeleteResponseTopic:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
    partitions = [OffsetDeleteResponsePartition(i, codes.get((topic.name, i), unknown)) for i in _indexes(topic)]
    return OffsetDeleteResponseTopic(topic.name, partitions)


def _names(
    image: MetadataImage, topics: Sequence[OffsetCommitRequestTopic | OffsetFetchRequestTopic], caller: Caller
) -> list[str | None]:
    """Return the name of each topic, None for an id that is not known."""
    if caller.version < _TOPIC_IDS:
        return [topic.name for topic in topics]
    return [image.topic_names.get(TopicId(topic.topic_id)) for topic in topics]


APIS: tuple[Api, ...] = (
    MessageApi(OffsetCommitRequest, offset_commit),
    MessageApi(OffsetFetchRequest, offset_fetch),
    MessageApi(OffsetDeleteRequest, offset_delete),
)

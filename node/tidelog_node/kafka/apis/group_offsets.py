"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete: the committed offsets of groups.

Newer versions name topics by id. Unknown topics are reported for their partitions, regardless of other errors of a
commit, as in Kafka's KafkaApis.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TypeAlias

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.ids import TopicId
from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.groups import messages
from tidelog_node.handlers import group_offsets
from tidelog_node.kafka.apis.errors import close_if_late, code_of
from tidelog_node.kafka.protocol.messages import group_offsets as wire
from tidelog_node.kafka.protocol.messages import transactions
from tidelog_node.kafka.served import Api, Caller, KafkaNode, MessageApi
from tidelog_node.shards.connections import UNORDERED
from tidelog_node.transactions.states import EPOCH_BUMP_VERSION
from tidelog_quorum.metadata.image import MetadataImage

_TOPIC_IDS = 10
_KNOWS_MEMBER_EPOCHS = 9
_SEVERAL_GROUPS = 8
_GROUP_ERROR = 2
_NO_EPOCH = -1
_NO_OFFSET = -1
_NO_RETENTION = -1
_FIRST_WITH_LOADING_COORDINATORS = 2
"""The first version of TxnOffsetCommit whose producers know COORDINATOR_LOAD_IN_PROGRESS."""
_FIRST_WITH_ABORTABLE_ERRORS = 4
"""The first version of TxnOffsetCommit whose producers know TRANSACTION_ABORTABLE."""
_FIRST_ADDING_GROUPS = 5
"""The first version of TxnOffsetCommit that adds the group to the transaction."""
_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
_Codes: TypeAlias = dict[tuple[str, int], int]
"""The code by topic and partition."""
_Partition: TypeAlias = wire.OffsetCommitRequestPartition | transactions.TxnOffsetCommitRequestPartition
_Topic: TypeAlias = wire.OffsetCommitRequestTopic | transactions.TxnOffsetCommitRequestTopic


async def offset_commit(
    node: KafkaNode, request: wire.OffsetCommitRequest, caller: Caller
) -> wire.OffsetCommitResponse:
    """Commit the offsets of existing partitions. The answer follows when all in-sync replicas have them."""
    image = node.context.metadata.image
    names = _names(image, request.topics, caller)
    slices = TimeSlices()
    topics = await _existing(image, names, request.topics, slices)
    asked = messages.OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        without_member_epochs=caller.version < _KNOWS_MEMBER_EPOCHS,
        topics=topics,
        retention_time_ms=None if request.retention_time_ms == _NO_RETENTION else request.retention_time_ms,
    )
    codes: _Codes = {}
    if topics:
        answer = await group_offsets.offset_commit(node.groups, asked, caller.client)
        codes = await _codes_of(answer.topics, slices)
    results = []
    async for name, topic in slices.of(zip(names, request.topics, strict=True)):
        unknown = ErrorCode.UNKNOWN_TOPIC_ID.code if name is None else _UNKNOWN
        partitions = [
            wire.OffsetCommitResponsePartition(p.partition_index, codes.get((name or "", p.partition_index), unknown))
            async for p in slices.of(topic.partitions)
        ]
        results.append(wire.OffsetCommitResponseTopic(topic.name, topic.topic_id, partitions))
    return wire.OffsetCommitResponse(topics=results)


async def txn_offset_commit(
    node: KafkaNode, request: transactions.TxnOffsetCommitRequest, caller: Caller
) -> transactions.TxnOffsetCommitResponse:
    """Commit the offsets of existing partitions as part of a transaction."""
    slices, adds_group = TimeSlices(), caller.version >= _FIRST_ADDING_GROUPS
    names = [topic.name for topic in request.topics]
    topics = await _existing(node.context.metadata.image, names, request.topics, slices)
    asked = messages.TxnOffsetCommitRequest(
        request.transactional_id,
        request.group_id,
        request.producer_id,
        request.producer_epoch,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        topics,
        EPOCH_BUMP_VERSION if adds_group else 0,
        # The epoch tells which transaction the request belongs to.
        connection_us=UNORDERED if adds_group else caller.connection_us,
    )
    codes: _Codes = {}
    if topics:
        answer = await group_offsets.txn_offset_commit(node.context, node.groups, asked, caller.client)
        close_if_late(next((p.error for topic in answer.topics for p in topic.partitions), None))
        codes = await _codes_of(answer.topics, slices)
    results = []
    async for topic in slices.of(request.topics):
        partitions = [
            transactions.TxnOffsetCommitResponsePartition(
                p.partition_index, _code_for(codes.get((topic.name, p.partition_index), _UNKNOWN), caller.version)
            )
            async for p in slices.of(topic.partitions)
        ]
        results.append(transactions.TxnOffsetCommitResponseTopic(topic.name, partitions))
    return transactions.TxnOffsetCommitResponse(topics=results)


async def _existing(
    image: MetadataImage, names: Iterable[str | None], topics: Sequence[_Topic], slices: TimeSlices
) -> tuple[messages.OffsetCommitTopic, ...]:
    """Return the partitions of a commit that exist; a topic's name is None if its id is unknown."""
    found = []
    async for name, topic in slices.of(zip(names, topics, strict=True)):
        asked: Sequence[_Partition] = topic.partitions
        known = [_committed(p) async for p in slices.of(asked) if name and image.partition(name, p.partition_index)]
        if name and known:
            found.append(messages.OffsetCommitTopic(name, tuple(known)))
    return tuple(found)


def _code_for(code: int, version: int) -> int:
    """Return a code, or one that old producers know instead (AddPartitionsToTxnManager, KAFKA-7296)."""
    if code == ErrorCode.TRANSACTION_ABORTABLE.code and version < _FIRST_WITH_ABORTABLE_ERRORS:
        return ErrorCode.INVALID_TXN_STATE.code
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.code and version < _FIRST_WITH_LOADING_COORDINATORS:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE.code
    return code


async def _codes_of(topics: Iterable[messages.OffsetCommitTopicResult], slices: TimeSlices) -> _Codes:
    return {
        (topic.name, p.index): code_of(p.error)
        async for topic in slices.of(topics)
        async for p in slices.of(topic.partitions)
    }


def _committed(partition: _Partition) -> messages.OffsetCommitPartition:
    epoch = partition.committed_leader_epoch
    return messages.OffsetCommitPartition(
        index=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=None if epoch == _NO_EPOCH else epoch,
        committed_metadata=partition.committed_metadata or "",
    )


async def offset_fetch(node: KafkaNode, request: wire.OffsetFetchRequest, caller: Caller) -> wire.OffsetFetchResponse:
    """Return the committed offsets of groups, up to version 7 of one group."""
    names_several = caller.version >= _SEVERAL_GROUPS
    one = wire.OffsetFetchRequestGroup(group_id=request.group_id, topics=request.topics)
    groups = request.groups if names_several else [one]
    image = node.context.metadata.image
    slices = TimeSlices()
    asked_groups = [await slices.result_of(_asked_group(image, group, caller)) async for group in slices.of(groups)]
    asked = messages.OffsetFetchRequest(tuple(asked_groups), request.require_stable)
    answer = await group_offsets.offset_fetch(node.groups, asked, caller.client)
    results = []
    async for group, result in slices.of(zip(groups, answer.groups, strict=True)):
        code = _group_error(node, group, result)
        topics = await slices.result_of(_fetched_topics(image, group, result, code, caller))
        results.append(wire.OffsetFetchResponseGroup(group.group_id, topics, code))
    if names_several:
        return wire.OffsetFetchResponse(groups=results)
    return wire.OffsetFetchResponse(topics=results[0].topics, error_code=results[0].error_code)


def _asked_group(
    image: MetadataImage, group: wire.OffsetFetchRequestGroup, caller: Caller
) -> Generator[None, None, messages.OffsetFetchGroup]:
    # No member matches an epoch without a member id.
    member_id = "" if group.member_id is None and group.member_epoch >= 0 else group.member_id
    asked = []
    topics = group.topics or []
    for name, topic in zip(_names(image, topics, caller), topics, strict=True):
        if name is not None:
            asked.append(TopicPartitions(name, tuple(topic.partition_indexes)))
        yield
    return messages.OffsetFetchGroup(
        group.group_id, member_id, group.member_epoch, tuple(asked), all_topics=group.topics is None
    )


def _group_error(node: KafkaNode, group: wire.OffsetFetchRequestGroup, result: messages.OffsetFetchGroupResult) -> int:
    """Return the code of the group's error, 0 for none.

    COORDINATOR_LOAD_IN_PROGRESS replaces NOT_COORDINATOR until each member has learned by a heartbeat that the
    coordinator has moved. Other clients retry after both codes. librdkafka (as of 2.16) retries only after the first;
    after the second it never reads those partitions and completes no later assignment.
    """
    code = code_of(result.error)
    if code == ErrorCode.NOT_COORDINATOR.code and node.groups.has_coordinated(group.group_id):
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.code
    return code


def _fetched_topics(
    image: MetadataImage,
    group: wire.OffsetFetchRequestGroup,
    result: messages.OffsetFetchGroupResult,
    code: int,
    caller: Caller,
) -> Generator[None, None, list[wire.OffsetFetchResponseTopic]]:
    """Return the topics of a group's response, one partition a step."""
    topics = []
    for topic, found in _pairs(image, group, result, code, caller):
        partitions: list[wire.OffsetFetchResponsePartition] = []
        topics.append(wire.OffsetFetchResponseTopic(topic.name, topic.topic_id, partitions))
        if found is None:
            for index in topic.partition_indexes:
                unknown = code or ErrorCode.UNKNOWN_TOPIC_ID.code
                partitions.append(wire.OffsetFetchResponsePartition(index, _NO_OFFSET, _NO_EPOCH, "", unknown))
                yield
        else:
            for part in found.partitions:
                partitions.append(_fetched_partition(part))
                yield
        yield
    return topics


def _pairs(
    image: MetadataImage,
    group: wire.OffsetFetchRequestGroup,
    result: messages.OffsetFetchGroupResult,
    code: int,
    caller: Caller,
) -> Iterator[tuple[wire.OffsetFetchRequestTopic, messages.OffsetFetchTopicResult | None]]:
    """Yield each topic of the response with what was found of it, None where it failed."""
    if code:
        return ((topic, None) for topic in group.topics or () if caller.version < _GROUP_ERROR)
    if group.topics is None:
        return _all_topics(image, result, caller)
    return _asked_topics(image, group.topics, result, caller)


def _all_topics(
    image: MetadataImage, result: messages.OffsetFetchGroupResult, caller: Caller
) -> Iterator[tuple[wire.OffsetFetchRequestTopic, messages.OffsetFetchTopicResult]]:
    for topic in result.topics:
        known = image.topics.get(topic.name)
        if caller.version < _TOPIC_IDS:
            yield wire.OffsetFetchRequestTopic(name=topic.name), topic
        elif known is not None:
            yield wire.OffsetFetchRequestTopic(topic_id=known.topic_id), topic


def _asked_topics(
    image: MetadataImage,
    topics: Sequence[wire.OffsetFetchRequestTopic],
    result: messages.OffsetFetchGroupResult,
    caller: Caller,
) -> Iterator[tuple[wire.OffsetFetchRequestTopic, messages.OffsetFetchTopicResult | None]]:
    results = iter(result.topics)
    for name, topic in zip(_names(image, topics, caller), topics, strict=True):
        yield topic, None if name is None else next(results)


def _fetched_partition(part: messages.OffsetFetchPartitionResult) -> wire.OffsetFetchResponsePartition:
    return wire.OffsetFetchResponsePartition(
        part.index, part.committed_offset, part.committed_leader_epoch, part.metadata, code_of(part.error)
    )


async def offset_delete(
    node: KafkaNode, request: wire.OffsetDeleteRequest, caller: Caller
) -> wire.OffsetDeleteResponse:
    """Delete offsets of a group (KIP-496). Partitions that do not exist have no offsets to delete."""
    image = node.context.metadata.image
    slices = TimeSlices()
    known: dict[str, dict[int, None]] = {}
    async for topic in slices.of(request.topics):
        async for i in slices.of(_indexes(topic)):
            if image.partition(topic.name, i) is not None:
                known.setdefault(topic.name, {})[i] = None
    topics = [TopicPartitions(name, tuple(indexes)) async for name, indexes in slices.of(known.items())]
    asked = messages.OffsetDeleteRequest(request.group_id, tuple(topics))
    answer = await group_offsets.offset_delete(node.groups, asked, caller.client)
    if answer.error is not None:
        return wire.OffsetDeleteResponse(error_code=code_of(answer.error))
    codes = await _codes_of(answer.topics, slices)
    results = []
    async for topic in slices.of(request.topics):
        deleted = [
            wire.OffsetDeleteResponsePartition(i, codes.get((topic.name, i), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code))
            async for i in slices.of(_indexes(topic))
        ]
        results.append(wire.OffsetDeleteResponseTopic(topic.name, deleted))
    return wire.OffsetDeleteResponse(topics=results)


def _indexes(topic: wire.OffsetDeleteRequestTopic) -> list[int]:
    return [partition.partition_index for partition in topic.partitions]


def _names(
    image: MetadataImage, topics: Sequence[wire.OffsetCommitRequestTopic | wire.OffsetFetchRequestTopic], caller: Caller
) -> list[str | None]:
    """Return the name of each topic, or None for an unknown id."""
    if caller.version < _TOPIC_IDS:
        return [topic.name for topic in topics]
    return [image.topic_names.get(TopicId(topic.topic_id)) for topic in topics]


APIS: tuple[Api, ...] = (
    MessageApi(wire.OffsetCommitRequest, offset_commit),
    MessageApi(transactions.TxnOffsetCommitRequest, txn_offset_commit),
    MessageApi(wire.OffsetFetchRequest, offset_fetch),
    MessageApi(wire.OffsetDeleteRequest, offset_delete),
)

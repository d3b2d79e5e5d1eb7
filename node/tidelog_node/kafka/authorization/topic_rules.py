"""The rules of APIs about topics and their partitions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from tidelog_foundation.authorization import Access
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests.acls import AclOperation
from tidelog_node.kafka.authorization.rule import TOPIC, TOPIC_DENIED, Asked, Rule
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.messages import metadata, offsets, producers, topics

_NO_ID: Final = bytes(16)
_DENIED_TEXT: Final = "Authorization failed."
_NO_TOPIC: Final = "This server does not host this topic ID."


def _per_topic(operation: AclOperation, name: str, answers: str, denied: Callable[[Any], Any]) -> Rule:
    """Return the rule of an API whose ``topics`` are decided one by one.

    ``name`` is the field with a topic's name, ``answers`` that of the response with the results, and ``denied`` makes
    the result of a topic that is denied.
    """

    async def rule(access: Access, request: Any, asked: Asked, handle: Callable[[Any], Awaitable[Any]]) -> Any:
        allowed = await access.allowed(operation, TOPIC, (getattr(topic, name) for topic in request.topics))
        refused = [topic for topic in request.topics if getattr(topic, name) not in allowed]
        request.topics = [topic for topic in request.topics if getattr(topic, name) in allowed]
        response = await handle(request)
        getattr(response, answers).extend(map(denied, refused))
        return response

    return rule


def _no_offsets(topic: offsets.ListOffsetsTopic) -> offsets.ListOffsetsTopicResponse:
    return offsets.ListOffsetsTopicResponse(
        topic.name, [offsets.ListOffsetsPartitionResponse(p.partition_index, TOPIC_DENIED) for p in topic.partitions]
    )


def _no_epoch(topic: offsets.OffsetForLeaderTopic) -> offsets.OffsetForLeaderTopicResult:
    return offsets.OffsetForLeaderTopicResult(
        topic.topic, [offsets.EpochEndOffset(TOPIC_DENIED, p.partition) for p in topic.partitions]
    )


def _no_deletion(topic: offsets.DeleteRecordsTopic) -> offsets.DeleteRecordsTopicResult:
    return offsets.DeleteRecordsTopicResult(
        topic.name,
        [offsets.DeleteRecordsPartitionResult(p.partition_index, -1, TOPIC_DENIED) for p in topic.partitions],
    )


def _no_producers(topic: producers.TopicRequest) -> producers.TopicResponse:
    return producers.TopicResponse(
        topic.name,
        [
            producers.PartitionResponse(index, TOPIC_DENIED, "Topic authorization failed.")
            for index in topic.partition_indexes
        ],
    )


def _no_partitions(topic: topics.CreatePartitionsTopic) -> topics.CreatePartitionsTopicResult:
    return topics.CreatePartitionsTopicResult(topic.name, TOPIC_DENIED, None)


async def _offset_for_leader_epoch(
    access: Access, request: Any, asked: Asked, handle: Callable[[Any], Awaitable[Any]]
) -> Any:
    """Nodes need the cluster's action; consumers may describe topics instead (KIP-320)."""
    if access.on_cluster(AclOperation.CLUSTER_ACTION, log=False):
        return await handle(request)
    return await _EPOCHS(access, request, asked, handle)


async def _create_topics(
    access: Access,
    request: topics.CreateTopicsRequest,
    asked: Asked,
    handle: Callable[[Any], Awaitable[topics.CreateTopicsResponse]],
) -> topics.CreateTopicsResponse:
    """Creating any topic is an operation on the cluster, or on the topic. Its settings are those that it describes."""
    names = [topic.name for topic in request.topics]
    if access.on_cluster(AclOperation.CREATE, log=False):
        allowed = frozenset(names)
    else:
        allowed = await access.allowed(AclOperation.CREATE, TOPIC, names)
    refused = [topic.name for topic in request.topics if topic.name not in allowed]
    request.topics = [topic for topic in request.topics if topic.name in allowed]
    response = await handle(request)
    described = await access.allowed(AclOperation.DESCRIBE_CONFIGS, TOPIC, allowed, log=False)
    for result in response.topics:
        if not result.error_code and result.name not in described:
            result.topic_config_error_code = TOPIC_DENIED
            result.num_partitions, result.replication_factor, result.configs = -1, -1, []
    response.topics += [
        topics.CreatableTopicResult(name=name, error_code=TOPIC_DENIED, error_message=_DENIED_TEXT) for name in refused
    ]
    return response


async def _delete_topics(
    access: Access,
    request: topics.DeleteTopicsRequest,
    asked: Asked,
    handle: Callable[[Any], Awaitable[topics.DeleteTopicsResponse]],
) -> topics.DeleteTopicsResponse:
    """A topic requested by an id that the caller may not describe is answered without its name.

    An id that this node does not know is refused here: the controller may know it, and trusts the node's decision.
    """
    states = [*request.topics, *(topics.DeleteTopicState(name=name) for name in request.topic_names)]
    names = [state.name if state.name is not None else asked.topic_name(state.topic_id) for state in states]
    known = [name for name in names if name is not None]
    described = await access.allowed(AclOperation.DESCRIBE, TOPIC, known)
    deletable = await access.allowed(AclOperation.DELETE, TOPIC, described)
    refused = []
    request.topics, request.topic_names = [], []
    for state, name in zip(states, names, strict=True):
        is_misnamed = (state.name is None) == (state.topic_id == _NO_ID)
        if is_misnamed or name in deletable:
            request.topics.append(state)
        elif name is None:
            refused.append(
                topics.DeletableTopicResult(None, state.topic_id, ErrorCode.UNKNOWN_TOPIC_ID.code, _NO_TOPIC)
            )
        else:
            shown = name if state.name is not None or name in described else None
            refused.append(
                topics.DeletableTopicResult(shown, state.topic_id, TOPIC_DENIED, "Topic authorization failed.")
            )
    response = await handle(request)
    response.responses += refused
    return response


async def _describe_topic_partitions(
    access: Access,
    request: metadata.DescribeTopicPartitionsRequest,
    asked: Asked,
    handle: Callable[[Any], Awaitable[metadata.DescribeTopicPartitionsResponse]],
) -> metadata.DescribeTopicPartitionsResponse:
    """A request for all topics leaves out those that the caller may not describe."""
    is_named = bool(request.topics)
    names = [topic.name for topic in request.topics] if is_named else list(asked.topics())
    allowed = await access.allowed(AclOperation.DESCRIBE, TOPIC, names, log=is_named)
    request.topics = [metadata.DescribedTopicName(name) for name in names if name in allowed]
    response = await handle(request) if request.topics else metadata.DescribeTopicPartitionsResponse()
    for topic in response.topics:
        topic.topic_authorized_operations = access.operations(TOPIC, topic.name or "")
    if is_named:
        response.topics += [metadata.DescribedTopic(TOPIC_DENIED, name) for name in names if name not in allowed]
    return response


_EPOCHS = _per_topic(AclOperation.DESCRIBE, "topic", "topics", _no_epoch)
RULES: Final[Mapping[ApiKey, Rule]] = {
    ApiKey.LIST_OFFSETS: _per_topic(AclOperation.DESCRIBE, "name", "topics", _no_offsets),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.DELETE_RECORDS: _per_topic(AclOperation.DELETE, "name", "topics", _no_deletion),
    ApiKey.DESCRIBE_PRODUCERS: _per_topic(AclOperation.READ, "name", "topics", _no_producers),
    ApiKey.CREATE_PARTITIONS: _per_topic(AclOperation.ALTER, "name", "results", _no_partitions),
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _describe_topic_partitions,
}

"""CreateTopics, DeleteTopics and CreatePartitions: the node passes them on to the leading controller.

An error of the call becomes that of every topic in it, as in Kafka's ``getErrorResponse``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from tidelog.errors import ErrorCode, TidelogError, error_for
from tidelog.ids import REQUEST_ID_SIZE
from tidelog.v1 import admin_service_pb2 as pb
from tidelog.v1 import common_pb2
from tidelog_node import handlers
from tidelog_node.kafka.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tidelog_node.kafka.served import Api, Caller, KafkaNode, MessageApi

_FIRST_WITH_SETTINGS = 5
"""The first version of CreateTopics whose response has the settings of the new topics (KIP-525)."""
_FIRST_WITH_DELETION_DISABLED = 3
"""The first version of DeleteTopics that has TOPIC_DELETION_DISABLED (KIP-322)."""
_NO_ID = bytes(16)


async def create_topics(node: KafkaNode, request: CreateTopicsRequest, caller: Caller) -> CreateTopicsResponse:
    """Create topics. Its own id lets this node ask the controllers again when an answer is lost."""
    refused = {t.name: error for t in request.topics if (error := _null_setting(t)) is not None}
    call = pb.CreateTopicsRequest(
        topics=[_creatable(t) for t in request.topics if t.name not in refused],
        timeout_ms=request.timeout_ms,
        validate_only=request.validate_only,
        request_id=os.urandom(REQUEST_ID_SIZE),
    )
    try:
        answered = (await handlers.create_topics(node.context, call)).topics if call.topics else []
    except TidelogError as error:
        refused |= {t.name: error for t in request.topics}
        answered = []
    settings = {t.name: {c.name: c.value for c in t.configs} for t in call.topics}
    results = [_created(node, caller, result, settings) for result in answered]
    results += [
        CreatableTopicResult(name=name, error_code=error.code.code, error_message=error.message)
        for name, error in refused.items()
    ]
    return CreateTopicsResponse(topics=results)


async def delete_topics(node: KafkaNode, request: DeleteTopicsRequest, caller: Caller) -> DeleteTopicsResponse:
    """Delete topics by their names or ids."""
    states = [*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names)]
    refused = [result for state in states if (result := _misnamed(state)) is not None]
    named = [state for state in states if _misnamed(state) is None]
    call = pb.DeleteTopicsRequest(
        topic_names=[s.name for s in named if s.name is not None],
        topic_ids=[s.topic_id for s in named if s.name is None],
        timeout_ms=request.timeout_ms,
    )
    try:
        answered = (await handlers.delete_topics(node.context, call)).topics if named else []
    except TidelogError as error:
        code = _code_of_deletion(error, caller.version)
        return DeleteTopicsResponse(responses=[*refused, *(_deletable(s, code, error.message) for s in named)])
    results = [
        DeletableTopicResult(
            # Only by its id can a topic be without a name; an empty one is a name that no topic has.
            name=None if not t.name and any(t.topic_id) else t.name,
            topic_id=t.topic_id,
            error_code=t.error.code,
            error_message=t.error.message or None,
        )
        for t in answered
    ]
    return DeleteTopicsResponse(responses=[*refused, *results])


async def create_partitions(
    node: KafkaNode, request: CreatePartitionsRequest, caller: Caller
) -> CreatePartitionsResponse:
    """Add partitions to topics."""
    call = pb.CreatePartitionsRequest(
        topics=[_new_partitions(t) for t in request.topics],
        timeout_ms=request.timeout_ms,
        validate_only=request.validate_only,
    )
    try:
        answered = (await handlers.create_partitions(node.context, call)).topics
    except TidelogError as error:
        names = dict.fromkeys(t.name for t in request.topics)
        return CreatePartitionsResponse(
            results=[CreatePartitionsTopicResult(name, error.code.code, error.message) for name in names]
        )
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(t.name, t.error.code, t.error.message or None) for t in answered]
    )


def _null_setting(topic: CreatableTopic) -> TidelogError | None:
    names = [c.name for c in topic.configs if c.value is None]
    if not names:
        return None
    return error_for(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(names)}")


def _creatable(topic: CreatableTopic) -> pb.CreatableTopic:
    return pb.CreatableTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            pb.ReplicaAssignment(partition_index=a.partition_index, broker_ids=a.broker_ids) for a in topic.assignments
        ],
        configs=[common_pb2.ConfigEntry(name=c.name, value=c.value or "") for c in topic.configs],
    )


def _created(
    node: KafkaNode, caller: Caller, result: pb.CreatableTopicResult, settings: Mapping[str, Mapping[str, str]]
) -> CreatableTopicResult:
    if result.HasField("error"):
        return CreatableTopicResult(
            name=result.name, error_code=result.error.code, error_message=result.error.message or None
        )
    described = caller.version >= _FIRST_WITH_SETTINGS
    return CreatableTopicResult(
        name=result.name,
        topic_id=result.topic_id,
        error_message=None,
        num_partitions=result.num_partitions,
        replication_factor=result.replication_factor,
        configs=sorted(_settings(node, settings[result.name]), key=lambda c: c.name) if described else None,
    )


def _settings(node: KafkaNode, set_on_it: Mapping[str, str]) -> Iterator[CreatableTopicConfigs]:
    for config in handlers.topic_settings(node.context, set_on_it):
        yield CreatableTopicConfigs(
            name=config.name,
            value=config.value if config.HasField("value") else None,
            read_only=config.is_read_only,
            config_source=config.source,
            is_sensitive=config.is_sensitive,
        )


def _misnamed(state: DeleteTopicState) -> DeletableTopicResult | None:
    if (state.name is None) != (state.topic_id == _NO_ID):
        return None
    text = (
        "Neither topic name nor id were specified."
        if state.name is None
        else "You may not specify both topic name and topic id."
    )
    return _deletable(state, ErrorCode.INVALID_REQUEST, text)


def _deletable(state: DeleteTopicState, code: ErrorCode, text: str) -> DeletableTopicResult:
    return DeletableTopicResult(name=state.name, topic_id=state.topic_id, error_code=code.code, error_message=text)


def _code_of_deletion(error: TidelogError, version: int) -> ErrorCode:
    if error.code is ErrorCode.TOPIC_DELETION_DISABLED and version < _FIRST_WITH_DELETION_DISABLED:
        return ErrorCode.INVALID_REQUEST
    return error.code


def _new_partitions(topic: CreatePartitionsTopic) -> pb.NewPartitions:
    """Null assignments let the controller choose; an empty list of them is sent on as one without replicas."""
    assignments = topic.assignments
    if assignments is not None:
        assignments = assignments or [CreatePartitionsAssignment()]
    return pb.NewPartitions(
        name=topic.name,
        count=topic.count,
        assignments=[pb.ReplicaAssignment(broker_ids=a.broker_ids) for a in assignments or ()],
    )


APIS: tuple[Api, ...] = (
    MessageApi(CreateTopicsRequest, create_topics),
    MessageApi(DeleteTopicsRequest, delete_topics),
    MessageApi(CreatePartitionsRequest, create_partitions),
)

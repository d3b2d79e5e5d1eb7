"""CreateTopics, DeleteTopics and CreatePartitions, forwarded to the leading controller.

An error of the call becomes that of every topic in it, as in Kafka's ``getErrorResponse``.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping

from tidelog.v1 import admin_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import REQUEST_ID_SIZE
from tidelog_foundation.time_slices import TimeSlices
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
"""The first version of CreateTopics whose response contains the settings of the new topics (KIP-525)."""
_FIRST_WITH_DELETION_DISABLED = 3
"""The first version of DeleteTopics that has TOPIC_DELETION_DISABLED (KIP-322)."""
_NO_ID = bytes(16)


async def create_topics(node: KafkaNode, request: CreateTopicsRequest, caller: Caller) -> CreateTopicsResponse:
    """Create topics. The request has an id, so that this node can retry after a lost answer of a controller."""
    slices = TimeSlices()
    refused = {t.name: error async for t in slices.of(request.topics) if (error := _null_setting(t)) is not None}
    call = pb.CreateTopicsRequest(
        timeout_ms=request.timeout_ms,
        validate_only=request.validate_only,
        request_id=os.urandom(REQUEST_ID_SIZE),
    )
    async for topic in slices.of(request.topics):
        if topic.name not in refused:
            await slices.result_of(_fill(call.topics.add(), topic))
    try:
        answered = (await handlers.create_topics(node.context, call)).topics if call.topics else []
    except TidelogError as error:
        refused |= {t.name: error for t in request.topics}
        answered = []
    settings = {t.name: {c.name: c.value for c in t.configs} async for t in slices.of(call.topics)}
    results = [_created(node, caller, result, settings) async for result in slices.of(answered)]
    results += [
        CreatableTopicResult(name=name, error_code=error.code.code, error_message=error.message)
        async for name, error in slices.of(refused.items())
    ]
    return CreateTopicsResponse(topics=results)


async def delete_topics(node: KafkaNode, request: DeleteTopicsRequest, caller: Caller) -> DeleteTopicsResponse:
    """Delete topics by name or id."""
    slices = TimeSlices()
    states = [*request.topics, *[DeleteTopicState(name=name) async for name in slices.of(request.topic_names)]]
    refused, named = [], []
    async for state in slices.of(states):
        if (result := _misnamed(state)) is not None:
            refused.append(result)
        else:
            named.append(state)
    call = pb.DeleteTopicsRequest(
        topic_names=[s.name for s in named if s.name is not None],
        topic_ids=[s.topic_id for s in named if s.name is None],
        timeout_ms=request.timeout_ms,
    )
    try:
        answered = (await handlers.delete_topics(node.context, call)).topics if named else []
    except TidelogError as error:
        code = _code_of_deletion(error, caller.version)
        failed = [_deletable(s, code, error.message) async for s in slices.of(named)]
        return DeleteTopicsResponse(responses=[*refused, *failed])
    results = [
        DeletableTopicResult(
            # Only a topic requested by id can lack a name; an empty name is one that no topic has.
            name=None if not t.name and any(t.topic_id) else t.name,
            topic_id=t.topic_id,
            error_code=t.error.code,
            error_message=t.error.message or None,
        )
        async for t in slices.of(answered)
    ]
    return DeleteTopicsResponse(responses=[*refused, *results])


async def create_partitions(
    node: KafkaNode, request: CreatePartitionsRequest, caller: Caller
) -> CreatePartitionsResponse:
    """Add partitions to topics."""
    slices = TimeSlices()
    call = pb.CreatePartitionsRequest(timeout_ms=request.timeout_ms, validate_only=request.validate_only)
    async for topic in slices.of(request.topics):
        await slices.result_of(_fill_new(call.topics.add(), topic))
    try:
        answered = (await handlers.create_partitions(node.context, call)).topics
    except TidelogError as error:
        names = dict.fromkeys(t.name for t in request.topics)
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(name, error.code.code, error.message) async for name in slices.of(names)
            ]
        )
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(t.name, t.error.code, t.error.message or None)
            async for t in slices.of(answered)
        ]
    )


def _null_setting(topic: CreatableTopic) -> TidelogError | None:
    names = [c.name for c in topic.configs if c.value is None]
    if not names:
        return None
    return error_for(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(names)}")


def _fill(creatable: pb.CreatableTopic, topic: CreatableTopic) -> Generator[None, None, None]:
    creatable.name = topic.name
    creatable.num_partitions = topic.num_partitions
    creatable.replication_factor = topic.replication_factor
    for assignment in topic.assignments:
        creatable.assignments.add(partition_index=assignment.partition_index, broker_ids=assignment.broker_ids)
        yield
    for config in topic.configs:
        creatable.configs.add(name=config.name, value=config.value or "")
        yield


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


def _fill_new(partitions: pb.NewPartitions, topic: CreatePartitionsTopic) -> Generator[None, None, None]:
    """Fill the request. Null assignments let the controller choose; an empty list is sent as one without replicas."""
    assignments = topic.assignments
    if assignments is not None:
        assignments = assignments or [CreatePartitionsAssignment()]
    partitions.name, partitions.count = topic.name, topic.count
    for assignment in assignments or ():
        partitions.assignments.add(broker_ids=assignment.broker_ids)
        yield


APIS: tuple[Api, ...] = (
    MessageApi(CreateTopicsRequest, create_topics),
    MessageApi(DeleteTopicsRequest, delete_topics),
    MessageApi(CreatePartitionsRequest, create_partitions),
)

"""CreateTopics, DeleteTopics and CreatePartitions, forwarded to the leading controller.

An error of the call becomes the error of every topic in it, as in Kafka's ``getErrorResponse``.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import REQUEST_ID_SIZE, TopicId
from tidelog_foundation.requests import topics as requests
from tidelog_foundation.requests.configs import ConfigEntry
from tidelog_foundation.requests.quotas import QuotaClient
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node import handlers
from tidelog_node.kafka.apis.errors import code_of, text_of
from tidelog_node.kafka.protocol.messages import topics as wire
from tidelog_node.kafka.served import Api, Caller, KafkaNode, MessageApi

_FIRST_WITH_SETTINGS = 5
"""The first version of CreateTopics whose response contains the settings of the new topics (KIP-525)."""
_FIRST_WITH_DELETION_DISABLED = 3
"""The first version of DeleteTopics that has TOPIC_DELETION_DISABLED (KIP-322)."""
_STRICT_CREATE_TOPICS, _STRICT_DELETE_TOPICS, _STRICT_CREATE_PARTITIONS = 6, 5, 3
"""The first versions with THROTTLING_QUOTA_EXCEEDED (KIP-599)."""
_NO_ID = bytes(16)


def quota_client(node: KafkaNode, caller: Caller, *, is_strict: bool) -> QuotaClient | None:
    """Return the client whose quota counts mutations, None while nobody has one.

    Clients of versions without the error are delayed, and never refused, so that the quota is not strict.
    """
    if not node.context.quotas.mutation.is_enabled:
        return None
    return QuotaClient(caller.principal.name, caller.client.client_id, is_strict)


async def create_topics(
    node: KafkaNode, request: wire.CreateTopicsRequest, caller: Caller
) -> wire.CreateTopicsResponse:
    """Create topics. The request has an id, so that this node can retry after a lost answer of a controller."""
    slices = TimeSlices()
    refused = {t.name: error async for t in slices.of(request.topics) if (error := _null_setting(t)) is not None}
    topics = [await slices.result_of(_creatable(t)) async for t in slices.of(request.topics) if t.name not in refused]
    call = requests.CreateTopicsRequest(
        tuple(topics),
        request.timeout_ms,
        request.validate_only,
        os.urandom(REQUEST_ID_SIZE),
        quota_client(node, caller, is_strict=caller.version >= _STRICT_CREATE_TOPICS),
    )
    try:
        response = await handlers.create_topics(node.context, call) if topics else requests.CreateTopicsResponse()
    except TidelogError as error:
        refused |= {t.name: error for t in request.topics}
        response = requests.CreateTopicsResponse()
    settings = {t.name: {c.name: c.value for c in t.configs} async for t in slices.of(call.topics)}
    results = [_created(node, caller, result, settings) async for result in slices.of(response.topics)]
    results += [
        wire.CreatableTopicResult(name=name, error_code=error.code.code, error_message=error.message)
        async for name, error in slices.of(refused.items())
    ]
    return wire.CreateTopicsResponse(throttle_time_ms=response.throttle_time_ms, topics=results)


async def delete_topics(
    node: KafkaNode, request: wire.DeleteTopicsRequest, caller: Caller
) -> wire.DeleteTopicsResponse:
    """Delete topics by name or id."""
    slices = TimeSlices()
    states = [*request.topics, *[wire.DeleteTopicState(name=name) async for name in slices.of(request.topic_names)]]
    refused, named = [], []
    async for state in slices.of(states):
        if (result := _misnamed(state)) is not None:
            refused.append(result)
        else:
            named.append(state)
    call = requests.DeleteTopicsRequest(
        topic_names=tuple(s.name for s in named if s.name is not None),
        topic_ids=tuple(TopicId(s.topic_id) for s in named if s.name is None),
        timeout_ms=request.timeout_ms,
        quota_client=quota_client(node, caller, is_strict=caller.version >= _STRICT_DELETE_TOPICS),
    )
    try:
        response = await handlers.delete_topics(node.context, call) if named else requests.DeleteTopicsResponse()
    except TidelogError as error:
        code = _code_of_deletion(error, caller.version)
        failed = [_deletable(s, code, error.message) async for s in slices.of(named)]
        return wire.DeleteTopicsResponse(responses=[*refused, *failed])
    results = [
        wire.DeletableTopicResult(
            # Only a topic requested by id can lack a name; an empty name is one that no topic has.
            name=None if not t.name and any(t.topic_id) else t.name,
            topic_id=t.topic_id,
            error_code=code_of(t.error),
            error_message=text_of(t.error),
        )
        async for t in slices.of(response.topics)
    ]
    return wire.DeleteTopicsResponse(throttle_time_ms=response.throttle_time_ms, responses=[*refused, *results])


async def create_partitions(
    node: KafkaNode, request: wire.CreatePartitionsRequest, caller: Caller
) -> wire.CreatePartitionsResponse:
    """Add partitions to topics."""
    slices = TimeSlices()
    topics = [await slices.result_of(_new_partitions(topic)) async for topic in slices.of(request.topics)]
    client = quota_client(node, caller, is_strict=caller.version >= _STRICT_CREATE_PARTITIONS)
    call = requests.CreatePartitionsRequest(tuple(topics), request.timeout_ms, request.validate_only, client)
    try:
        response = await handlers.create_partitions(node.context, call)
    except TidelogError as error:
        names = dict.fromkeys(t.name for t in request.topics)
        return wire.CreatePartitionsResponse(
            results=[
                wire.CreatePartitionsTopicResult(name, error.code.code, error.message)
                async for name in slices.of(names)
            ]
        )
    return wire.CreatePartitionsResponse(
        throttle_time_ms=response.throttle_time_ms,
        results=[
            wire.CreatePartitionsTopicResult(t.name, code_of(t.error), text_of(t.error))
            async for t in slices.of(response.topics)
        ],
    )


def _null_setting(topic: wire.CreatableTopic) -> TidelogError | None:
    names = [c.name for c in topic.configs if c.value is None]
    if not names:
        return None
    return error_for(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(names)}")


def _creatable(topic: wire.CreatableTopic) -> Generator[None, None, requests.CreatableTopic]:
    assignments, configs = [], []
    for assignment in topic.assignments:
        assignments.append(requests.ReplicaAssignment(assignment.partition_index, tuple(assignment.broker_ids)))
        yield
    for config in topic.configs:
        configs.append(ConfigEntry(config.name, config.value or ""))
        yield
    counts = topic.num_partitions, topic.replication_factor
    return requests.CreatableTopic(topic.name, *counts, tuple(assignments), tuple(configs))


def _created(
    node: KafkaNode, caller: Caller, result: requests.CreatableTopicResult, settings: Mapping[str, Mapping[str, str]]
) -> wire.CreatableTopicResult:
    if result.error is not None:
        return wire.CreatableTopicResult(
            name=result.name, error_code=code_of(result.error), error_message=text_of(result.error)
        )
    described = caller.version >= _FIRST_WITH_SETTINGS
    return wire.CreatableTopicResult(
        name=result.name,
        topic_id=result.topic_id,
        error_message=None,
        num_partitions=result.num_partitions,
        replication_factor=result.replication_factor,
        configs=sorted(_settings(node, settings[result.name]), key=lambda c: c.name) if described else None,
    )


def _settings(node: KafkaNode, set_on_it: Mapping[str, str]) -> Iterator[wire.CreatableTopicConfigs]:
    for config in handlers.topic_settings(node.context, set_on_it):
        yield wire.CreatableTopicConfigs(
            name=config.name,
            value=config.value,
            read_only=config.is_read_only,
            config_source=config.source,
            is_sensitive=config.is_sensitive,
        )


def _misnamed(state: wire.DeleteTopicState) -> wire.DeletableTopicResult | None:
    if (state.name is None) != (state.topic_id == _NO_ID):
        return None
    text = (
        "Neither topic name nor id were specified."
        if state.name is None
        else "You may not specify both topic name and topic id."
    )
    return _deletable(state, ErrorCode.INVALID_REQUEST, text)


def _deletable(state: wire.DeleteTopicState, code: ErrorCode, text: str) -> wire.DeletableTopicResult:
    return wire.DeletableTopicResult(name=state.name, topic_id=state.topic_id, error_code=code.code, error_message=text)


def _code_of_deletion(error: TidelogError, version: int) -> ErrorCode:
    if error.code is ErrorCode.TOPIC_DELETION_DISABLED and version < _FIRST_WITH_DELETION_DISABLED:
        return ErrorCode.INVALID_REQUEST
    return error.code


def _new_partitions(topic: wire.CreatePartitionsTopic) -> Generator[None, None, requests.NewPartitions]:
    """Convert a topic. Null assignments let the controller choose; an empty list is sent as one without replicas."""
    assignments = topic.assignments
    if assignments is not None:
        assignments = assignments or [wire.CreatePartitionsAssignment()]
    converted = []
    for assignment in assignments or ():
        converted.append(requests.ReplicaAssignment(broker_ids=tuple(assignment.broker_ids)))
        yield
    return requests.NewPartitions(topic.name, topic.count, tuple(converted))


APIS: tuple[Api, ...] = (
    MessageApi(wire.CreateTopicsRequest, create_topics),
    MessageApi(wire.DeleteTopicsRequest, delete_topics),
    MessageApi(wire.CreatePartitionsRequest, create_partitions),
)

"""The APIs of configuration.

This node answers DescribeConfigs and ListConfigResources; the controller executes AlterConfigs and
IncrementalAlterConfigs. AlterConfigs replaces all settings of a resource in one step at the controller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

from tidelog.v1 import admin_service_pb2 as pb
from tidelog.v1.metadata_record_pb2 import ConfigResourceType
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node import handlers
from tidelog_node.kafka.cluster_view import ClusterView
from tidelog_node.kafka.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tidelog_node.kafka.served import Api, Caller, KafkaNode, MessageApi

_TYPES = {
    "UNKNOWN": 0,
    "BOOLEAN": 1,
    "STRING": 2,
    "INT": 3,
    "SHORT": 4,
    "LONG": 5,
    "DOUBLE": 6,
    "LIST": 7,
    "CLASS": 8,
    "PASSWORD": 9,
}
_OPERATIONS = {
    0: pb.CONFIG_OPERATION_TYPE_SET,
    1: pb.CONFIG_OPERATION_TYPE_DELETE,
    2: pb.CONFIG_OPERATION_TYPE_APPEND,
    3: pb.CONFIG_OPERATION_TYPE_SUBTRACT,
}
_DELETE = 1
_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32
_LISTED: Final = ({_CLIENT_METRICS}, {_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP})
"""The types in each version of ListConfigResources (ListConfigResourcesRequest.supportedResourceTypes)."""
_Steps: TypeAlias = Generator[None, None, None]
A = TypeVar("A", bound=AlterConfigsResource | IncrementalAlterConfigsResource)


async def describe_configs(node: KafkaNode, request: DescribeConfigsRequest, caller: Caller) -> DescribeConfigsResponse:
    """Describe the settings of topics, this node, all nodes and groups."""
    slices = TimeSlices()
    call = pb.DescribeConfigsRequest(
        include_synonyms=request.include_synonyms,
        include_documentation=request.include_documentation,
    )
    async for resource in slices.of(request.resources):
        call.resources.add(resource=_name(resource), names=resource.configuration_keys or ())
    response = await handlers.describe_configs(node.context, call)
    results = [
        DescribeConfigsResult(
            error_code=r.error.code,
            error_message=r.error.message or None,
            resource_type=r.resource.type,
            resource_name=r.resource.name,
            configs=[_described(c, request.include_documentation) for c in r.configs],
        )
        async for r in slices.of(response.resources)
    ]
    return DescribeConfigsResponse(results=results)


async def list_config_resources(
    node: KafkaNode, request: ListConfigResourcesRequest, caller: Caller
) -> ListConfigResourcesResponse:
    """List topics, groups with settings, and the brokers, including fenced ones, that have the caller's listener.

    A type that the version does not have fails the request (KafkaApis.handleListConfigResources). Loggers and client
    metrics have no settings here, so none is listed.
    """
    known = _LISTED[caller.version]
    asked = set(request.resource_types) or known
    if not asked <= known:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION.code)
    image = node.context.metadata.image
    listed: list[ConfigResource] = []
    if _BROKER in asked:
        listed += [ConfigResource(str(i), _BROKER) for i in ClusterView(image.brokers, caller.listener).shown]
    if _TOPIC in asked:
        listed += [ConfigResource(name, _TOPIC) async for name in TimeSlices().of(image.topics)]
    if _GROUP in asked:
        listed += [ConfigResource(r.name, _GROUP) async for r in TimeSlices().of(image.configs) if r.type == _GROUP]
    return ListConfigResourcesResponse(config_resources=listed)


async def alter_configs(node: KafkaNode, request: AlterConfigsRequest, caller: Caller) -> AlterConfigsResponse:
    """Replace all settings of resources."""
    responses = await _alter(node, request.resources, _replacement, validate_only=request.validate_only)
    return AlterConfigsResponse(responses=responses)


async def incremental_alter_configs(
    node: KafkaNode, request: IncrementalAlterConfigsRequest, caller: Caller
) -> IncrementalAlterConfigsResponse:
    """Change single settings of resources."""
    responses = await _alter(node, request.resources, _change, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(responses=responses)


async def _alter(
    node: KafkaNode,
    resources: Sequence[A],
    write: Callable[[A, pb.ConfigResourceChange], _Steps],
    *,
    validate_only: bool,
) -> list[AlterConfigsResourceResponse]:
    """Send the valid changes to the controller. Each resource has a response with its own error or that of the call."""
    responses: list[AlterConfigsResourceResponse] = []
    slices = TimeSlices()
    call = pb.IncrementalAlterConfigsRequest(validate_only=validate_only)
    counts = Counter([(r.resource_type, r.resource_name) async for r in slices.of(resources)])
    async for resource in slices.of({(r.resource_type, r.resource_name): r for r in resources}.values()):
        try:
            _refuse_repeated(resource, counts)
            change = pb.ConfigResourceChange()
            await slices.result_of(write(resource, change))
            call.resources.append(change)
        except TidelogError as error:
            responses.append(_refused(_name(resource), error))
    if not call.resources:
        return responses
    try:
        answered = (await handlers.incremental_alter_configs(node.context, call)).resources
    except TidelogError as error:
        return [*responses, *[_refused(r.resource, error) async for r in slices.of(call.resources)]]
    return [
        *responses,
        *[
            AlterConfigsResourceResponse(r.error.code, r.error.message or None, r.resource.type, r.resource.name)
            async for r in slices.of(answered)
        ],
    ]


def _refused(name: pb.ConfigResourceName, error: TidelogError) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(error.code.code, error.message, name.type, name.name)


def _replacement(resource: AlterConfigsResource, change: pb.ConfigResourceChange) -> _Steps:
    _refuse_nulls(c for c in resource.configs if c.value is None)
    change.resource.CopyFrom(_name(resource))
    change.replaces_all = True
    for config in resource.configs:
        change.operations.add(name=config.name, type=pb.CONFIG_OPERATION_TYPE_SET, value=config.value or "")
        yield


def _change(resource: IncrementalAlterConfigsResource, change: pb.ConfigResourceChange) -> _Steps:
    _refuse_nulls(c for c in resource.configs if c.value is None and c.config_operation != _DELETE)
    change.resource.CopyFrom(_name(resource))
    for config in resource.configs:
        change.operations.append(_operation(config))
        yield


def _refuse_repeated(
    resource: AlterConfigsResource | IncrementalAlterConfigsResource, counts: Counter[tuple[int, str]]
) -> None:
    if counts[resource.resource_type, resource.resource_name] > 1:
        raise error_for(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


def _refuse_nulls(nulls: Iterable[AlterableConfig | IncrementalAlterableConfig]) -> None:
    names = [config.name for config in nulls]
    if names:
        raise error_for(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(names)}")


def _operation(config: IncrementalAlterableConfig) -> pb.ConfigOperation:
    kind = _OPERATIONS.get(config.config_operation)
    if kind is None:
        text = f"unknown type {config.config_operation} of an operation on {config.name!r}"
        raise error_for(ErrorCode.INVALID_REQUEST, text)
    return pb.ConfigOperation(name=config.name, type=kind, value=config.value or "")


def _name(
    resource: AlterConfigsResource | DescribeConfigsResource | IncrementalAlterConfigsResource,
) -> pb.ConfigResourceName:
    # The numbers are Kafka's. The receiver refuses those of other resources.
    return pb.ConfigResourceName(type=ConfigResourceType.ValueType(resource.resource_type), name=resource.resource_name)


def _described(config: pb.DescribedConfig, is_documented: bool) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=config.name,
        value=config.value if config.HasField("value") else None,
        read_only=config.is_read_only,
        config_source=config.source,
        is_sensitive=config.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(s.name, s.value if s.HasField("value") else None, s.source) for s in config.synonyms
        ],
        config_type=_TYPES[config.type],
        documentation=config.documentation if is_documented else None,
    )


APIS: tuple[Api, ...] = (
    MessageApi(DescribeConfigsRequest, describe_configs),
    MessageApi(ListConfigResourcesRequest, list_config_resources),
    MessageApi(AlterConfigsRequest, alter_configs),
    MessageApi(IncrementalAlterConfigsRequest, incremental_alter_configs),
)

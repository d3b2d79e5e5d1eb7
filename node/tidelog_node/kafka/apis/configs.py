"""The APIs of configuration.

This node answers DescribeConfigs and ListConfigResources; the controller executes AlterConfigs and
IncrementalAlterConfigs. AlterConfigs replaces all settings of a resource in one step at the controller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.requests import configs as requests
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node import handlers
from tidelog_node.kafka.apis.errors import code_of, text_of
from tidelog_node.kafka.cluster_view import ClusterView
from tidelog_node.kafka.protocol.messages import configs as wire
from tidelog_node.kafka.served import Api, Caller, KafkaNode, MessageApi

_TYPES = ("UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD")
"""The types of settings in the order of Kafka's numbers, from 0."""
_OPERATIONS = {
    0: requests.ConfigOperationType.SET,
    1: requests.ConfigOperationType.DELETE,
    2: requests.ConfigOperationType.APPEND,
    3: requests.ConfigOperationType.SUBTRACT,
}
_DELETE = 1
_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32
_LISTED: Final = ({_CLIENT_METRICS}, {_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP})
"""The types in each version of ListConfigResources (ListConfigResourcesRequest.supportedResourceTypes)."""
_Steps: TypeAlias = Generator[None, None, requests.ConfigResourceChange]
A = TypeVar("A", bound=wire.AlterConfigsResource | wire.IncrementalAlterConfigsResource)


async def describe_configs(
    node: KafkaNode, request: wire.DescribeConfigsRequest, caller: Caller
) -> wire.DescribeConfigsResponse:
    """Describe the settings of topics, this node, all nodes and groups."""
    slices = TimeSlices()
    resources = [
        requests.DescribeConfigsResource(_name(resource), tuple(resource.configuration_keys or ()))
        async for resource in slices.of(request.resources)
    ]
    call = requests.DescribeConfigsRequest(tuple(resources), request.include_synonyms, request.include_documentation)
    response = await handlers.describe_configs(node.context, call)
    results = [
        wire.DescribeConfigsResult(
            error_code=code_of(r.error),
            error_message=text_of(r.error),
            resource_type=r.resource.type,
            resource_name=r.resource.name,
            configs=[_described(c, request.include_documentation) for c in r.configs],
        )
        async for r in slices.of(response.resources)
    ]
    return wire.DescribeConfigsResponse(results=results)


async def list_config_resources(
    node: KafkaNode, request: wire.ListConfigResourcesRequest, caller: Caller
) -> wire.ListConfigResourcesResponse:
    """List topics, groups with settings, subscriptions to client metrics, and brokers with the caller's listener.

    Brokers, also fenced ones, are listed as the owners of loggers, too. A type that the version does not have fails the
    request (KafkaApis.handleListConfigResources).
    """
    known = _LISTED[caller.version]
    asked = set(request.resource_types) or known
    if not asked <= known:
        return wire.ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION.code)
    image = node.context.metadata.image
    listed: list[wire.ConfigResource] = []
    shown = ClusterView(image.brokers, caller.listener).shown
    for kind in (_BROKER_LOGGER, _BROKER):
        if kind in asked:
            listed += [wire.ConfigResource(str(broker_id), kind) for broker_id in shown]
    if _TOPIC in asked:
        listed += [wire.ConfigResource(name, _TOPIC) async for name in TimeSlices().of(image.topics)]
    for kind in (_CLIENT_METRICS, _GROUP):
        if kind in asked:
            owners = TimeSlices().of(image.configs)
            listed += [wire.ConfigResource(r.name, kind) async for r in owners if r.type == kind]
    return wire.ListConfigResourcesResponse(config_resources=listed)


async def alter_configs(
    node: KafkaNode, request: wire.AlterConfigsRequest, caller: Caller
) -> wire.AlterConfigsResponse:
    """Replace all settings of resources."""
    responses = await _alter(node, request.resources, _replacement, validate_only=request.validate_only)
    return wire.AlterConfigsResponse(responses=responses)


async def incremental_alter_configs(
    node: KafkaNode, request: wire.IncrementalAlterConfigsRequest, caller: Caller
) -> wire.IncrementalAlterConfigsResponse:
    """Change single settings of resources."""
    responses = await _alter(node, request.resources, _change, validate_only=request.validate_only)
    return wire.IncrementalAlterConfigsResponse(responses=responses)


async def _alter(
    node: KafkaNode,
    resources: Sequence[A],
    convert: Callable[[A], _Steps],
    *,
    validate_only: bool,
) -> list[wire.AlterConfigsResourceResponse]:
    """Send the valid changes to the controller. Each resource has a response with its own error or that of the call."""
    responses: list[wire.AlterConfigsResourceResponse] = []
    slices = TimeSlices()
    changes: list[requests.ConfigResourceChange] = []
    counts = Counter([(r.resource_type, r.resource_name) async for r in slices.of(resources)])
    async for resource in slices.of({(r.resource_type, r.resource_name): r for r in resources}.values()):
        try:
            _refuse_repeated(resource, counts)
            changes.append(await slices.result_of(convert(resource)))
        except TidelogError as error:
            responses.append(_refused(_name(resource), error))
    if not changes:
        return responses
    call = requests.IncrementalAlterConfigsRequest(tuple(changes), validate_only)
    try:
        answered = (await handlers.incremental_alter_configs(node.context, call)).resources
    except TidelogError as error:
        return [*responses, *[_refused(r.resource, error) async for r in slices.of(changes)]]
    return [
        *responses,
        *[
            wire.AlterConfigsResourceResponse(code_of(r.error), text_of(r.error), r.resource.type, r.resource.name)
            async for r in slices.of(answered)
        ],
    ]


def _refused(name: requests.ConfigResourceName, error: TidelogError) -> wire.AlterConfigsResourceResponse:
    return wire.AlterConfigsResourceResponse(error.code.code, error.message, name.type, name.name)


def _replacement(resource: wire.AlterConfigsResource) -> _Steps:
    _refuse_nulls(c for c in resource.configs if c.value is None)
    operations = []
    for config in resource.configs:
        operations.append(requests.ConfigOperation(config.name, requests.ConfigOperationType.SET, config.value or ""))
        yield
    return requests.ConfigResourceChange(_name(resource), tuple(operations), replaces_all=True)


def _change(resource: wire.IncrementalAlterConfigsResource) -> _Steps:
    _refuse_nulls(c for c in resource.configs if c.value is None and c.config_operation != _DELETE)
    operations = []
    for config in resource.configs:
        operations.append(_operation(config))
        yield
    return requests.ConfigResourceChange(_name(resource), tuple(operations))


def _refuse_repeated(
    resource: wire.AlterConfigsResource | wire.IncrementalAlterConfigsResource, counts: Counter[tuple[int, str]]
) -> None:
    if counts[resource.resource_type, resource.resource_name] > 1:
        raise error_for(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


def _refuse_nulls(nulls: Iterable[wire.AlterableConfig | wire.IncrementalAlterableConfig]) -> None:
    names = [config.name for config in nulls]
    if names:
        raise error_for(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(names)}")


def _operation(config: wire.IncrementalAlterableConfig) -> requests.ConfigOperation:
    kind = _OPERATIONS.get(config.config_operation)
    if kind is None:
        text = f"unknown type {config.config_operation} of an operation on {config.name!r}"
        raise error_for(ErrorCode.INVALID_REQUEST, text)
    return requests.ConfigOperation(config.name, kind, config.value or "")


def _name(
    resource: wire.AlterConfigsResource | wire.DescribeConfigsResource | wire.IncrementalAlterConfigsResource,
) -> requests.ConfigResourceName:
    # The numbers are Kafka's. The receiver refuses those of other resources.
    return requests.ConfigResourceName(resource.resource_type, resource.resource_name)


def _described(config: requests.DescribedConfig, is_documented: bool) -> wire.DescribeConfigsResourceResult:
    return wire.DescribeConfigsResourceResult(
        name=config.name,
        value=config.value,
        read_only=config.is_read_only,
        config_source=config.source,
        is_sensitive=config.is_sensitive,
        synonyms=[wire.DescribeConfigsSynonym(s.name, s.value, s.source) for s in config.synonyms],
        config_type=_TYPES.index(config.type),
        documentation=config.documentation if is_documented else None,
    )


APIS: tuple[Api, ...] = (
    MessageApi(wire.DescribeConfigsRequest, describe_configs),
    MessageApi(wire.ListConfigResourcesRequest, list_config_resources),
    MessageApi(wire.AlterConfigsRequest, alter_configs),
    MessageApi(wire.IncrementalAlterConfigsRequest, incremental_alter_configs),
)

"""The effective settings of topics and of this node, each with its source (KIP-226, KIP-524).

A node answers for itself, for the settings of all nodes (``""``), and for topics, using its own defaults. A value's
synonyms are the value itself and the values that would apply without it, in order of precedence.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from tidelog_foundation.config import TopicConfig, describe, format_value
from tidelog_foundation.config.broker import BROKER_SYNONYMS, same_meaning
from tidelog_foundation.config.client_metrics import ClientMetricsConfig, check_subscription
from tidelog_foundation.config.foreign import foreign_info, is_foreign
from tidelog_foundation.config.group import COORDINATOR_PREFIX, GroupConfig
from tidelog_foundation.config.settings import ProvidedText, SettingInfo
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.logs.resource import alter_levels, describe_levels
from tidelog_foundation.requests.configs import (
    BROKER_LOGGER,
    ConfigOperation,
    ConfigOperationType,
    ConfigResourceChange,
    ConfigResourceResult,
    ConfigResourceType,
    ConfigSource,
    ConfigSynonym,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribedConfig,
    DescribedConfigResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog_foundation.time_slices import TimeSlices
from tidelog_foundation.topic_names import validate_topic_name
from tidelog_node.handlers.context import NodeContext, forward
from tidelog_quorum.metadata.image import ConfigResource, MetadataImage
from tidelog_quorum.metadata.topic_config import broker_settings, topic_config_from

_VISIBLE_S = 3.0
_TOPIC_INFOS = tuple(describe(TopicConfig))
_GROUP_INFOS = tuple(describe(GroupConfig))
_SUBSCRIPTION_INFOS = tuple(describe(ClientMetricsConfig))
_Layers: TypeAlias = Sequence[tuple[ConfigSource, Mapping[str, str]]]


async def incremental_alter_configs(
    context: NodeContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Change settings at the controller, and wait a moment until this node's image shows them.

    Levels of loggers are this node's own.

    Raises:
        TidelogError: The controllers did not answer in time, or refused.
    """
    of_loggers = [r for r in request.resources if r.resource.type == BROKER_LOGGER]
    if of_loggers:
        own = [_alter_levels(context, change, validate_only=request.validate_only) for change in of_loggers]
        others = tuple(r for r in request.resources if r.resource.type != BROKER_LOGGER)
        if not others:
            return IncrementalAlterConfigsResponse(tuple(own))
        rest = await incremental_alter_configs(context, replace(request, resources=others))
        return IncrementalAlterConfigsResponse((*own, *rest.resources))
    response = await forward(context, request)
    failed = {(r.resource.type, r.resource.name) for r in response.resources if r.error is not None}
    changed = [r for r in request.resources if (r.resource.type, r.resource.name) not in failed]
    if changed and not request.validate_only:
        await context.metadata.wait_until(lambda image: all(_shows(image, r) for r in changed), _VISIBLE_S)
    return response


async def describe_configs(context: NodeContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describe settings of topics, this node and all nodes. Each resource has its own error."""
    slices = TimeSlices()
    wanted = {(r.resource.type, r.resource.name, *r.names): r async for r in slices.of(request.resources)}
    resources = [_resource(context, request, resource) async for resource in slices.of(wanted.values())]
    return DescribeConfigsResponse(tuple(resources))


def topic_settings(context: NodeContext, set_on_it: Mapping[str, str]) -> Iterator[DescribedConfig]:
    """Describe all settings of a topic with the given own settings, even if the topic does not exist yet."""
    config = topic_config_from(set_on_it, context.settings.current.topic_defaults())
    layers = _layers(context)
    for info in _TOPIC_INFOS:
        keys = [synonym.key for synonym in BROKER_SYNONYMS.get(info.key, ())]
        found = _below(layers, keys, keys[0]) if keys else []
        if info.key in set_on_it:
            found.insert(0, ConfigSynonym(info.key, set_on_it[info.key], ConfigSource.DYNAMIC_TOPIC_CONFIG))
        yield _described(info, config, found, is_read_only=False)


def _alter_levels(context: NodeContext, change: ConfigResourceChange, *, validate_only: bool) -> ConfigResourceResult:
    try:
        alter_levels(context.broker_id, change, validate_only=validate_only)
    except TidelogError as error:
        return ConfigResourceResult(change.resource, error.detached())
    return ConfigResourceResult(change.resource)


def _shows(image: MetadataImage, wanted: ConfigResourceChange) -> bool:
    resource = ConfigResource(ConfigResourceType(wanted.resource.type), wanted.resource.name)
    settings = image.configs.get(resource, {})
    if wanted.replaces_all and not settings.keys() <= {o.name for o in wanted.operations}:
        return False
    return all(_is_done(settings.get(o.name), o) for o in wanted.operations)


def _is_done(value: str | None, operation: ConfigOperation) -> bool:
    if operation.type == ConfigOperationType.DELETE:
        return value is None
    if operation.type == ConfigOperationType.APPEND:
        return value is not None and _parts(operation.value) <= _parts(value)
    if operation.type == ConfigOperationType.SUBTRACT:
        return value is not None and _parts(operation.value).isdisjoint(_parts(value))
    return value == operation.value


def _parts(text: str) -> set[str]:
    return {part.strip() for part in text.split(",") if part.strip()}


def _resource(
    context: NodeContext, request: DescribeConfigsRequest, wanted: DescribeConfigsResource
) -> DescribedConfigResource:
    try:
        configs = _describe(context, wanted.resource.type, wanted.resource.name)
    except TidelogError as error:
        return DescribedConfigResource(wanted.resource, error.detached())
    names = set(wanted.names)
    omitted: dict[str, Any] = {} if request.include_synonyms else {"synonyms": ()}
    omitted |= {} if request.include_documentation else {"documentation": ""}
    shown = (replace(config, **omitted) for config in configs if not names or config.name in names)
    return DescribedConfigResource(wanted.resource, configs=tuple(shown))


def _describe(context: NodeContext, kind: int, name: str) -> Iterable[DescribedConfig]:
    if kind == ConfigResourceType.TOPIC:
        validate_topic_name(name)
        if name not in context.metadata.image.topics:
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic_settings(context, context.metadata.image.config_of_topic(name))
    if kind == ConfigResourceType.GROUP:
        if not name:
            raise error_for(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return _describe_group(context, name)
    if kind == ConfigResourceType.CLIENT_METRICS:
        check_subscription(name, {})
        return _describe_subscription(context, name)
    if kind == BROKER_LOGGER:
        return describe_levels(context.broker_id, name)
    if kind != ConfigResourceType.BROKER:
        text = f"resource {name!r} has type {kind}, not a topic, broker, logger, client metrics or group"
        raise error_for(ErrorCode.INVALID_REQUEST, text)
    if name not in ("", str(context.broker_id)):
        text = f'node {context.broker_id} knows its own settings and those of all nodes (""), not those of {name!r}'
        raise error_for(ErrorCode.INVALID_REQUEST, text)
    return _describe_all_brokers(context) if not name else _describe_broker(context)


def _describe_group(context: NodeContext, group_id: str) -> Iterator[DescribedConfig]:
    """Describe the settings of a group and this node's group defaults, even if the group does not exist yet.

    As in Kafka 4.1, the node's value counts as a default, whatever its source.
    """
    resource = ConfigResource(ConfigResourceType.GROUP, group_id)
    own, current = context.metadata.image.configs.get(resource, {}), context.settings.current
    for info in _GROUP_INFOS:
        default = format_value(getattr(current, f"{COORDINATOR_PREFIX}{info.key}".replace(".", "_")))
        value, source = default, ConfigSource.DEFAULT_CONFIG
        if info.key in own:
            value, source = own[info.key].strip(), ConfigSource.DYNAMIC_GROUP_CONFIG
        synonyms = [ConfigSynonym(info.key, value or "", source)]
        yield replace(_described(info, None, synonyms, is_read_only=False), value=value or "")


def _describe_subscription(context: NodeContext, name: str) -> Iterator[DescribedConfig]:
    """Describe a subscription to client metrics, even if it does not exist yet, as Kafka does."""
    own = context.metadata.image.configs.get(ConfigResource(ConfigResourceType.CLIENT_METRICS, name), {})
    for info in _SUBSCRIPTION_INFOS:
        value, source = info.default_text or "", ConfigSource.DEFAULT_CONFIG
        if info.key in own:
            value, source = own[info.key], ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG
        synonyms = [ConfigSynonym(info.key, value, source)]
        yield replace(_described(info, None, synonyms, is_read_only=False), value=value)


def _describe_broker(context: NodeContext) -> Iterator[DescribedConfig]:
    current = context.settings.current
    layers = _layers(context)
    for info in context.settings.infos:
        found = _below(layers, same_meaning(info.key), info.key)
        yield _described(info, current, found, is_read_only=not info.dynamic)
    for key in sorted({key for _, layer in layers for key in layer if is_foreign(key)}):
        yield _foreign(key, _below(layers, [key], key))


def _describe_all_brokers(context: NodeContext) -> Iterator[DescribedConfig]:
    """Describe only the settings that are set. All others are specific to each node."""
    settings = broker_settings(context.metadata.image)
    for info in context.settings.infos:
        if info.key in settings:
            found = [ConfigSynonym(info.key, settings[info.key], ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)]
            yield replace(_described(info, None, found, is_read_only=False), value=settings[info.key])
    for key in sorted(filter(is_foreign, settings)):
        yield _foreign(key, [ConfigSynonym(key, settings[key], ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)])


def _foreign(key: str, found: list[ConfigSynonym]) -> DescribedConfig:
    info = foreign_info(key)
    value = None if info.secret else found[0].value
    return replace(_described(info, None, found, is_read_only=not info.dynamic), value=value)


def _layers(context: NodeContext) -> _Layers:
    image, settings = context.metadata.image, context.settings
    defaults = {info.key: text for info in settings.infos if (text := info.default_text) is not None}
    return (
        (ConfigSource.DYNAMIC_BROKER_CONFIG, broker_settings(image, context.broker_id)),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, broker_settings(image)),
        (ConfigSource.STATIC_BROKER_CONFIG, settings.file),
        (ConfigSource.DEFAULT_CONFIG, defaults),
    )


def _below(layers: _Layers, keys: Sequence[str], first: str) -> list[ConfigSynonym]:
    """Return this node's values of the keys, in order of precedence, from the first entry of ``first`` on.

    Entries before it have another unit, which has its own description (ConfigHelper.configSynonyms).
    """
    found = [ConfigSynonym(key, layer[key], source) for source, layer in layers for key in keys if key in layer]
    return list(itertools.dropwhile(lambda synonym: synonym.name != first, found))


def _described(
    info: SettingInfo, config: object | None, synonyms: list[ConfigSynonym], *, is_read_only: bool
) -> DescribedConfig:
    is_sensitive = info.secret or _is_provided(synonyms)
    value = None if config is None or is_sensitive else format_value(getattr(config, info.attribute))
    synonyms = [replace(s, value=None) if info.secret or _is_provided([s]) else s for s in synonyms]
    return DescribedConfig(
        name=info.key,
        value=value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        is_read_only=is_read_only,
        is_sensitive=is_sensitive,
        synonyms=tuple(synonyms),
        documentation=info.doc,
        type="PASSWORD" if info.secret and info.config_type == "STRING" else info.config_type,
    )


def _is_provided(synonyms: Sequence[ConfigSynonym]) -> bool:
    """Return True if the first of the values is from a config provider, and thus as secret as a password."""
    return bool(synonyms) and isinstance(synonyms[0].value, ProvidedText)

"""Settings of the fake's topics and groups: described and changed as a node and a controller do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from tidelog.testing.fake.faults import Fault, error_message
from tidelog.testing.fake.topics import FakeTopic, TopicTable
from tidelog.v1 import admin_service_pb2 as pb
from tidelog.v1 import metadata_record_pb2
from tidelog_foundation.config import DynamicBrokerConfig, TopicConfig, describe, format_value, parse_config
from tidelog_foundation.config.broker import BROKER_SYNONYMS
from tidelog_foundation.config.changes import changed_value
from tidelog_foundation.config.group import (
    COORDINATOR_PREFIX,
    ConsumerGroupLimits,
    GroupConfig,
    check_group_id,
    check_group_key,
    check_group_settings,
)
from tidelog_foundation.config.settings import SettingInfo, unknown_key
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

_INFOS = {info.key: info for info in describe(TopicConfig)}
_GROUP_INFOS = {info.key: info for info in describe(GroupConfig)}
_GROUP_LIMITS = ConsumerGroupLimits()
_DEFAULTS = {info.key: info.default_text for info in describe(DynamicBrokerConfig)}
_UNSET = {info.key: getattr(DynamicBrokerConfig().topic_defaults(), info.attribute) for info in _INFOS.values()}


def describe_configs(table: TopicTable, request: pb.DescribeConfigsRequest, fault: Fault) -> pb.DescribeConfigsResponse:
    """Describe the settings of topics and groups; each other resource has its error."""
    results = []
    with table.changed:
        for wanted in request.resources:
            result = pb.DescribedConfigResource(resource=wanted.resource)
            try:
                fault.before_effect()
                configs = _described_resource(table, wanted.resource)
                result.configs.extend(c for c in configs if not wanted.names or c.name in wanted.names)
                fault.after_effect()
            except TidelogError as error:
                result.error.CopyFrom(error_message(error))
            results.append(result)
    return pb.DescribeConfigsResponse(resources=results)


def alter_configs(
    table: TopicTable, request: pb.IncrementalAlterConfigsRequest, fault: Fault
) -> pb.IncrementalAlterConfigsResponse:
    """Change the settings of each topic and group, or say why not."""
    counts = Counter((r.resource.type, r.resource.name) for r in request.resources)
    results: dict[tuple[int, str], pb.ConfigResourceResult] = {}
    with table.changed:
        for wanted in request.resources:
            key = (wanted.resource.type, wanted.resource.name)
            results[key] = pb.ConfigResourceResult(resource=wanted.resource)
            try:
                fault.before_effect()
                if counts[key] > 1:
                    text = f"the resource {wanted.resource.name!r} is named {counts[key]} times"
                    raise error_for(ErrorCode.INVALID_REQUEST, text)
                _alter(table, wanted, request.validate_only)
                fault.after_effect()
            except TidelogError as error:
                results[key].error.CopyFrom(error_message(error))
    return pb.IncrementalAlterConfigsResponse(resources=results.values())


def _alter(table: TopicTable, wanted: pb.ConfigResourceChange, validate_only: bool) -> None:
    if wanted.resource.type != metadata_record_pb2.CONFIG_RESOURCE_TYPE_GROUP:
        topic = _topic(table, wanted.resource)
        table.change_configs(topic.name, _changed(topic.configs, _INFOS, wanted), validate_only)
        return
    group_id = _group_id(wanted.resource)
    for operation in wanted.operations:
        if operation.type != pb.CONFIG_OPERATION_TYPE_DELETE:
            check_group_key(operation.name)
    configs = _changed(table.group_configs.get(group_id, {}), _GROUP_INFOS, wanted)
    check_group_settings(configs, _GROUP_LIMITS)
    if not validate_only:
        table.group_configs[group_id] = configs


def _group_id(resource: pb.ConfigResourceName) -> str:
    if not resource.name:
        raise error_for(ErrorCode.INVALID_REQUEST, "a group's id must not be empty")
    check_group_id(resource.name)
    return resource.name


def _topic(table: TopicTable, resource: pb.ConfigResourceName) -> FakeTopic:
    if resource.type != metadata_record_pb2.CONFIG_RESOURCE_TYPE_TOPIC:
        text = f"the fake has settings of topics and groups, not of resource {resource.name!r} of type {resource.type}"
        raise error_for(ErrorCode.INVALID_REQUEST, text)
    return table.topic(resource.name)


def _changed(
    current: Mapping[str, str], infos: Mapping[str, SettingInfo], wanted: pb.ConfigResourceChange
) -> dict[str, str]:
    counts = Counter(o.name for o in wanted.operations)
    configs = {n: v for n, v in current.items() if n in counts or not wanted.replaces_all}
    for operation in wanted.operations:
        name = operation.name
        if counts[name] > 1:
            raise error_for(ErrorCode.INVALID_REQUEST, f"the setting {name!r} is named {counts[name]} times")
        if operation.type == pb.CONFIG_OPERATION_TYPE_DELETE:
            configs.pop(name, None)
            continue
        if name not in infos:
            raise error_for(ErrorCode.INVALID_CONFIG, unknown_key(name, infos))
        value = changed_value(configs.pop(name, None), operation, infos[name])
        if value is not None:
            configs[name] = value
    return configs


def _described_resource(table: TopicTable, resource: pb.ConfigResourceName) -> Iterator[pb.DescribedConfig]:
    if resource.type != metadata_record_pb2.CONFIG_RESOURCE_TYPE_GROUP:
        yield from _described(_topic(table, resource))
        return
    own = table.group_configs.get(_group_id(resource), {})
    for info in _GROUP_INFOS.values():
        default = getattr(_GROUP_LIMITS, f"{COORDINATOR_PREFIX}{info.key}".replace(".", "_"))
        value, source = str(default), pb.CONFIG_SOURCE_DEFAULT_CONFIG
        if info.key in own:
            value, source = own[info.key].strip(), pb.CONFIG_SOURCE_DYNAMIC_GROUP_CONFIG
        yield pb.DescribedConfig(
            name=info.key,
            value=value,
            source=source,
            synonyms=[pb.ConfigSynonym(name=info.key, value=value, source=source)],
            documentation=info.doc,
            type=info.config_type,
        )


def _described(topic: FakeTopic) -> list[pb.DescribedConfig]:
    config = parse_config(TopicConfig, _UNSET | topic.configs)
    return [_describe(topic, config, info) for info in _INFOS.values()]


def _describe(topic: FakeTopic, config: TopicConfig, info: SettingInfo) -> pb.DescribedConfig:
    default = pb.CONFIG_SOURCE_DEFAULT_CONFIG
    synonyms = [
        pb.ConfigSynonym(name=s.key, value=text, source=default)
        for s in BROKER_SYNONYMS.get(info.key, ())[:1]
        if (text := _DEFAULTS.get(s.key)) is not None
    ]
    if info.key in topic.configs:
        source = pb.CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG
        synonyms.insert(0, pb.ConfigSynonym(name=info.key, value=topic.configs[info.key], source=source))
    return pb.DescribedConfig(
        name=info.key,
        value=format_value(getattr(config, info.attribute)),
        source=synonyms[0].source if synonyms else default,
        synonyms=synonyms,
        documentation=info.doc,
        type=info.config_type,
    )

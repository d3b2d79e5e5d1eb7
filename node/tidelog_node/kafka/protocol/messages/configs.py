"""DescribeConfigs, ListConfigResources, AlterConfigs and IncrementalAlterConfigs.

They follow KIP-133, KIP-226, KIP-339, KIP-524, KIP-569, KIP-714 and KIP-1142.
"""

from __future__ import annotations

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import (
    STRING,
    Kind,
    Message,
    Structure,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
)


class DescribeConfigsResource(Structure):
    """A resource to describe. If ``configuration_keys`` is null or empty, all settings are described."""

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(STRING, nullable=0)


class DescribeConfigsRequest(Message, api=ApiKey.DESCRIBE_CONFIGS, versions=(1, 4), flexible=4):
    """The resources whose settings are requested."""

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean(since=3)


class DescribeConfigsSynonym(Structure):
    """A level at which a setting is set."""

    name: str = string()
    value: str | None = string(nullable=0)
    source: int = int8()


class DescribeConfigsResourceResult(Structure):
    """A setting and its source."""

    name: str = string()
    value: str | None = string(nullable=0)
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym)
    config_type: int = int8(since=3)
    documentation: str | None = string(since=3, nullable=3)


class DescribeConfigsResult(Structure):
    """One resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(Message, answers=DescribeConfigsRequest):
    """One result per resource."""

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)


class ListConfigResourcesRequest(Message, api=ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1), flexible=0):
    """A request for resources, of all types if ``resource_types`` is empty. Version 0 requests client metrics."""

    resource_types: list[int] = array(Kind.INT8, since=1)


class ConfigResource(Structure):
    """A resource that has settings."""

    resource_name: str = string()
    resource_type: int = int8(default=16, since=1)


class ListConfigResourcesResponse(Message, answers=ListConfigResourcesRequest):
    """The resources of the requested types."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)


class AlterableConfig(Structure):
    """A setting and its new value."""

    name: str = string()
    value: str | None = string(nullable=0)


class AlterConfigsResource(Structure):
    """The complete new settings of a resource. Settings that are not named are removed."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class AlterConfigsRequest(Message, api=ApiKey.ALTER_CONFIGS, versions=(0, 2), flexible=2):
    """The resources whose settings are replaced."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Structure):
    """The result of one resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    resource_type: int = int8()
    resource_name: str = string()


class AlterConfigsResponse(Message, answers=AlterConfigsRequest):
    """One result per resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


class IncrementalAlterableConfig(Structure):
    """A change of a setting. ``config_operation`` is 0 to set, 1 to remove, 2 to append, 3 to subtract."""

    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable=0)


class IncrementalAlterConfigsResource(Structure):
    """The changes of one resource."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[IncrementalAlterableConfig] = array(IncrementalAlterableConfig)


class IncrementalAlterConfigsRequest(Message, api=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), flexible=1):
    """The resources whose settings change."""

    resources: list[IncrementalAlterConfigsResource] = array(IncrementalAlterConfigsResource)
    validate_only: bool = boolean()


class IncrementalAlterConfigsResponse(Message, answers=IncrementalAlterConfigsRequest):
    """One result per resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)

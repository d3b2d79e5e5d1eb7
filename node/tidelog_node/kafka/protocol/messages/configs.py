"""DescribeConfigs, ListConfigResources, AlterConfigs and IncrementalAlterConfigs.

They follow KIP-133, KIP-226, KIP-339, KIP-524, KIP-569, KIP-714 and KIP-1142.
"""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(slots=True)
class DescribeConfigsResource(Structure):
    """A resource to describe. Null or empty ``configuration_keys`` request all settings."""

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(STRING, nullable=0)


@dataclass(slots=True)
class DescribeConfigsRequest(Message):
    """The resources whose settings are requested."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.DESCRIBE_CONFIGS, (1, 4), 4

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean(since=3)


@dataclass(slots=True)
class DescribeConfigsSynonym(Structure):
    """A level at which a setting is set."""

    name: str = string()
    value: str | None = string(nullable=0)
    source: int = int8()


@dataclass(slots=True)
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


@dataclass(slots=True)
class DescribeConfigsResult(Structure):
    """One resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


@dataclass(slots=True)
class DescribeConfigsResponse(Message):
    """One result per resource."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.DESCRIBE_CONFIGS, (1, 4), 4

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)


@dataclass(slots=True)
class ListConfigResourcesRequest(Message):
    """A request for resources. Empty ``resource_types`` request all types; version 0 requests client metrics."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.LIST_CONFIG_RESOURCES, (0, 1), 0

    resource_types: list[int] = array(Kind.INT8, since=1)


@dataclass(slots=True)
class ConfigResource(Structure):
    """A resource that has settings."""

    resource_name: str = string()
    resource_type: int = int8(default=16, since=1)


@dataclass(slots=True)
class ListConfigResourcesResponse(Message):
    """The resources of the requested types."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.LIST_CONFIG_RESOURCES, (0, 1), 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)


@dataclass(slots=True)
class AlterableConfig(Structure):
    """A setting and its new value."""

    name: str = string()
    value: str | None = string(nullable=0)


@dataclass(slots=True)
class AlterConfigsResource(Structure):
    """The complete new settings of a resource. Settings that are not named are removed."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@dataclass(slots=True)
class AlterConfigsRequest(Message):
    """The resources whose settings are replaced."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.ALTER_CONFIGS, (0, 2), 2

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@dataclass(slots=True)
class AlterConfigsResourceResponse(Structure):
    """The result of one resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    resource_type: int = int8()
    resource_name: str = string()


@dataclass(slots=True)
class AlterConfigsResponse(Message):
    """One result per resource."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.ALTER_CONFIGS, (0, 2), 2

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


@dataclass(slots=True)
class IncrementalAlterableConfig(Structure):
    """A change of a setting. ``config_operation`` is 0 to set, 1 to remove, 2 to append, 3 to subtract."""

    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable=0)


@dataclass(slots=True)
class IncrementalAlterConfigsResource(Structure):
    """The changes of one resource."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[IncrementalAlterableConfig] = array(IncrementalAlterableConfig)


@dataclass(slots=True)
class IncrementalAlterConfigsRequest(Message):
    """The resources whose settings change."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1), 1

    resources: list[IncrementalAlterConfigsResource] = array(IncrementalAlterConfigsResource)
    validate_only: bool = boolean()


@dataclass(slots=True)
class IncrementalAlterConfigsResponse(Message):
    """One result per resource."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1), 1

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)

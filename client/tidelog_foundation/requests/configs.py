"""Settings of topics, brokers and groups that change at run time (KIP-339, KIP-226)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.requests.request import Request


class ConfigResourceType(IntEnum):
    """The type of a configuration's owner; the numbers are Kafka's."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


BROKER_LOGGER: Final = 8
"""The type of a broker's loggers, whose levels belong to the process and not to the cluster's metadata (KIP-412)."""


class ConfigOperationType(IntEnum):
    """A change of one setting. UNSPECIFIED means SET; APPEND and SUBTRACT change the elements of a list."""

    UNSPECIFIED = 0
    SET = 1
    DELETE = 2
    APPEND = 3
    SUBTRACT = 4


class ConfigSource(IntEnum):
    """The source of a value; the numbers are Kafka's."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One name and value of a configuration."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class ConfigResourceName:
    """The owner of a configuration: a topic, a broker by its id, "" for all brokers, a group, or a subscription.

    ``type`` is a ConfigResourceType, BROKER_LOGGER, or another number in a request, which its receiver refuses.
    """

    type: int
    name: str


@dataclass(frozen=True, slots=True)
class ConfigOperation:
    """A change of one setting, with the value to set, append or subtract."""

    name: str
    type: ConfigOperationType = ConfigOperationType.UNSPECIFIED
    value: str = ""


@dataclass(frozen=True, slots=True)
class ConfigResourceChange:
    """The changes of one resource. ``replaces_all`` removes its settings that no operation names (KIP-133)."""

    resource: ConfigResourceName
    operations: tuple[ConfigOperation, ...] = ()
    replaces_all: bool = False


@dataclass(frozen=True, slots=True)
class ConfigResourceResult:
    """The outcome for one resource, which changes as a whole or not at all."""

    resource: ConfigResourceName
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class IncrementalAlterConfigsResponse:
    """The outcome for each resource."""

    resources: tuple[ConfigResourceResult, ...] = ()


@dataclass(frozen=True, slots=True)
class IncrementalAlterConfigsRequest(Request[IncrementalAlterConfigsResponse]):
    """A request to change single settings (KIP-339)."""

    resources: tuple[ConfigResourceChange, ...] = ()
    validate_only: bool = False
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class DescribeConfigsResource:
    """A resource to describe. If ``names`` is empty, all settings are described."""

    resource: ConfigResourceName
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A value of one layer of the configuration. None is hidden, as a secret."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class DescribedConfig:
    """An effective setting. ``value`` is None for a setting without a value, or a secret.

    ``synonyms`` are the values that apply in order if those before them are not set, this value first. ``type`` is
    Kafka's name: BOOLEAN, STRING, SHORT, INT, LONG, DOUBLE, LIST, CLASS or PASSWORD; UNKNOWN for a setting that a node
    stores but does not have.
    """

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str
    type: str


@dataclass(frozen=True, slots=True)
class DescribedConfigResource:
    """The settings of one resource, or its error."""

    resource: ConfigResourceName
    error: TidelogError | None = None
    configs: tuple[DescribedConfig, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeConfigsResponse:
    """The settings of each resource."""

    resources: tuple[DescribedConfigResource, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeConfigsRequest(Request[DescribeConfigsResponse]):
    """A request for effective settings with their sources (KIP-226, KIP-524)."""

    resources: tuple[DescribeConfigsResource, ...] = ()
    include_synonyms: bool = False
    include_documentation: bool = False

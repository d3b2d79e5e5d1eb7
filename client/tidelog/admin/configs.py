"""Operations that describe and change the settings of topics and nodes, with confluent-kafka's names (KIP-226,
KIP-339).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tidelog.admin.operations import Future, Operations, Outcomes
from tidelog.admin.resources import ResourceType
from tidelog.cluster import Connection
from tidelog.cluster.answers import error_of
from tidelog.v1 import admin_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError, error_for

_GROUP = 32
"""The number of the group type in requests. :class:`ResourceType` has another number, as in confluent-kafka."""


class ConfigSource(enum.Enum):
    """The source of a value."""

    UNKNOWN_CONFIG = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


CONFIG_SOURCE_UNKNOWN_CONFIG: Final[int] = ConfigSource.UNKNOWN_CONFIG.value
CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG: Final[int] = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG: Final[int] = ConfigSource.DYNAMIC_BROKER_CONFIG.value
CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG: Final[int] = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value
CONFIG_SOURCE_STATIC_BROKER_CONFIG: Final[int] = ConfigSource.STATIC_BROKER_CONFIG.value
CONFIG_SOURCE_DEFAULT_CONFIG: Final[int] = ConfigSource.DEFAULT_CONFIG.value
CONFIG_SOURCE_GROUP_CONFIG: Final[int] = ConfigSource.GROUP_CONFIG.value


class AlterConfigOpType(enum.Enum):
    """The kind of a change. APPEND adds to a list, and SUBTRACT removes from it."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigEntry:
    """A setting: a described one, or with ``incremental_operation`` a change.

    ``synonym_chain`` lists the values in order of precedence, beginning with this one; each applies if those before it
    are not set. ``synonyms`` maps names to them, as in confluent-kafka; of several with one name, it contains the last.
    """

    def __init__(
        self,
        name: str,
        value: str | None,
        source: ConfigSource | int = ConfigSource.UNKNOWN_CONFIG,
        is_read_only: bool = False,
        is_default: bool = False,
        is_sensitive: bool = False,
        is_synonym: bool = False,
        synonyms: Mapping[str, ConfigEntry] | Sequence[ConfigEntry] = (),
        incremental_operation: AlterConfigOpType | None = None,
        documentation: str = "",
        config_type: str = "",
    ) -> None:
        self.name = name
        self.value = value
        self.source = ConfigSource(source)
        self.is_read_only = is_read_only
        self.is_default = is_default
        self.is_sensitive = is_sensitive
        self.is_synonym = is_synonym
        self.synonym_chain = list(synonyms.values() if isinstance(synonyms, Mapping) else synonyms)
        self.synonyms = {synonym.name: synonym for synonym in self.synonym_chain}
        self.incremental_operation = incremental_operation
        self.documentation = documentation
        self.config_type = config_type
        """BOOLEAN, STRING, INT, LONG, DOUBLE or LIST; empty for a synonym."""

    def __repr__(self) -> str:
        return f'ConfigEntry({self.name}="{self.value}")'

    def __str__(self) -> str:
        return f'{self.name}="{self.value}"'


class ConfigResource:
    """A resource with settings: a topic by name, a node by id, ``""`` of type BROKER for all nodes, or a group by id.

    Of type BROKER_LOGGER, a node by id has the levels of its loggers by their names, FATAL to TRACE. Of type
    CLIENT_METRICS, a name has a subscription to the metrics of clients (KIP-714).

    ``set_config`` maps names to values to SET; ``incremental_configs`` contains changes of any kind. Two objects are
    equal if they name the same resource.
    """

    Type = ResourceType

    def __init__(
        self,
        restype: ResourceType | str | int,
        name: str,
        set_config: Mapping[str, str] | None = None,
        described_configs: Mapping[str, ConfigEntry] | None = None,
        error: KafkaError | None = None,
        incremental_configs: Iterable[ConfigEntry] | None = None,
    ) -> None:
        """Name a resource.

        Raises:
            ValueError: the type is unknown, or ``name`` is None.
        """
        if name is None:
            raise ValueError("name must be text, not None")
        self.restype = _resource_type(restype)
        self.restype_int = self.restype.value
        self.name = name
        self.set_config_dict = dict(set_config or {})
        self.configs = described_configs
        self.error = error
        self.incremental_configs = list(incremental_configs or ())

    def __repr__(self) -> str:
        error = "" if self.error is None else f",{self.error!r}"
        return f"ConfigResource({self.restype},{self.name}{error})"

    def __len__(self) -> int:
        """Return the number of settings in ``set_config``."""
        return len(self.set_config_dict)

    def __bool__(self) -> bool:
        return True

    def __hash__(self) -> int:
        return hash((self.restype, self.name))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigResource) and (self.restype, self.name) == (other.restype, other.name)

    def __lt__(self, other: ConfigResource) -> bool:
        return (self.restype_int, self.name) < (other.restype_int, other.name)

    def set_config(self, name: str, value: str, overwrite: bool = True) -> None:
        """Add a SET of one setting. If ``overwrite`` is false, keep an earlier one."""
        if overwrite or name not in self.set_config_dict:
            self.set_config_dict[name] = value

    def add_incremental_config(self, config_entry: ConfigEntry) -> None:
        """Add a change."""
        self.incremental_configs.append(config_entry)

    def to_name(self) -> pb.ConfigResourceName:
        """Return the resource's name as a request carries it."""
        number = _GROUP if self.restype is ResourceType.GROUP else self.restype_int
        return pb.ConfigResourceName(type=number, name=self.name)  # type: ignore[arg-type]


class ConfigAdmin(Operations):
    """Operations on settings."""

    def describe_configs(
        self, resources: Iterable[ConfigResource], *, request_timeout: float | None = None
    ) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]:
        """Return all settings of the resources by name, with values, sources and synonyms.

        A node is asked for its own settings. Any node answers for topics, with its own defaults, and for all nodes
        (``""``), for which only values that are set are returned. ``request_timeout`` is in seconds (default:
        request.timeout.ms).
        """
        futures: dict[ConfigResource, Future[dict[str, ConfigEntry]]] = {}
        wanted = list(dict.fromkeys(resources))
        own = [r for r in wanted if _is_of_one_node(r)]
        others = [r for r in wanted if r not in own]
        if others:
            futures |= self._futures(others, self._describe_anywhere(others, request_timeout))
        for resource in own:
            futures |= self._futures([resource], self._describe_node(resource, request_timeout))
        return futures

    def incremental_alter_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        request_timeout: float | None = None,
        validate_only: bool = False,
    ) -> dict[ConfigResource, Future[None]]:
        """Change settings. The changes of a resource are applied together or not at all.

        A future is done when the change is written; nodes apply it when they receive it. ``validate_only`` only
        validates.
        """
        wanted = list(resources)
        of_loggers = [r for r in wanted if r.restype is ResourceType.BROKER_LOGGER]
        others = [r for r in wanted if r not in of_loggers]
        futures: dict[ConfigResource, Future[None]] = {}
        if others:
            request = self._alter_request(others, request_timeout, validate_only)
            futures |= self._futures(others, self._alter(request, request_timeout))
        for resource in of_loggers:
            request = self._alter_request([resource], request_timeout, validate_only)
            futures |= self._futures([resource], self._alter_levels(resource, request, request_timeout))
        return futures

    def alter_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        request_timeout: float | None = None,
        validate_only: bool = False,
    ) -> dict[ConfigResource, Future[None]]:
        """Replace all settings of resources: settings that ``set_config`` omits return to their defaults.

        A concurrent change of the same resource can be lost (KIP-339); :meth:`incremental_alter_configs` changes single
        settings. The arguments are the same.
        """
        wanted = list(resources)

        async def alter() -> Outcomes[ConfigResource, None]:
            outcomes: dict[ConfigResource, TidelogError | None] = {}
            for resource in wanted:
                try:
                    outcomes[resource] = await self._replace(resource, request_timeout, validate_only)
                except TidelogError as error:
                    outcomes[resource] = error
            return outcomes

        return self._futures(wanted, alter())

    async def _alter(
        self, request: pb.IncrementalAlterConfigsRequest, timeout_s: float | None
    ) -> Outcomes[ConfigResource, None]:
        response = await self._change(lambda c, t: c.admin.IncrementalAlterConfigs(request, timeout=t), timeout_s)
        return {_key(r.resource): error_of(r) for r in response.resources}

    async def _alter_levels(
        self, resource: ConfigResource, request: pb.IncrementalAlterConfigsRequest, timeout_s: float | None
    ) -> Outcomes[ConfigResource, None]:
        connection, timeout = await self._named_node(resource, timeout_s)
        response = await connection.call(lambda c: c.admin.IncrementalAlterConfigs(request, timeout=timeout))
        return {_key(r.resource): error_of(r) for r in response.resources}

    def _alter_request(
        self, resources: Sequence[ConfigResource], timeout_s: float | None, validate_only: bool
    ) -> pb.IncrementalAlterConfigsRequest:
        return alter_request(resources, self._request_ms(timeout_s), validate_only=validate_only)

    async def _replace(
        self, resource: ConfigResource, timeout_s: float | None, validate_only: bool
    ) -> TidelogError | None:
        if resource.restype is ResourceType.BROKER_LOGGER:
            text = "levels of loggers change one by one, with incremental_alter_configs"
            return error_for(ErrorCode.INVALID_REQUEST, text)
        described = await (
            self._describe_node(resource, timeout_s)
            if _is_of_one_node(resource)
            else self._describe_anywhere([resource], timeout_s)
        )
        found = described[resource]
        if isinstance(found, TidelogError):
            return found
        source = _own_source(resource)
        changes = [
            ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE)
            for name, entry in found.items()
            if name not in resource.set_config_dict and any(s.source is source for s in entry.synonym_chain)
        ]
        change = ConfigResource(resource.restype, resource.name, resource.set_config_dict, incremental_configs=changes)
        request = self._alter_request([change], timeout_s, validate_only)
        response = await self._change(lambda c, t: c.admin.IncrementalAlterConfigs(request, timeout=t), timeout_s)
        return error_of(response.resources[0])

    async def _describe_anywhere(
        self, resources: Sequence[ConfigResource], timeout_s: float | None
    ) -> Outcomes[ConfigResource, dict[str, ConfigEntry]]:
        request = describe_request(resources)
        return _described(await self._ask(lambda c, t: c.admin.DescribeConfigs(request, timeout=t), timeout_s))

    async def _describe_node(
        self, resource: ConfigResource, timeout_s: float | None
    ) -> Outcomes[ConfigResource, dict[str, ConfigEntry]]:
        connection, timeout = await self._named_node(resource, timeout_s)
        request = describe_request([resource])
        return _described(await connection.call(lambda c: c.admin.DescribeConfigs(request, timeout=timeout)))

    async def _named_node(self, resource: ConfigResource, timeout_s: float | None) -> tuple[Connection, float]:
        """Return the connection to the node that a resource names, and the time of a call in seconds."""
        if not resource.name.isdecimal():
            raise error_for(ErrorCode._INVALID_ARG, f"{resource.name!r} is not a node id")
        timeout_ms = self._request_ms(timeout_s)
        connection = await self._node(int(resource.name), timeout_ms, ErrorCode.BROKER_ID_NOT_REGISTERED)
        return connection, timeout_ms / 1000


def _is_of_one_node(resource: ConfigResource) -> bool:
    """Return whether only one node knows the settings."""
    is_loggers = resource.restype is ResourceType.BROKER_LOGGER
    return is_loggers or (resource.restype is ResourceType.BROKER and bool(resource.name))


def _own_source(resource: ConfigResource) -> ConfigSource:
    """Return the source of the settings that are set on the resource itself."""
    if resource.restype is ResourceType.TOPIC:
        return ConfigSource.DYNAMIC_TOPIC_CONFIG
    if resource.restype is ResourceType.GROUP:
        return ConfigSource.GROUP_CONFIG
    return ConfigSource.DYNAMIC_BROKER_CONFIG if resource.name else ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG


def _resource_type(given: ResourceType | str | int) -> ResourceType:
    try:
        if isinstance(given, str):
            return ResourceType[given.upper()]
        return ResourceType(given)
    except (KeyError, ValueError) as error:
        raise ValueError(f"restype must be one of {', '.join(ResourceType.__members__)}, not {given!r}") from error


def _change(resource: ConfigResource) -> pb.ConfigResourceChange:
    operations = [
        pb.ConfigOperation(name=n, type=_number(AlterConfigOpType.SET), value=str(v))
        for n, v in resource.set_config_dict.items()
    ]
    for entry in resource.incremental_configs:
        if entry.incremental_operation is None:
            raise error_for(ErrorCode._INVALID_ARG, f"the change of {entry.name} has no incremental_operation")
        value = "" if entry.value is None else str(entry.value)
        operations.append(pb.ConfigOperation(name=entry.name, type=_number(entry.incremental_operation), value=value))
    return pb.ConfigResourceChange(resource=resource.to_name(), operations=operations)


def _number(kind: AlterConfigOpType) -> pb.ConfigOperationType.ValueType:
    return {
        AlterConfigOpType.SET: pb.CONFIG_OPERATION_TYPE_SET,
        AlterConfigOpType.DELETE: pb.CONFIG_OPERATION_TYPE_DELETE,
        AlterConfigOpType.APPEND: pb.CONFIG_OPERATION_TYPE_APPEND,
        AlterConfigOpType.SUBTRACT: pb.CONFIG_OPERATION_TYPE_SUBTRACT,
    }[kind]


def alter_request(
    resources: Sequence[ConfigResource], timeout_ms: float, *, validate_only: bool
) -> pb.IncrementalAlterConfigsRequest:
    """Return the request for the changes of the resources."""
    return pb.IncrementalAlterConfigsRequest(
        resources=[_change(r) for r in resources], validate_only=validate_only, timeout_ms=int(timeout_ms)
    )


def describe_request(resources: Sequence[ConfigResource]) -> pb.DescribeConfigsRequest:
    """Return the request for all settings of the resources."""
    return pb.DescribeConfigsRequest(
        resources=[pb.DescribeConfigsResource(resource=r.to_name()) for r in resources],
        include_synonyms=True,
        include_documentation=True,
    )


def _described(response: pb.DescribeConfigsResponse) -> dict[ConfigResource, dict[str, ConfigEntry] | TidelogError]:
    return {_key(r.resource): error_of(r) or {c.name: _entry(c) for c in r.configs} for r in response.resources}


def _entry(config: pb.DescribedConfig) -> ConfigEntry:
    return ConfigEntry(
        config.name,
        config.value if config.HasField("value") else None,
        ConfigSource(config.source),
        is_read_only=config.is_read_only,
        is_default=config.source == pb.CONFIG_SOURCE_DEFAULT_CONFIG,
        is_sensitive=config.is_sensitive,
        synonyms=[
            ConfigEntry(s.name, s.value if s.HasField("value") else None, ConfigSource(s.source), is_synonym=True)
            for s in config.synonyms
        ],
        documentation=config.documentation,
        config_type=config.type,
    )


def _key(name: pb.ConfigResourceName) -> ConfigResource:
    return ConfigResource(ResourceType.GROUP if name.type == _GROUP else name.type, name.name)

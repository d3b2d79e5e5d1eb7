"""The options of ``format("tidelog")``, with the names of Spark's own Kafka source, validated before any read.

Spark passes every key in lower case; this module restores the spelling. An option that a query cannot honour is an
error that names it: nothing is accepted and ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from tidelog.cluster.config import ClientConfig
from tidelog.cluster.security import SecurityConfig
from tidelog_foundation.config import at_least, config_keys, not_empty, one_of, parse_config, setting
from tidelog_foundation.config.providers import resolve_client_settings
from tidelog_foundation.errors import ConfigError
from tidelog_spark.offsets import EARLIEST, LATEST, OffsetBound, parse_bound

_CLIENT_ID = "tidelog-spark"
_REQUEST_TIMEOUT_MS = 5_000
_KAFKA = "kafka."


@dataclass(frozen=True, slots=True)
class ConnectionOptions(SecurityConfig):
    """The options common to reading and writing.

    The security settings are those of Tidelog's clients, with or without the prefix ``kafka.``.
    """

    bootstrap_servers: str = setting(
        doc="Addresses of nodes, as host:port,host:port.",
        check=not_empty,
        aliases=("kafka.bootstrap.servers",),
        key="bootstrap.servers",
    )


@dataclass(frozen=True, slots=True)
class SourceOptions(ConnectionOptions):
    """The user's options for reading, before it is known whether the query is a batch or a stream."""

    subscribe: tuple[str, ...] = setting(doc="The topics to read, separated by commas.", check=not_empty)
    starting_offsets: str | None = setting(
        None,
        'The start: earliest, latest, or JSON {"topic":{"0":23,"1":-2}}. Defaults to earliest in a batch '
        "query, latest in a new streaming query.",
        key="startingOffsets",
    )
    ending_offsets: str | None = setting(
        None,
        'The end of a batch query, exclusive: latest (the default), or JSON {"topic":{"0":50,"1":-1}}.',
        key="endingOffsets",
    )
    isolation_level: str = setting(
        "read_committed",
        "read_committed: read records of committed transactions only, up to the first open transaction; "
        "read_uncommitted: read all records.",
        one_of("read_committed", "read_uncommitted"),
        aliases=("kafka.isolation.level",),
        key="isolation.level",
    )
    include_headers: bool = setting(False, "Whether rows have the column headers.", key="includeHeaders")
    fail_on_data_loss: bool = setting(
        True,
        "Whether a query fails if offsets that it must read are gone; if false, it skips them.",
        key="failOnDataLoss",
    )
    max_offsets_per_trigger: int | None = setting(
        None,
        "The maximum number of offsets in a micro-batch, divided among the partitions in proportion to their backlog.",
        at_least(1),
        key="maxOffsetsPerTrigger",
    )
    min_partitions: int | None = setting(
        None,
        "The approximate minimum number of Spark partitions, into which large partitions are split.",
        at_least(1),
        key="minPartitions",
    )
    poll_timeout_ms: int = setting(
        120_000,
        "The time without a response after which a task or the planner fails, in milliseconds.",
        at_least(1),
        key="kafkaConsumer.pollTimeoutMs",
    )

    @property
    def client(self) -> ClientConfig:
        """The settings of the client that reads."""
        security = {field.name: getattr(self, field.name) for field in fields(SecurityConfig)}
        return ClientConfig(
            bootstrap_servers=tuple(part.strip() for part in self.bootstrap_servers.split(",")),
            client_id=_CLIENT_ID,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
            **security,
        )

    @property
    def is_read_committed(self) -> bool:
        """True if records of uncommitted transactions are left out."""
        return self.isolation_level == "read_committed"


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The options of one batch or streaming read, with the offsets parsed."""

    options: SourceOptions
    starting: OffsetBound
    ending: OffsetBound


def parse_options(raw: Mapping[str, str]) -> SourceOptions:
    """Parse Spark's options, whose keys may be in any case.

    Raises:
        ConfigError: a key is unknown (the nearest is named), missing or given twice, a value is out of its limits, or a
            reference to a config provider has no value.
    """
    return parse_config(SourceOptions, spelled(raw, SourceOptions))


def spelled(raw: Mapping[str, str], cls: type[SecurityConfig]) -> dict[str, str]:
    """Return Spark's options with the spelling of the settings of ``cls``, whose security settings lose ``kafka.``.

    Raises:
        ConfigError: a security setting is given twice, or a reference to a config provider has no value.
    """
    spelling = {key.lower(): key for key in config_keys(cls)}
    spelling |= {f"{_KAFKA}{key}": key for key in config_keys(SecurityConfig)}
    named: dict[str, str] = {}
    for key, value in resolve_client_settings(raw).items():
        name = spelling.get(key.lower(), key).removeprefix(_KAFKA)
        if name in named:
            raise ConfigError(f"both {name} and {_KAFKA}{name} are given; they mean the same")
        named[name] = value
    return named


def batch_plan(options: SourceOptions) -> ReadPlan:
    """Return the plan of a batch query: by default from earliest to latest.

    Raises:
        ConfigError: an option of streams, offsets that are not JSON, a start of latest or an end of earliest.
    """
    if options.max_offsets_per_trigger is not None:
        raise ConfigError("maxOffsetsPerTrigger is for streaming queries; a batch query reads all at once")
    starting = parse_bound("startingOffsets", options.starting_offsets or "earliest", options.subscribe)
    ending = parse_bound("endingOffsets", options.ending_offsets or "latest", options.subscribe)
    if starting.asks_for(LATEST):
        raise ConfigError("startingOffsets can't be latest (-1) in a batch query: there would be nothing to read")
    if ending.asks_for(EARLIEST):
        raise ConfigError("endingOffsets can't be earliest (-2) in a batch query: there would be nothing to read")
    return ReadPlan(options, starting, ending)


def stream_plan(options: SourceOptions) -> ReadPlan:
    """Return the plan of a streaming query: by default from latest, without an end.

    Raises:
        ConfigError: endingOffsets is given, or startingOffsets is not JSON.
    """
    if options.ending_offsets is not None:
        raise ConfigError("endingOffsets is for batch queries; a stream has no end")
    starting = parse_bound("startingOffsets", options.starting_offsets or "latest", options.subscribe)
    return ReadPlan(options, starting, OffsetBound(default=LATEST))

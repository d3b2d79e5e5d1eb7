"""The options of ``format("tidelog")``, with the names of Spark's own Kafka source, validated before any read.

Spark passes every key in lower case; this module restores the spelling. An option that a query cannot honour is an
error that names it: nothing is accepted and ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from tidelog.cluster.config import MAX_INT32, ClientConfig
from tidelog.cluster.security import SecurityConfig
from tidelog_foundation.config import (
    at_least,
    between,
    config_key,
    config_keys,
    describe,
    not_empty,
    one_of,
    parse_config,
    setting,
)
from tidelog_foundation.config.providers import resolve_client_settings
from tidelog_foundation.errors import ConfigError
from tidelog_spark.source.offsets import EARLIEST, LATEST
from tidelog_spark.source.pacing import Pacing, parse_duration
from tidelog_spark.source.positions import OffsetBound, check_order, parse_bound, parse_timestamps
from tidelog_spark.source.refusals import check_refused
from tidelog_spark.source.selection import TopicSelection, select_topics

_KAFKA = "kafka."
_MAX_TRIGGER_DELAY = "15m"
_OF_STREAMS = ("max_offsets_per_trigger", "min_offsets_per_trigger", "max_trigger_delay")
_OF_BATCHES = ("ending_offsets", "ending_timestamp", "ending_offsets_by_timestamp")


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

    subscribe: tuple[str, ...] = setting((), "The topics to read, separated by commas.", check=not_empty)
    subscribe_pattern: str | None = setting(
        None,
        "A regular expression; all topics whose whole names match it are read.",
        not_empty,
        key="subscribePattern",
    )
    assign: str | None = setting(None, 'The partitions to read: JSON {"topic":[0,1]}.', not_empty)
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
    starting_timestamp: int | None = setting(
        None,
        "The start in all partitions: the first record with this timestamp or a later one, in milliseconds. Prevails "
        "over startingOffsetsByTimestamp and startingOffsets.",
        at_least(0),
        key="startingTimestamp",
    )
    ending_timestamp: int | None = setting(
        None,
        "The end of a batch query in all partitions, exclusive: the first record with this timestamp or a later one, "
        "in milliseconds. Prevails over endingOffsetsByTimestamp and endingOffsets.",
        at_least(0),
        key="endingTimestamp",
    )
    starting_offsets_by_timestamp: str | None = setting(
        None,
        'startingTimestamp by partition: JSON {"topic":{"0":1704067200000}}. Prevails over startingOffsets.',
        key="startingOffsetsByTimestamp",
    )
    ending_offsets_by_timestamp: str | None = setting(
        None,
        'endingTimestamp by partition: JSON {"topic":{"0":1704067200000}}. Prevails over endingOffsets.',
        key="endingOffsetsByTimestamp",
    )
    starting_offsets_by_timestamp_strategy: str = setting(
        "error",
        "The start of partitions whose records are all older than the starting timestamp: an error, or the latest "
        "offset.",
        one_of("error", "latest"),
        key="startingOffsetsByTimestampStrategy",
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
    columns: tuple[str, ...] = setting(
        (), "The columns of rows, in this order, separated by commas; by default all, headers excepted.", not_empty
    )
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
    min_offsets_per_trigger: int | None = setting(
        None,
        "The minimum number of offsets in a micro-batch, until maxTriggerDelay has passed. Without effect under "
        "Trigger.AvailableNow.",
        at_least(1),
        key="minOffsetsPerTrigger",
    )
    max_trigger_delay: str | None = setting(
        None,
        "The maximum wait for minOffsetsPerTrigger since the micro-batch before, such as 15m (the default) or 30s.",
        parse_duration,
        key="maxTriggerDelay",
    )
    min_partitions: int | None = setting(
        None,
        "The approximate minimum number of Spark partitions, into which large partitions are split.",
        at_least(1),
        key="minPartitions",
    )
    max_records_per_partition: int | None = setting(
        None,
        "The maximum number of offsets in a Spark partition; larger partitions are split.",
        at_least(1),
        key="maxRecordsPerPartition",
    )
    poll_timeout_ms: int = setting(
        120_000,
        "The time without a response after which a task or the planner fails, in milliseconds.",
        at_least(1),
        key="kafkaConsumer.pollTimeoutMs",
    )

    client_id: str = setting(
        "tidelog-spark", "The name of the client in the nodes' quotas.", not_empty, aliases=("kafka.client.id",)
    )
    request_timeout_ms: int = setting(
        5_000, "The timeout of a request, in milliseconds.", at_least(1), aliases=("kafka.request.timeout.ms",)
    )
    retry_backoff_ms: int = setting(
        100,
        "The wait before the first retry, in milliseconds; it doubles with each further retry.",
        at_least(1),
        aliases=("kafka.retry.backoff.ms",),
    )
    retry_backoff_max_ms: int = setting(
        1_000,
        "The maximum wait between retries, in milliseconds.",
        at_least(1),
        aliases=("kafka.retry.backoff.max.ms",),
    )
    max_partition_fetch_bytes: int = setting(
        4 * 1024 * 1024,
        "The maximum size of the batches in a response, in bytes; the first batch may be larger.",
        between(1, MAX_INT32),
        aliases=("kafka.max.partition.fetch.bytes",),
    )

    client_rack: str = setting(
        "",
        "The rack of the executors, comparable with the nodes' broker.rack. Tasks may read from a replica in it "
        "instead of the leader (see the nodes' replica.selector.class).",
        aliases=("kafka.client.rack",),
    )

    @property
    def client(self) -> ClientConfig:
        """The settings of the client that reads."""
        security = {field.name: getattr(self, field.name) for field in fields(SecurityConfig)}
        return ClientConfig(
            bootstrap_servers=tuple(part.strip() for part in self.bootstrap_servers.split(",")),
            client_id=self.client_id,
            request_timeout_ms=self.request_timeout_ms,
            retry_backoff_ms=self.retry_backoff_ms,
            retry_backoff_max_ms=self.retry_backoff_max_ms,
            **security,
        )

    @property
    def topics(self) -> TopicSelection:
        """The topics and partitions to read.

        Raises:
            ConfigError: not exactly one of subscribe, subscribePattern and assign is given, or its value is not valid.
        """
        return select_topics(self.subscribe, self.subscribe_pattern, self.assign)

    @property
    def pacing(self) -> Pacing | None:
        """The minimum size of micro-batches, or None without one."""
        if self.min_offsets_per_trigger is None:
            return None
        return Pacing(self.min_offsets_per_trigger, parse_duration(self.max_trigger_delay or _MAX_TRIGGER_DELAY))

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
        ConfigError: a key is refused or unknown (the nearest is named), missing or given twice, a value is out of its
            limits, or a reference to a config provider has no value.
    """
    check_refused(raw)
    return parse_config(SourceOptions, spelled(raw, SourceOptions))


def spelled(raw: Mapping[str, str], cls: type[SecurityConfig]) -> dict[str, str]:
    """Return Spark's options with the spelling of the settings of ``cls``, whose security settings lose ``kafka.``.

    Raises:
        ConfigError: a setting is given twice, or a reference to a config provider has no value.
    """
    spelling = {key.lower(): key for key in config_keys(cls)}
    spelling |= {f"{_KAFKA}{key}": key for key in config_keys(SecurityConfig)}
    settings = {alias: info.key for info in describe(cls) for alias in info.aliases}
    named: dict[str, str] = {}
    given: dict[str, str] = {}
    for key, value in resolve_client_settings(raw).items():
        known = spelling.get(key.lower(), key)
        meant = settings.get(known, known)
        if meant in given:
            raise ConfigError(f"both {given[meant]} and {key} are given; they mean the same")
        named[known], given[meant] = value, key
    return named


def batch_plan(options: SourceOptions) -> ReadPlan:
    """Return the plan of a batch query: by default from earliest to latest.

    Raises:
        ConfigError: an option of streams, positions that are not valid, a start of latest, an end of earliest, or a
            start after the end.
    """
    _refuse(options, _OF_STREAMS, "is for streaming queries; a batch query reads all at once")
    starting, ending = _starting(options, "earliest"), _ending(options)
    if starting.asks_for(LATEST):
        raise ConfigError("startingOffsets can't be latest (-1) in a batch query: there would be nothing to read")
    if ending.asks_for(EARLIEST):
        raise ConfigError("endingOffsets can't be earliest (-2) in a batch query: there would be nothing to read")
    check_order(starting, ending)
    return ReadPlan(options, starting, ending)


def stream_plan(options: SourceOptions) -> ReadPlan:
    """Return the plan of a streaming query: by default from latest, without an end.

    Raises:
        ConfigError: an option of batches, positions that are not valid, or limits that contradict each other.
    """
    _refuse(options, _OF_BATCHES, "is for batch queries; a stream has no end")
    least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise ConfigError(f"minOffsetsPerTrigger is {least}, which is more than maxOffsetsPerTrigger, {most}")
    if options.max_trigger_delay is not None and least is None:
        raise ConfigError("maxTriggerDelay has no effect without minOffsetsPerTrigger; give both or neither")
    return ReadPlan(options, _starting(options, "latest"), OffsetBound(default=LATEST))


def _starting(options: SourceOptions, default: str) -> OffsetBound:
    takes_latest = options.starting_offsets_by_timestamp_strategy == "latest"
    by_offsets = parse_bound("startingOffsets", options.starting_offsets or default, options.topics)
    return _prevailing(
        "starting",
        options.starting_timestamp,
        options.starting_offsets_by_timestamp,
        by_offsets,
        options.topics,
        takes_latest,
    )


def _ending(options: SourceOptions) -> OffsetBound:
    by_offsets = parse_bound("endingOffsets", options.ending_offsets or "latest", options.topics)
    return _prevailing(
        "ending",
        options.ending_timestamp,
        options.ending_offsets_by_timestamp,
        by_offsets,
        options.topics,
        takes_latest=True,
    )


def _prevailing(
    side: str,
    timestamp: int | None,
    by_partition: str | None,
    by_offsets: OffsetBound,
    topics: TopicSelection,
    takes_latest: bool,
) -> OffsetBound:
    bound = by_offsets
    if by_partition is not None:
        bound = parse_timestamps(f"{side}OffsetsByTimestamp", by_partition, topics, takes_latest)
    if timestamp is not None:
        bound = OffsetBound(timestamp, option=f"{side}Timestamp", is_timestamp=True, takes_latest=takes_latest)
    return bound


def _refuse(options: SourceOptions, names: Iterable[str], reason: str) -> None:
    for field in fields(options):
        if field.name in names and getattr(options, field.name) is not None:
            raise ConfigError(f"{config_key(field)} {reason}")

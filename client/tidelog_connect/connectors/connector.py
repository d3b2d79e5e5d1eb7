"""The interface of connectors, which third parties implement and name in the entry point ``tidelog.connectors``.

A connector is created on the driver for one run, with settings that its `config` has parsed. A source plans batches by
its offsets; a sink writes the batches of a streaming query. Connectors see data, not bytes: the worker applies the
converters and transforms of the connector's configuration between its rows and the topics. A key or value with a schema
has the Spark type of this schema (`tidelog_connect.schemas.spark_type`): a struct is a STRUCT. Data without a schema is
a VARIANT.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tidelog_connect.configuration import ConfigDef
from tidelog_connect.schemas import ConnectSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE = "source"
SINK = "sink"
SINK_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
Settings = Mapping[str, Any]
"""Parsed settings, by their names."""


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """The position behind the last record of one part of a source, such as a file: any JSON objects.

    None forgets the position of a part that is gone.
    """

    partition: Mapping[str, Any]
    offset: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """Rows of a source, and the offsets behind them, which are committed together.

    Columns: ``topic`` STRING, ``key`` and ``value`` of any type, and where the source has them ``partition`` INT,
    ``timestamp`` TIMESTAMP or BIGINT in ms, and ``headers`` ARRAY<STRUCT<key: STRING, value: BINARY>>. An absent key or
    value is null. ``topics`` are those of the rows. The schemas of keys and values follow from the types of their
    columns; give them where they have a name, defaults or parameters.
    """

    rows: DataFrame
    offsets: Sequence[SourceOffset]
    topics: frozenset[str]
    key_schema: ConnectSchema | None = None
    value_schema: ConnectSchema | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a sink: the id of the query, which a new checkpoint changes, and its number in the query.

    The schemas are those of the keys and values of its rows; None for data without a schema.
    """

    query: str
    number: int
    key_schema: ConnectSchema | None = None
    value_schema: ConnectSchema | None = None


class Connector(ABC):
    """The common part of sources and sinks. ``class_name`` is the value of ``connector.class``."""

    class_name: ClassVar[str]
    kind: ClassVar[str]
    task_class: ClassVar[str]

    @classmethod
    @abstractmethod
    def config(cls) -> ConfigDef:
        """Return the definitions of the connector's own settings."""

    @classmethod
    def is_own(cls, key: str) -> bool:
        """Tell whether a setting that `config` does not define belongs to the connector, such as by its prefix."""
        return False

    @classmethod
    def check(cls, settings: Settings) -> Mapping[str, str]:
        """Return the errors of settings that do not fit each other, by their names. Each of them is valid alone."""
        return {}

    @classmethod
    def tasks(cls, settings: Settings) -> int:
        """Return the number of tasks that the connector can use, at most ``tasks.max``."""
        return int(settings["tasks.max"])

    @classmethod
    def check_offset(cls, partition: Mapping[str, Any], offset: Mapping[str, Any] | None) -> None:
        """Check an offset of a source that a user wants to set; None resets the partition, which is always possible.

        Raises:
            ValueError: partition or offset are not those of this source, or cannot be set.
        """
        if offset is not None:
            raise ValueError(f"The offsets of {cls.class_name} can be reset, but not altered")


class SourceConnector(Connector):
    """A source, which runs on one thread of the driver."""

    kind = SOURCE

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @abstractmethod
    def poll(self, spark: SparkSession, position: Mapping[str, Mapping[str, Any]]) -> SourceBatch | None:
        """Return the next batch behind a position, or None if there is nothing new.

        ``position`` has the offset of each partition, whose JSON with sorted keys is the key (`partition_key`). Called
        again with the same position, the source may return other rows.

        Raises:
            RetriableError: the same call may succeed later; it is repeated as ``errors.retry.timeout`` says.
        """


class SinkConnector(Connector):
    """A sink, which runs on one thread of the driver."""

    kind = SINK
    reads: ClassVar[tuple[str, ...]] = SINK_COLUMNS
    """The columns that `put` reads, which are all that it gets. The fewer, the faster."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def read_options(self) -> Mapping[str, str]:
        """Return options of Tidelog's source, by which a batch has a least or greatest size."""
        return {}

    @abstractmethod
    def put(self, rows: DataFrame, batch: Batch) -> None:
        """Write a batch. After a crash, a batch may come again with the same id, number and rows.

        ``rows`` have the columns of `reads`, of topic, partition, offset, timestamp (TIMESTAMP), key, value and headers
        (ARRAY<STRUCT<key: STRING, value: BINARY>>). Key and value have the types of the batch's schemas.

        Raises:
            RetriableError: the same call may succeed later; it is repeated as ``errors.retry.timeout`` says.
        """

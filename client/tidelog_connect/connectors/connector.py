"""The interface of connectors, which third parties implement and name in the entry point ``tidelog.connectors``.

A connector is created on the driver for one run, with settings that its `config` has parsed. A source plans batches by
its offsets; a sink writes the batches of a streaming query. All DataFrames have the columns of `RECORD`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tidelog_connect.configuration import ConfigDef

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE = "source"
SINK = "sink"
Settings = Mapping[str, Any]
"""Parsed settings, by their names."""


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """The position behind the last record of one part of a source, such as a file: any JSON objects."""

    partition: Mapping[str, Any]
    offset: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """Rows of a source with the columns ``topic``, ``key``, ``value``, and the offsets behind them.

    The rows and the offsets are committed together. ``topics`` are those of the rows.
    """

    rows: DataFrame
    offsets: Sequence[SourceOffset]
    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class Batch:
    """The identity of a batch: the id of the query, which a new checkpoint changes, and its number in the query."""

    query: str
    number: int


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
        """


class SinkConnector(Connector):
    """A sink, which runs on one thread of the driver."""

    kind = SINK

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @abstractmethod
    def put(self, rows: DataFrame, batch: Batch) -> None:
        """Write a batch. After a crash, a batch may come again with the same id, number and rows.

        ``rows`` have the columns topic, partition, offset, timestamp, key, value and headers.
        """

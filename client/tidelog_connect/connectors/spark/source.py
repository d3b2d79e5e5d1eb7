"""SparkSource: the rows of any data source that Spark reads in batches."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidelog_connect.configuration import ConfigDef
from tidelog_connect.connectors.connector import Settings, SourceBatch, SourceConnector, SourceOffset
from tidelog_connect.connectors.offsets import partition_key
from tidelog_connect.connectors.options import is_option, options_of
from tidelog_connect.connectors.spark.positions import (
    check_partition,
    growing_value,
    offset_of,
    partition_of,
    value_of,
)
from tidelog_connect.connectors.spark.settings import BULK, check_source, source_settings

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


class SparkSourceConnector(SourceConnector):
    """Reads what a data source has. The value of a record is a struct of the row's columns.

    In mode incrementing, a batch ends at a value that is chosen before the rows are read, and its offset is this value,
    so each row is in one batch. In mode bulk, all rows are a batch, again and again, and there is no offset.
    """

    class_name = "io.tidelog.connect.spark.SparkSourceConnector"
    task_class = "io.tidelog.connect.spark.SparkSourceTask"

    @classmethod
    def config(cls) -> ConfigDef:
        """Return the settings of the source."""
        return source_settings()

    @classmethod
    def is_own(cls, key: str) -> bool:
        """Tell whether a setting is an option of Spark's reader."""
        return is_option(key)

    @classmethod
    def check(cls, settings: Settings) -> Mapping[str, str]:
        """Return the errors of settings that do not fit each other."""
        return check_source(settings)

    @classmethod
    def check_offset(cls, partition: Mapping[str, Any], offset: Mapping[str, Any] | None) -> None:
        """Check that the partition names a data source, and that the offset is a value of a column.

        Raises:
            ValueError: they do not.
        """
        check_partition(partition)
        value_of(offset)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._partition = partition_of(settings)
        self._due_s = 0.0

    def poll(self, spark: SparkSession, position: Mapping[str, Mapping[str, Any]]) -> SourceBatch | None:
        """Return the rows behind the position, or all."""
        if time.monotonic() < self._due_s:
            return None
        frame = self._frame(spark)
        if self.settings["mode"] == BULK:
            self._wait()
            return self._batch(frame, ())
        last = value_of(position.get(partition_key(self._partition)))
        value = growing_value(frame, self.settings["incrementing.column.name"], last)
        is_new = value.isNotNull() if last is None else value > last
        end = self._end(frame.where(is_new), value)
        if end is None:
            return None
        return self._batch(frame.where(is_new & (value <= end)), (SourceOffset(self._partition, offset_of(end)),))

    def _end(self, rows: DataFrame, value: Column) -> int | str | None:
        """Return the value at which the next batch ends, None if there are no rows."""
        from pyspark.sql import functions as sql

        most = self.settings["batch.max.rows"]
        ordered = rows.select(value.alias("value")).orderBy("value").limit(most)
        [[count, end]] = ordered.agg(sql.count("*"), sql.max("value")).collect()
        if count < most:
            self._wait()
        found: int | str | None = end
        return found

    def _wait(self) -> None:
        self._due_s = time.monotonic() + self.settings["poll.interval.ms"] / 1000

    def _frame(self, spark: SparkSession) -> DataFrame:
        settings, reader = self.settings, spark.read.options(**options_of(self.settings))
        if settings["table"]:
            return reader.table(settings["table"])
        reader = reader.format(settings["format"])
        if settings["schema"]:
            reader = reader.schema(settings["schema"])
        return reader.load(settings["path"]) if settings["path"] else reader.load()

    def _batch(self, frame: DataFrame, offsets: tuple[SourceOffset, ...]) -> SourceBatch:
        from pyspark.sql import functions as sql

        topic = self.settings["topic"]
        rows = frame.select(sql.lit(topic).alias("topic"), sql.struct("*").alias("value"))
        return SourceBatch(rows, offsets, frozenset([topic]))

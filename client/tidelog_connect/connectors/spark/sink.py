"""SparkSink: records as rows of any data source that Spark writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidelog_connect.configuration import ConfigDef
from tidelog_connect.connectors.connector import Batch, Settings, SinkConnector
from tidelog_connect.connectors.options import is_option, options_of
from tidelog_connect.connectors.sink_rows import rows_with_values, value_columns
from tidelog_connect.connectors.spark.settings import check_sink, sink_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TOPIC = "${topic}"
_KNOWS_BATCHES = frozenset(("delta", "tidelog"))
"""The formats that ignore a batch that they have, by the options txnAppId and txnVersion."""


class SparkSinkConnector(SinkConnector):
    """Appends records to what a format and its options name, each batch at least once.

    A batch that comes again has the same id and number. Formats that know them write it once: Delta and Tidelog get
    them as txnAppId and txnVersion, others as options with ``${query}`` and ``${batch}``.
    """

    class_name = "io.tidelog.connect.spark.SparkSinkConnector"
    task_class = "io.tidelog.connect.spark.SparkSinkTask"

    @classmethod
    def config(cls) -> ConfigDef:
        """Return the settings of the sink."""
        return sink_settings()

    @classmethod
    def is_own(cls, key: str) -> bool:
        """Tell whether a setting is an option of Spark's writer."""
        return is_option(key)

    @classmethod
    def check(cls, settings: Settings) -> Mapping[str, str]:
        """Return the errors of settings that do not fit each other."""
        return check_sink(settings)

    def put(self, rows: DataFrame, batch: Batch) -> None:
        """Write a batch: at once, or where a setting names the topic, topic by topic."""
        from pyspark.sql import functions as sql

        places = (self.settings["path"], self.settings["table"], *options_of(self.settings).values())
        if not any(_TOPIC in each for each in places):
            self._write(rows, batch, "")
            return
        for [topic] in sorted(rows.select("topic").distinct().collect()):
            self._write(rows.where(sql.col("topic") == topic), batch, topic)

    def _write(self, rows: DataFrame, batch: Batch, topic: str) -> None:
        settings, data = self.settings, self._data(rows)
        writer = data.write.options(**self.options(batch, topic)).mode("append")
        if settings["partition.by"]:
            writer = writer.partitionBy(*settings["partition.by"])
        if settings["format"]:
            writer = writer.format(settings["format"])
        if settings["table"]:
            writer.saveAsTable(settings["table"].replace(_TOPIC, topic))
        elif settings["path"]:
            writer.save(settings["path"].replace(_TOPIC, topic))
        else:
            writer.save()

    def options(self, batch: Batch, topic: str) -> dict[str, str]:
        """Return the options for the part of a batch that is written; ``topic`` is empty for a whole batch."""
        names = {"${query}": batch.query, "${batch}": str(batch.number), _TOPIC: topic}
        found = options_of(self.settings)
        if self.settings["format"].lower() in _KNOWS_BATCHES:
            identity = f"{batch.query}/{topic}" if topic else batch.query
            found = {"txnAppId": identity, "txnVersion": str(batch.number), **found}
        for name, text in names.items():
            found = {key: value.replace(name, text) for key, value in found.items()}
        return found

    def _data(self, rows: DataFrame) -> DataFrame:
        columns = self.settings["columns"]
        if columns:
            return rows.select(*columns)
        accepted = rows_with_values(rows, self.settings["behavior.on.null.values"])
        return accepted.select(*value_columns(rows))

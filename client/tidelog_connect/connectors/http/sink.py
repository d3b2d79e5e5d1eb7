"""HttpSink: records as requests to an HTTP API, at least once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tidelog_connect.configuration import ConfigDef
from tidelog_connect.connectors.connector import Batch, Settings, SinkConnector
from tidelog_connect.connectors.http.settings import check, http_settings

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row


class HttpSinkConnector(SinkConnector):
    """Sends each record, or several, as a request; those of a partition in their order, at least once."""

    class_name = "io.confluent.connect.http.HttpSinkConnector"
    task_class = "io.confluent.connect.http.HttpSinkTask"

    @classmethod
    def config(cls) -> ConfigDef:
        """Return the settings of the sink."""
        return http_settings()

    @classmethod
    def check(cls, settings: Settings) -> Mapping[str, str]:
        """Return the errors of settings that do not fit each other."""
        return check(settings)

    def put(self, rows: DataFrame, batch: Batch) -> None:
        """Send a batch. The requests of its tasks run at a time."""
        from pyspark.sql import functions as sql

        place = sql.concat_ws("-", "topic", "partition", "offset").alias("place")
        ordered = rows.sortWithinPartitions("topic", "partition", "offset")
        records = ordered.select("topic", place, _text(rows, "key").alias("key"), _text(rows, "value").alias("body"))
        own = {key: self.settings[key] for key in http_settings().keys}

        def send(rows: Iterable[Row]) -> Iterable[int]:
            from tidelog_connect.connectors.http.sender import HttpRecord, Sender

            yield Sender(own).send(HttpRecord(**row.asDict()) for row in rows)

        # Not mapInArrow, which needs pandas.
        records.rdd.mapPartitions(send).collect()


def _text(rows: DataFrame, side: str) -> Column:
    """Return a column as text: data in JSON, but a text or bytes as they are."""
    from pyspark.sql import functions as sql
    from pyspark.sql import types

    nested: tuple[type[Any], ...] = (types.StructType, types.ArrayType, types.MapType, types.VariantType)
    if isinstance(rows.schema[side].dataType, nested):
        return sql.to_json(sql.col(side), {"ignoreNullFields": "false"})
    return sql.col(side).cast("string")

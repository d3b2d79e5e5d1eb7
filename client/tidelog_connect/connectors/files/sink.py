"""FilesSink: records as files of a folder, each batch once."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidelog_connect.configuration import ConfigDef, ConfigException
from tidelog_connect.connectors.connector import Batch, Settings, SinkConnector
from tidelog_connect.connectors.files.batch_commit import commit_batch
from tidelog_connect.connectors.files.formats import FORMATS, ICEBERG, check_installed, format_name
from tidelog_connect.connectors.files.sink_settings import check, sink_settings
from tidelog_connect.connectors.options import is_option, options_of
from tidelog_connect.connectors.sink_rows import rows_with_values, value_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from tidelog_connect.connectors.files.iceberg import IcebergTables

_LEVEL = "_tidelog_level_"
"""The prefix of the columns by which Spark divides rows among folders. They are in no file."""


class FilesSinkConnector(SinkConnector):
    """Writes records to files, in a folder for each topic and those of a partitioner in it.

    A file is complete when it appears. A batch that comes again adds nothing (`batch_commit`). A table of Delta or
    Iceberg records the number of the batch, and ignores a batch that it has.
    """

    class_name = "io.tidelog.connect.files.FilesSinkConnector"
    task_class = "io.tidelog.connect.files.FilesSinkTask"

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
        return check(settings)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._name = format_name(settings["format.class"])
        self._format = FORMATS[self._name]
        self._tables: IcebergTables | None = None

    def read_options(self) -> Mapping[str, str]:
        """Return the options by which a batch waits for enough records."""
        delay = f"{self.settings['rotate.interval.ms']}ms"
        return {"minOffsetsPerTrigger": str(self.settings["flush.size"]), "maxTriggerDelay": delay}

    def put(self, rows: DataFrame, batch: Batch) -> None:
        """Write a batch."""
        from tidelog_connect.connectors.files.partitioners import folders

        spark = rows.sparkSession
        check_installed(spark, self._format)
        if self._format.is_table:
            self._put_tables(rows, batch)
            return
        from tidelog_connect.connectors.files.store import HadoopStore

        store = HadoopStore(spark, self.settings["path"])
        levels = folders(self.settings, rows.schema)

        def stage(folder: str) -> Mapping[str, str]:
            self._write(rows, [level.text for level in levels], store.url(folder))
            prefixes = ["", *(level.prefix for level in levels)]
            paths = sorted(path for path in store.files_below(folder) if not path.rpartition("/")[2].startswith("_"))
            suffix = f"{batch.query[:8]}-{batch.number:010d}"
            return {
                path: place(path, prefixes, f"part-{suffix}-{index:05d}{self._ends(path)}")
                for index, path in enumerate(paths)
            }

        commit_batch(store, batch, uuid.uuid4().hex, stage)

    def _write(self, rows: DataFrame, levels: Sequence[Column], url: str) -> None:
        from pyspark.sql import functions as sql

        columns = [sql.col("topic"), *levels]
        named = {f"{_LEVEL}{index}": column for index, column in enumerate(columns)}
        divided = rows_with_values(rows, self.settings["behavior.on.null.values"]).withColumns(named)
        ordered = divided.sortWithinPartitions(*named, "partition", "offset")
        data = ordered.select(*named, *self._data(rows))
        source = "text" if self._writes_json_text(rows) else self._format.source
        writer = data.write.format(source).options(**self._options())
        writer.option("maxRecordsPerFile", self.settings["flush.size"]).partitionBy(*named).mode("overwrite").save(url)

    def _put_tables(self, rows: DataFrame, batch: Batch) -> None:
        from pyspark.sql import functions as sql

        topics = sorted(row["topic"] for row in rows.select("topic").distinct().collect())
        for topic in topics:
            part = rows_with_values(rows, self.settings["behavior.on.null.values"]).where(sql.col("topic") == topic)
            if self._format.source == ICEBERG:
                self._iceberg(rows.sparkSession).put(part, self._data(rows), topic, batch)
                continue
            writer = part.select(*self._data(rows)).write.format(self._format.source).options(**self._options())
            identity = {"txnAppId": f"{batch.query}/{topic}", "txnVersion": str(batch.number)}
            writer = writer.options(**identity).mode("append")
            fields = self.settings["partition.field.name"]
            writer = writer.partitionBy(*fields) if fields else writer
            writer.save(f"{self.settings['path'].rstrip('/')}/{topic}")

    def _iceberg(self, spark: SparkSession) -> IcebergTables:
        if self._tables is None:
            from tidelog_connect.connectors.files.iceberg import IcebergTables

            self._tables = IcebergTables(spark, self.settings, self._options())
        return self._tables

    def _data(self, rows: DataFrame) -> list[Column]:
        """Return the columns of the files: the fields of values, or the value itself.

        Raises:
            ConfigException: the format cannot have such values.
        """
        from pyspark.sql import functions as sql
        from pyspark.sql import types

        value, kind = sql.col("value"), rows.schema["value"].dataType
        if self._format.source == "text" and not isinstance(kind, types.StructType | types.VariantType):
            return [value.cast("string").alias("value")]
        if self._format.source == "text" or self._writes_json_text(rows):
            return [sql.to_json(value, {"ignoreNullFields": "false"}).alias("value")]
        if isinstance(kind, types.VariantType):
            raise ConfigException(
                f"{self._name} needs values with a schema, such as that of value.converter.schema.content; JsonFormat"
                " takes values without one"
            )
        return value_columns(rows)

    def _writes_json_text(self, rows: DataFrame) -> bool:
        """Tell whether JSON without a schema is written: each value is a line."""
        from pyspark.sql import types

        return self._format.source == "json" and isinstance(rows.schema["value"].dataType, types.VariantType)

    def _ends(self, path: str) -> str:
        """Return the ends of a file's name, such as ``.snappy.parquet``."""
        _, dot, ends = path.rpartition("/")[2].partition(".")
        return (dot + ends).replace(".txt", self._format.extension)

    def _options(self) -> dict[str, str]:
        return {**self._format.options, **options_of(self.settings)}


def place(path: str, prefixes: Sequence[str], name: str) -> str:
    """Return the place of a staged file, whose folders are named by a column and its escaped value.

    Folders of dates, whose prefix does not end with an equals sign, lose their escapes.
    """
    from urllib.parse import unquote

    found = []
    for folder, prefix in zip(path.split("/")[:-1], prefixes, strict=True):
        text = folder.partition("=")[2]
        found.append(prefix + (text if prefix.endswith("=") else unquote(text)))
    return "/".join([*found, name])

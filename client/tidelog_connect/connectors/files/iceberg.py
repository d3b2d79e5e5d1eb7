"""The tables of FilesSink's format Iceberg: one for each topic, with each batch once.

Spark writes Parquet files into a new folder of the table, and `IcebergTable` commits them. Files of an attempt that
does not commit belong to no table; Iceberg's procedure ``remove_orphan_files`` deletes them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql import types

from tidelog_connect.configuration import ConfigException
from tidelog_connect.connectors.connector import Batch
from tidelog_connect.connectors.files.iceberg_schema import (
    PartitionField,
    iceberg_schema,
    missing_required,
    partition_fields,
    with_field_ids,
)
from tidelog_connect.connectors.files.iceberg_table import IcebergCatalog, IcebergTable
from tidelog_connect.connectors.files.sink_settings import FIELD, partitioner_of
from tidelog_connect.connectors.files.store import HadoopStore

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_BY_TIME = {"DailyPartitioner": "day", "HourlyPartitioner": "hour"}
_MARK = "="
"""Precedes each partition in the name of a folder: Spark writes an empty text without it as a null."""
_WRITING = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.parquet.writeLegacyFormat": "false",
}
"""Settings of Spark by which Parquet files are such as Iceberg's specification asks for."""
_OPTIONS = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}


class IcebergTables:
    """Writes batches to tables. For one run of a sink."""

    def __init__(self, spark: SparkSession, settings: Mapping[str, Any], options: Mapping[str, str]) -> None:
        self._spark, self._settings = spark, settings
        self._options = {**_OPTIONS, **options, "maxRecordsPerFile": str(settings["flush.size"])}
        self._catalog = IcebergCatalog(
            spark, settings["path"], settings["iceberg.catalog"], settings["iceberg.namespace"]
        )

    def put(self, rows: DataFrame, columns: Sequence[Column], topic: str, batch: Batch) -> bool:
        """Write the rows of a topic to its table, unless it has the batch. Returns False if it has.

        Raises:
            ConfigException: the table cannot have the rows.
            RetriableError: the batch may or may not be committed; put it again.
        """
        kind = rows.select(*columns).schema
        wanted = iceberg_schema(kind)
        table = self._catalog.table(topic, wanted, self._partitions())
        if table.has(batch):
            return False
        table.evolve(wanted)
        missing = missing_required(kind, table.schema["fields"])
        if missing:
            raise ConfigException(f"The table of the topic {topic} requires {', '.join(missing)}, which records lack")
        folder = table.folder(f"{batch.query[:8]}-{batch.number:010d}-{uuid.uuid4().hex[:8]}")
        fields = partition_fields(table.spec, table.schema)
        self._write(rows, columns, table, fields, folder)
        paths = HadoopStore(rows.sparkSession, folder).files_below("")
        return table.append(batch, folder, {path: partition_values(path) for path in sorted(paths)})

    def _partitions(self) -> list[tuple[str, str]]:
        """Return the transforms of columns by which a new table is partitioned."""
        partitioner = partitioner_of(self._settings)
        if partitioner in _BY_TIME:
            return [(_BY_TIME[partitioner], self._settings["timestamp.field"])]
        names = self._settings["partition.field.name"] if partitioner == FIELD else ()
        return [("identity", name) for name in names]

    def _write(
        self,
        rows: DataFrame,
        columns: Sequence[Column],
        table: IcebergTable,
        fields: Sequence[PartitionField],
        folder: str,
    ) -> None:
        from pyspark.sql import functions as sql

        kind = rows.select(*columns).schema
        named = dict(zip(kind.names, columns, strict=True))
        levels = {
            level: sql.concat(sql.lit(_MARK), field.text(kind, named))
            for level, field in zip(level_names(fields, kind.names), fields, strict=True)
        }
        divided = rows.withColumns(levels) if levels else rows
        data = divided.sortWithinPartitions(*levels, "partition", "offset").select(*columns, *levels)
        typed = with_field_ids(kind, table.schema["fields"])
        if typed is None:
            table.map_names()
        else:
            data = _typed(data, [*typed.fields, *(types.StructField(level, types.StringType()) for level in levels)])
        writer = data.write.format("parquet").options(**self._options).partitionBy(*levels)
        with _configured(rows.sparkSession, _WRITING):
            writer.save(folder)


def _typed(data: DataFrame, fields: Sequence[types.StructField]) -> DataFrame:
    """Return rows whose columns, and the fields in them, have the metadata of a type."""
    from pyspark.sql import functions as sql

    # DataFrame.to gives metadata to fields of structs, but not to columns.
    columns = [sql.col(f"`{each.name}`").alias(each.name, metadata=each.metadata) for each in fields]
    return data.to(types.StructType([*fields])).select(*columns)


def level_names(fields: Sequence[PartitionField], columns: Sequence[str]) -> list[str]:
    """Return the names of the levels of folders, which no column of the data has."""
    prefix = "by_"
    while any(each.lower().startswith(prefix) for each in columns):
        prefix += "_"
    return [prefix + each.name.replace(".", "_") for each in fields]


def partition_values(path: str) -> list[str | None]:
    """Return the partition of a file, by the folders of its path."""
    found = [unquote(folder.partition("=")[2]) for folder in path.split("/")[:-1]]
    return [each.removeprefix(_MARK) if each.startswith(_MARK) else None for each in found]


@contextmanager
def _configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session within a with statement. A streaming query has a session of its own."""
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, text in settings.items():
        spark.conf.set(key, text)
    try:
        yield
    finally:
        for key, earlier in before.items():
            if earlier is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, earlier)

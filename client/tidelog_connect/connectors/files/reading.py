"""`FileReader`: the rows of files, without those that cannot be parsed where they are tolerated."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql
from pyspark.sql import types

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

logger = logging.getLogger(__name__)

_BAD = "_tidelog_bad"
_TEXT = "_tidelog_text"
"""The column of a line that cannot be parsed."""
_SHOWN = 200
_UNREADABLE = ("FAILED_READ_FILE", "UNABLE_TO_INFER_SCHEMA", "CSV header does not conform")
"""Errors of a file. Others, such as the loss of an executor, are no reason to skip files."""


class FileReader:
    """Reads files with a data source of Spark. ``schema`` is DDL, or empty."""

    def __init__(self, spark: SparkSession, source: str, options: Mapping[str, str], schema: str) -> None:
        self._spark, self._source, self._options, self._schema = spark, source, options, schema

    def rows(self, paths: Sequence[str], *, skips_bad: bool) -> DataFrame:
        """Return the rows of files as the column ``value``.

        A line that is not of the format fails the query of the rows, with an error that names its file. With
        ``skips_bad``, such lines and unreadable files are left out, and logged; then the files are read twice.

        Raises:
            PySparkException: the schema of the files cannot be found.
        """
        if not skips_bad:
            return self._failing(self._parsed(paths))
        good = self._readable(paths)
        if not good:
            return self._spark.range(0).select(sql.lit(None).cast("string").alias("value"))
        return self._parsed(good).where(~sql.col(_BAD)).select("value")

    def _parsed(self, paths: Sequence[str]) -> DataFrame:
        """Return the columns value, whether the row is bad, its text, and its file."""
        if self._source == "text" or (self._source == "json" and not self._schema):
            line = self._load("text", paths).where(sql.length("value") > 0 if self._source == "json" else sql.lit(True))
            value: Column = sql.try_parse_json("value") if self._source == "json" else sql.col("value")
            return line.select(value.alias("value"), value.isNull().alias(_BAD), sql.col("value").alias(_TEXT), _file())
        if self._source in ("json", "csv"):
            schema = self._declared(paths).add(types.StructField(_TEXT, types.StringType()))
            frame = self._load(self._source, paths, schema, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _TEXT})
            fields = [sql.col(f"`{name}`") for name in schema.names if name != _TEXT]
            value = sql.struct(*fields)
            return frame.select(value.alias("value"), sql.col(_TEXT).isNotNull().alias(_BAD), _TEXT, _file())
        frame = self._load(self._source, paths, self._schema or None)
        none = sql.lit(None).cast("string").alias(_TEXT)
        return frame.select(sql.struct("*").alias("value"), sql.lit(False).alias(_BAD), none, _file())

    def _declared(self, paths: Sequence[str]) -> types.StructType:
        """Return the given schema, or the columns of the first CSV file's header, all of them text."""
        if self._schema:
            found = types.DataType.fromDDL(self._schema)
            assert isinstance(found, types.StructType)
            return found
        header = self._load("csv", paths[:1], None, {"inferSchema": "false"}).schema
        return types.StructType(list(header.fields))

    def _load(
        self,
        source: str,
        paths: Sequence[str],
        schema: types.StructType | str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> DataFrame:
        reader = self._spark.read.format(source).options(**{**self._options, **(options or {})})
        # Names of files have brackets and stars, too. A header that is not that of the schema is an error.
        reader = reader.option("__globPaths__", "false").option("enforceSchema", "false")
        return (reader if schema is None else reader.schema(schema)).load([*paths])

    def _failing(self, rows: DataFrame) -> DataFrame:
        line = sql.substring(_TEXT, 1, _SHOWN)
        message = sql.concat(sql.lit("A line of "), sql.col("_tidelog_file"), sql.lit(" cannot be parsed: "), line)
        fails = sql.when(sql.col(_BAD), sql.raise_error(message).cast("boolean")).otherwise(True)
        return rows.where(fails).select("value")

    def _readable(self, paths: Sequence[str]) -> list[str]:
        """Return the files that can be read to their ends, and log the others, and the numbers of bad lines."""
        try:
            # The JSON makes Spark decode all fields.
            size = sql.max(sql.length(sql.to_json(sql.struct("value"))))
            rows = self._parsed(paths).groupBy("_tidelog_file").agg(sql.count_if(_BAD).alias("bad"), size)
            for row in rows.collect():
                if row["bad"]:
                    logger.warning("%d lines of %s cannot be parsed, and are skipped", row["bad"], row[0])
        except (PySparkException, Py4JJavaError) as error:
            if not any(each in str(error) for each in _UNREADABLE):
                raise
            if len(paths) == 1:
                logger.warning("%s cannot be read, and is skipped: %.500s", paths[0], error)
                return []
            middle = len(paths) // 2
            return self._readable(paths[:middle]) + self._readable(paths[middle:])
        return list(paths)


def _file() -> Column:
    return sql.input_file_name().alias("_tidelog_file")

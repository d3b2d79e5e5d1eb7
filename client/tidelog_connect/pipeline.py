"""`Pipeline`: the converters and transforms of one connector, between its rows and those of topics."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql import types as spark

from tidelog_connect.converters import Converter, NamedConverter, decoded_records, encoded_records
from tidelog_connect.converters.json import JsonConverter
from tidelog_connect.records import FAILURE_TYPE, HEADERS_TYPE, Records
from tidelog_connect.schemas import ConnectSchema, connect_schema_of_spark, spark_type
from tidelog_connect.transforms.chain import TransformChain

_OPTIONAL = {"partition": "INT", "headers": HEADERS_TYPE}


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The steps of a connector's records. No step runs a job, but for `of_batch`."""

    key: NamedConverter
    value: NamedConverter
    transforms: TransformChain

    @property
    def needs_batch(self) -> bool:
        """True if `of_batch` reads rows."""
        return any(
            isinstance(each, JsonConverter) and each.in_records and each.schema is None
            for _, each in (self.key, self.value)
        )

    def of_batch(self, rows: DataFrame) -> Pipeline:
        """Return the pipeline for the rows of one batch of topics, with the schemas that its records have.

        Raises:
            ConfigException: the records have too many schemas.
        """
        return Pipeline(_of_batch(self.key, rows, "key"), _of_batch(self.value, rows, "value"), self.transforms)

    def from_topics(self, rows: DataFrame) -> Records:
        """Return the records that a sink gets of the rows of topics."""
        return self.transforms(decoded_records(rows, self.key, self.value))

    def to_topics(self, records: Records) -> Records:
        """Return the records of a source with the bytes that topics get.

        Raises:
            ConfigException: a transform or converter cannot process data of their schemas.
        """
        return encoded_records(self.transforms(records), self.key, self.value)


def _of_batch(named: NamedConverter, rows: DataFrame, side: str) -> NamedConverter:
    class_name, converter = named
    found: Converter = converter.of_batch(rows, side) if isinstance(converter, JsonConverter) else converter
    return class_name, found


def source_records(rows: DataFrame, key_schema: ConnectSchema | None, value_schema: ConnectSchema | None) -> Records:
    """Return the records of a source's rows. A schema that is None follows from the type of its column.

    Raises:
        DataException: a column has a type that Connect lacks.
    """
    columns = {name: _or_null(rows, name, kind) for name, kind in _OPTIONAL.items()}
    columns["headers"] = sql.coalesce(columns["headers"], sql.array()).cast(HEADERS_TYPE)
    columns["timestamp"] = _millis(rows)
    columns["offset"] = sql.lit(None).cast("bigint")
    columns["failure"] = sql.lit(None).cast(FAILURE_TYPE)
    schemas = []
    for side, given in (("key", key_schema), ("value", value_schema)):
        schema = given or _schema_of(rows, side)
        kind = spark.VariantType() if schema is None else spark_type(schema)
        columns[side] = _or_null(rows, side, kind)
        schemas.append(schema)
    found = rows.select("topic", *[column.alias(name) for name, column in columns.items()])
    return Records(found, schemas[0], schemas[1], is_sink=False)


def _schema_of(rows: DataFrame, side: str) -> ConnectSchema | None:
    """Return the schema of a column; None for VARIANT, and for keys or values that the source does not have."""
    if side not in rows.columns or isinstance(rows.schema[side].dataType, (spark.VariantType, spark.NullType)):
        return None
    return connect_schema_of_spark(rows.schema[side].dataType, rows.schema[side].nullable)


def _or_null(rows: DataFrame, name: str, kind: str | spark.DataType) -> Column:
    return (sql.col(name) if name in rows.columns else sql.lit(None)).cast(kind)


def _millis(rows: DataFrame) -> Column:
    if "timestamp" in rows.columns and not isinstance(rows.schema["timestamp"].dataType, spark.NumericType):
        return sql.unix_millis(sql.col("timestamp").cast("timestamp"))
    return _or_null(rows, "timestamp", "bigint")

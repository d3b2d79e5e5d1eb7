"""Schemas and partitions of Iceberg's tables, in the JSON of Iceberg's specification, for columns of Spark (pure).

Parquet files name their columns by the ids that these have in the table, so that a column can be renamed or dropped
without a change of files. Spark writes ids of a struct's fields, but not of elements of arrays and maps; a file must
have all ids or none, and without ids, columns are found by the table's name mapping.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, types
from pyspark.sql import functions as sql

from tidelog_connect.configuration import ConfigException

_FIELD_ID = "parquet.field.id"
"""The key of a column's metadata that Spark writes as the id of a Parquet column."""
_SCALARS: Mapping[type[types.DataType], str] = {
    types.BooleanType: "boolean",
    types.ByteType: "int",
    types.ShortType: "int",
    types.IntegerType: "int",
    types.LongType: "long",
    types.FloatType: "float",
    types.DoubleType: "double",
    types.StringType: "string",
    types.BinaryType: "binary",
    types.DateType: "date",
    types.TimestampType: "timestamptz",
    types.TimestampNTZType: "timestamp",
}
_S_PER_DAY = 86_400
_S_PER_HOUR = 3_600
_IDENTITY = "identity"
_OF_TIMES = ("year", "month", "day", "hour")


def iceberg_schema(kind: types.StructType) -> dict[str, Any]:
    """Return the schema of a table for columns of Spark. All columns are optional, so that topics can change.

    Raises:
        ConfigException: Iceberg lacks the type of a column.
    """
    ids = itertools.count(1)
    return {"type": "struct", "schema-id": 0, "fields": _fields(kind, ids)}


def with_field_ids(kind: types.StructType, fields: Sequence[Mapping[str, Any]]) -> types.StructType | None:
    """Return a type with the ids of a table's fields; None if it has arrays or maps, whose elements get no ids."""
    known = {each["name"]: each for each in fields}
    found = []
    for field in kind.fields:
        inner: types.DataType | None = field.dataType
        if isinstance(field.dataType, types.ArrayType | types.MapType):
            return None
        if isinstance(field.dataType, types.StructType):
            inner = with_field_ids(field.dataType, known[field.name]["type"]["fields"])
        if inner is None:
            return None
        found.append(types.StructField(field.name, inner, field.nullable, {_FIELD_ID: known[field.name]["id"]}))
    return types.StructType(found)


def missing_required(kind: types.StructType, fields: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of columns that a table requires and that rows lack."""
    return [each["name"] for each in fields if each["required"] and each["name"] not in kind.names]


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field of a table's partitioning: its name, the path of the column, and the transform of its values."""

    name: str
    source: str
    transform: str

    def text(self, kind: types.StructType, columns: Mapping[str, Column]) -> Column:
        """Return the partition of a row, with columns of a type, as a text that Iceberg reads. Null is null.

        Raises:
            ConfigException: rows cannot be divided by this transform.
        """
        found = _find(kind, columns, self.source)
        if self.transform == "void" or found is None:
            return sql.lit(None).cast("string")
        column, of_column = found
        is_time = isinstance(of_column, types.TimestampType)
        if self.transform == _IDENTITY and not is_time:
            return column.cast("string")
        if self.transform in _OF_TIMES and (is_time or isinstance(of_column, types.DateType)):
            return _part_of_time(self.transform, column, is_time=is_time).cast("string")
        raise ConfigException(
            f"The table is partitioned by {self.transform} of {self.source}, of type {of_column.simpleString()}: the"
            f" sink divides rows by {_IDENTITY} of columns that are no timestamps, and by {', '.join(_OF_TIMES)}"
        )


def partition_fields(spec: Mapping[str, Any], schema: Mapping[str, Any]) -> list[PartitionField]:
    """Return the fields of a table's partitioning.

    Raises:
        ConfigException: a field has several columns.
    """
    paths = dict(_paths(schema["fields"], ""))
    found = []
    for each in spec["fields"]:
        if "source-id" not in each:
            raise ConfigException(f"The table is partitioned by {each['transform']} of several columns")
        found.append(PartitionField(each["name"], paths.get(each["source-id"], ""), each["transform"]))
    return found


def _fields(kind: types.StructType, ids: Iterator[int]) -> list[dict[str, Any]]:
    found = [{"id": next(ids), "name": each.name, "required": False} for each in kind.fields]
    return [
        {**each, "type": _type(field.dataType, field.name, ids)} for each, field in zip(found, kind.fields, strict=True)
    ]


def _type(kind: types.DataType, name: str, ids: Iterator[int]) -> Any:
    if isinstance(kind, types.StructType):
        return {"type": "struct", "fields": _fields(kind, ids)}
    if isinstance(kind, types.ArrayType):
        element = {"element-id": next(ids), "element-required": False}
        return {"type": "list", **element, "element": _type(kind.elementType, name, ids)}
    if isinstance(kind, types.MapType):
        inner = {"key-id": next(ids), "value-id": next(ids), "value-required": False}
        key, value = _type(kind.keyType, name, ids), _type(kind.valueType, name, ids)
        return {"type": "map", **inner, "key": key, "value": value}
    if isinstance(kind, types.DecimalType):
        return f"decimal({kind.precision}, {kind.scale})"
    if type(kind) in _SCALARS:
        return _SCALARS[type(kind)]
    raise ConfigException(f"The field {name} is of type {kind.simpleString()}, which Iceberg's tables do not have")


def _paths(fields: Sequence[Mapping[str, Any]], prefix: str) -> Iterator[tuple[int, str]]:
    for each in fields:
        path = prefix + each["name"]
        yield each["id"], path
        if isinstance(each["type"], Mapping) and each["type"]["type"] == "struct":
            yield from _paths(each["type"]["fields"], f"{path}.")


def _find(kind: types.StructType, columns: Mapping[str, Column], path: str) -> tuple[Column, types.DataType] | None:
    """Return the column of a path and its type; None if rows lack it."""
    first, *rest = path.split(".")
    if first not in kind.names:
        return None
    column, found = columns[first], kind[first].dataType
    for name in rest:
        if not isinstance(found, types.StructType) or name not in found.names:
            return None
        column, found = column.getField(name), found[name].dataType
    return column, found


def _part_of_time(transform: str, column: Column, *, is_time: bool) -> Column:
    """Return the number of a year, month or hour since 1970 in UTC, or the date."""
    seconds = sql.unix_seconds(column)
    if transform == "hour":
        return sql.floor(seconds / _S_PER_HOUR)
    date = sql.date_from_unix_date(sql.floor(seconds / _S_PER_DAY).cast("int")) if is_time else column
    years = sql.year(date) - 1970
    if transform == "year":
        return years
    return years * 12 + sql.month(date) - 1 if transform == "month" else date

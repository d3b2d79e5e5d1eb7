"""Schemas and partitions of Iceberg's tables for Spark's columns, without Spark and Iceberg."""

from __future__ import annotations

import pytest
from pyspark.sql import types

from tidelog_connect.configuration import ConfigException
from tidelog_connect.connectors.files.iceberg import level_names, partition_values
from tidelog_connect.connectors.files.iceberg_schema import (
    PartitionField,
    iceberg_schema,
    missing_required,
    partition_fields,
    with_field_ids,
)

INT, LONG, TEXT, SHORT = types.IntegerType(), types.LongType(), types.StringType(), types.ShortType()


def struct(**fields: types.DataType) -> types.StructType:
    return types.StructType([types.StructField(name, kind) for name, kind in fields.items()])


ROW = struct(id=LONG, sum=types.DecimalType(38, 2), at=types.TimestampType(), who=struct(name=TEXT, age=SHORT))


def test_schema_has_a_new_id_for_every_part_and_no_required_column() -> None:
    fields = iceberg_schema(struct(a=types.MapType(TEXT, types.ArrayType(INT)), b=struct(c=types.DateType())))["fields"]
    assert fields[0]["type"] == {
        "type": "map",
        "key-id": 3,
        "key": "string",
        "value-id": 4,
        "value-required": False,
        "value": {"type": "list", "element-id": 5, "element-required": False, "element": "int"},
    }
    assert fields[1] == {
        "id": 2,
        "name": "b",
        "required": False,
        "type": {"type": "struct", "fields": [{"id": 6, "name": "c", "required": False, "type": "date"}]},
    }
    assert [each["type"] for each in iceberg_schema(ROW)["fields"][:3]] == ["long", "decimal(38, 2)", "timestamptz"]


def test_type_without_a_place_in_iceberg_is_refused() -> None:
    with pytest.raises(ConfigException, match="The field v is of type variant"):
        iceberg_schema(struct(v=types.VariantType()))


def test_columns_get_the_ids_of_the_tables_fields_by_their_names() -> None:
    table = iceberg_schema(ROW)["fields"]
    found = with_field_ids(struct(who=struct(age=SHORT), id=LONG), table)
    assert found is not None
    assert [each.metadata for each in found] == [{"parquet.field.id": 4}, {"parquet.field.id": 1}]
    who = found["who"].dataType
    assert isinstance(who, types.StructType)
    [age] = who.fields
    assert age.metadata == {"parquet.field.id": 6}


def test_columns_have_no_ids_if_a_part_cannot_have_one() -> None:
    for kind in (struct(a=types.ArrayType(INT), b=INT), struct(b=INT, s=struct(m=types.MapType(TEXT, INT)))):
        assert with_field_ids(kind, iceberg_schema(kind)["fields"]) is None


def test_required_columns_that_rows_lack_are_named() -> None:
    table = [{"id": 1, "name": "id", "required": True}, {"id": 2, "name": "x", "required": True}]
    assert missing_required(ROW, table) == ["x"]


def test_partitions_name_the_paths_of_their_columns() -> None:
    spec = {
        "fields": [
            {"name": "at_day", "transform": "day", "source-id": 3},
            {"name": "who.name", "transform": "identity", "source-id": 5},
            {"name": "gone", "transform": "void", "source-id": 99},
        ]
    }
    assert partition_fields(spec, iceberg_schema(ROW)) == [
        PartitionField("at_day", "at", "day"),
        PartitionField("who.name", "who.name", "identity"),
        PartitionField("gone", "", "void"),
    ]
    with pytest.raises(ConfigException, match="of several columns"):
        partition_fields(
            {"fields": [{"name": "x", "transform": "bucket[4]", "source-ids": [1, 2]}]}, iceberg_schema(ROW)
        )


def test_names_of_folders_differ_from_all_columns() -> None:
    fields = [PartitionField("who.name", "who.name", "identity")]
    assert level_names(fields, ["id"]) == ["by_who_name"]
    assert level_names(fields, ["By_who_name"]) == ["by__who_name"]


def test_partitions_of_a_path_keep_empty_texts_apart_from_nulls() -> None:
    path = "by_a=%3Da%2Fb/by_b=%3D/by_c=__HIVE_DEFAULT_PARTITION__/part-0.parquet"
    assert partition_values(path) == ["a/b", "", None]
    assert partition_values("part-0.parquet") == []

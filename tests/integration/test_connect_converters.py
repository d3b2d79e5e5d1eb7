"""Converters and conditional transforms in Spark: bytes of Kafka's serializers, logical types, and failed records."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from connect_cases import random_records, step
from connect_records import outcomes
from pyspark.sql import functions as sql

from tidelog_connect.converters import create_converter
from tidelog_connect.schemas import schema_from_json, spark_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS: Mapping[str, tuple[str, Any, bytes]] = {
    "ShortConverter": ("int16", -2, struct.pack(">h", -2)),
    "IntegerConverter": ("int32", -(2**31), struct.pack(">i", -(2**31))),
    "LongConverter": ("int64", -(2**63), struct.pack(">q", -(2**63))),
    "FloatConverter": ("float", -1.5, struct.pack(">f", -1.5)),
    "DoubleConverter": ("double", 1e300, struct.pack(">d", 1e300)),
    "BooleanConverter": ("boolean", True, b"\x01"),
    "StringConverter": ("string", "ünï", "ünï".encode()),
    "ByteArrayConverter": ("bytes", b"\x00\xff", b"\x00\xff"),
}
_LOGICAL = "org.apache.kafka.connect.data."
PRICES = {
    "type": "struct",
    "optional": False,
    "fields": [
        {"type": "bytes", "optional": False, "name": f"{_LOGICAL}Decimal", "version": 1, "field": "price",
         "parameters": {"scale": "2"}},
        {"type": "int64", "optional": True, "name": f"{_LOGICAL}Timestamp", "version": 1, "field": "at"},
        {"type": "int32", "optional": True, "name": f"{_LOGICAL}Date", "version": 1, "field": "day"},
    ],
}  # fmt: skip


def test_scalars_have_the_bytes_of_kafkas_serializers(spark: SparkSession) -> None:
    columns = []
    for name, (kind, value, _) in NUMBERS.items():
        _, converter = create_converter(name, {})
        schema = schema_from_json({"type": kind})
        literal = sql.lit(bytearray(value) if isinstance(value, bytes) else value).cast(spark_type(schema))
        written = converter.encode(literal, schema).column
        columns += [written.alias(f"{name} bytes"), converter.decode(written).column.alias(name)]
    [row] = spark.range(1).select(*columns).collect()

    assert {name: bytes(row[f"{name} bytes"]) for name in NUMBERS} == {name: row[2] for name, row in NUMBERS.items()}
    assert {name: row[name] for name in NUMBERS} == {name: row[1] for name, row in NUMBERS.items()}


def test_json_with_a_schema_reads_and_writes_logical_types_and_marks_what_it_cannot_read(spark: SparkSession) -> None:
    def envelope(payload: object, schema: object = PRICES) -> str:
        return json.dumps({"schema": schema, "payload": payload})

    texts = [
        envelope({"price": "BNI=", "at": 1600000000123, "day": 18000}),
        envelope({"price": "/w==", "at": None, "day": None}),
        envelope({"price": "AIA=", "at": None, "day": None}),
        envelope({"price": None, "at": 1, "day": 1}),
        envelope({"price": "AQIDBAUGBwgJ"}),
        envelope(7, {"type": "int32"}),
        '{"payload": 1}',
        "{",
    ]
    _, converter = create_converter("JsonConverter", {})
    reader = converter.with_schemas([json.dumps(PRICES)])  # type: ignore[attr-defined]
    read = reader.decode(sql.col("text").cast("binary"))
    problem = sql.coalesce(*[sql.when(failure.condition, failure.message) for failure in read.failures])
    written = reader.encode(read.column, read.schema).column
    frame = spark.createDataFrame([(text,) for text in texts], "text STRING")
    rows = frame.select(
        problem.alias("problem"),
        sql.when(problem.isNull(), read.column).alias("read"),
        written.cast("string").alias("text"),
    ).collect()

    assert [row["read"]["price"] for row in rows[:3]] == [Decimal("12.34"), Decimal("-0.01"), Decimal("1.28")]
    assert [json.loads(row["text"]) for row in rows[:3]] == [json.loads(text) for text in texts[:3]]
    starts = [
        "Invalid null value for required BYTES field",
        "Decimals of more than 64 bits",
        "The schema of the record does not fit those of the other records",
        'JsonConverter with schemas.enable requires "schema" and "payload"',
        "Converting byte[] to Kafka Connect data failed due to serialization error",
    ]
    assert all(row["problem"].startswith(start) for row, start in zip(rows[3:], starts, strict=True))
    assert [row["problem"] for row in rows[:3]] == [None] * 3


def _case(value: Any, predicate: str, *, negate: bool, transform: Mapping[str, Any]) -> dict[str, Any]:
    numbers = random.Random(3)
    settings = {**transform["settings"], "predicate": "p", "negate": str(negate).lower()}
    return {
        "steps": [{"class": transform["class"], "settings": settings}],
        "predicates": {"predicates": "p", "predicates.p.type": predicate},
        "records": random_records(numbers, 2, lambda _: value),
    }


def test_transform_with_a_predicate_applies_to_some_records(spark: SparkSession) -> None:
    insert = step("InsertField$Value", static__field="s", static__value="v")
    cases = [
        _case({"payload": {"a": 1}}, "RecordIsTombstone", negate=True, transform=insert),
        _case({"payload": {"a": 1}}, "RecordIsTombstone", negate=False, transform=insert),
        _case({"payload": None}, "RecordIsTombstone", negate=True, transform=step("MaskField$Value", fields="a")),
    ]
    values = [json.loads(found[0]["value"]) for found in outcomes(spark, cases)]

    assert values == [{"a": 1, "s": "v"}, {"a": 1}, None]


def test_transform_with_a_predicate_must_not_give_some_records_another_schema(spark: SparkSession) -> None:
    struct_value = {"schema": PRICES, "payload": {"price": "BNI=", "at": None, "day": None}}
    insert = step("InsertField$Value", static__field="s", static__value="v")
    good = _case(struct_value, "RecordIsTombstone", negate=True, transform=insert)
    wrong = _case(struct_value, "HasHeaderKey", negate=False, transform=insert)
    wrong["predicates"]["predicates.p.name"] = "h0"

    found = outcomes(spark, [good, wrong])

    assert json.loads(found[0][0]["value"])["payload"]["s"] == "v"
    assert found[1][0]["exception"] == "ConfigException"
    assert "another schema" in found[1][0]["message"]

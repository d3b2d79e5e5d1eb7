"""Formats in a session: JSON, records that name their schema by an id, and packages that are missing."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

import tidelog.spark
from tidelog.spark import Json, Registered, schema_id
from tidelog_foundation.errors import ConfigError

pytestmark = pytest.mark.slow

SCHEMA = "carrier STRING, delay INT"


def values_of(spark: SparkSession, *values: bytes | None) -> DataFrame:
    """Return rows of bytes that the driver evaluates by itself, without tasks."""
    literals = ("NULL" if value is None else f"X'{value.hex()}'" for value in values)
    return spark.sql(f"SELECT * FROM VALUES {', '.join(f'({literal})' for literal in literals)} AS t(value)")


def test_json_is_decoded_and_encoded_and_null_stays_null(spark: SparkSession) -> None:
    records = values_of(spark, b'{"carrier":"UA","delay":4}', b'{"delay":"late"}', b"{", None)
    json = Json(SCHEMA)
    rows = records.select(json.decode("value").alias("flight")).select("flight", json.encode("flight")).collect()
    assert [tuple(row) for row in rows] == [
        (("UA", 4), b'{"carrier":"UA","delay":4}'),
        ((None, None), b"{}"),
        ((None, None), b"{}"),
        (None, None),
    ]


def test_malformed_json_ends_a_query_that_fails_fast(spark: SparkSession) -> None:
    records = values_of(spark, b"{")
    with pytest.raises(Exception, match="MALFORMED_RECORD_IN_PARSING"):
        records.select(Json(SCHEMA, mode="FAILFAST").decode("value")).collect()


def test_records_of_a_registry_gain_and_lose_their_header(spark: SparkSession) -> None:
    text, header = b'{"carrier":"UA","delay":4}', b"\0" + (70_000).to_bytes(4, "big")
    registered = Registered(Json(SCHEMA), write_id=70_000)
    records = values_of(spark, text, None).select(registered.encode(Json(SCHEMA).decode("value")).alias("value"))
    rows = records.select("value", schema_id("value"), registered.decode("value")).collect()
    assert [tuple(row) for row in rows] == [(header + text, 70_000, ("UA", 4)), (None, None, None)]


def test_record_without_a_header_is_null_or_an_error_that_shows_its_start(spark: SparkSession) -> None:
    records = values_of(spark, b'{"carrier":"UA"}', b"\0\0\0\1")
    decoded = records.select(Registered(Json(SCHEMA)).decode("value"), schema_id("value"))
    assert [tuple(row) for row in decoded.collect()] == [(None, None), (None, None)]
    with pytest.raises(Exception, match="The record begins with 0x7B22636172; known schema ids: any"):
        values_of(spark, b'{"carrier"').select(Registered(Json(SCHEMA, mode="FAILFAST")).decode("value")).collect()


@pytest.mark.parametrize("name", ["avro", "protobuf"])
def test_session_without_a_package_names_it_and_the_ways_to_load_it(spark: SparkSession, name: str) -> None:
    package = rf"org.apache.spark:spark-{name}_2.13:{spark.version}"
    with pytest.raises(ConfigError, match=rf"lacks spark-{name}.*formats=\['{name}'\].*--packages {package}"):
        tidelog.spark.session(formats=["json", name])
    assert tidelog.spark.session(formats=["json"]) is not None

"""SparkSource and SparkSink on Spark: positions, columns, topics, and a pipeline through a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidelog.testing import FakeCluster
from tidelog_connect.configuration import ConfigException
from tidelog_connect.connectors.connector import Batch, SourceBatch
from tidelog_connect.connectors.offsets import partition_key
from tidelog_connect.connectors.registry import Registry
from tidelog_connect.connectors.spark.sink import SparkSinkConnector
from tidelog_connect.connectors.spark.source import SparkSourceConnector
from tidelog_connect.standalone.document import parse_document
from tidelog_connect.standalone.plan import pipeline_settings, plan_pipeline
from tidelog_connect.standalone.process import PipelineProcess

pytestmark = pytest.mark.compat


class Reader:
    """A source and the position behind what it has returned."""

    def __init__(self, spark: SparkSession, **settings: str) -> None:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        config = {"name": "s", "connector.class": "SparkSource", "topic": "t", "poll.interval.ms": "1", **named}
        self.spark, self.parsed = spark, Registry.installed("1").settings(config)
        self.source, self.position = SparkSourceConnector(self.parsed), dict[str, Any]()

    def read(self) -> list[Any] | None:
        """Return the ids of the next batch, and move behind it; a new run begins each time."""
        self.source = SparkSourceConnector(self.parsed)
        batch: SourceBatch | None = self.source.poll(self.spark, self.position)
        if batch is None:
            return None
        found = sorted(row["value"]["id"] for row in batch.rows.collect())
        self.position |= {partition_key(each.partition): each.offset for each in batch.offsets}
        return found


@pytest.mark.parametrize(
    "column", ["id", "CAST(id AS STRING)", "timestamp_seconds(id)", "date_add(DATE'2026-01-01', CAST(id AS INT))"]
)
def test_rows_with_new_values_are_read_once_in_batches(tmp_path: Path, spark: SparkSession, column: str) -> None:
    def write(start: int, end: int) -> None:
        rows = spark.range(start, end).selectExpr("id", f"{column} AS grows")
        rows.unionByName(spark.range(1).selectExpr("CAST(NULL AS BIGINT) AS id", f"{column} AS grows").where("id = -1"))
        rows.write.mode("append").parquet(str(tmp_path / "in"))

    write(0, 5)
    read = Reader(
        spark,
        format="parquet",
        path=str(tmp_path / "in"),
        mode="incrementing",
        incrementing_column_name="grows",
        batch_max_rows="3",
    )
    assert [read.read() for _ in range(3)] == [[0, 1, 2], [3, 4], None]
    write(5, 7)
    assert [read.read() for _ in range(2)] == [[5, 6], None]


def test_rows_with_equal_values_are_in_one_batch_and_those_without_in_none(spark: SparkSession) -> None:
    rows = [(0, 1), (1, 1), (2, 1), (3, 2), (4, None)]
    spark.createDataFrame(rows, "id BIGINT, n INT").createOrReplaceTempView("grown")
    read = Reader(spark, table="grown", mode="incrementing", incrementing_column_name="n", batch_max_rows="2")
    assert [read.read() for _ in range(3)] == [[0, 1, 2], [3], None]


def test_bulk_reads_all_again_after_its_interval(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "in.json").write_text('{"id": 1}\n{"id": 2}\n')
    read = Reader(spark, format="json", path=str(tmp_path / "in.json"), schema="id BIGINT", poll_interval_ms="100000")
    assert [read.read(), read.read()] == [[1, 2], [1, 2]]
    assert read.position == {}
    assert read.source.poll(spark, {}) is None


@pytest.mark.parametrize(
    ("column", "position", "text"),
    [
        ("nothing", {}, "There is no column nothing, but id, x"),
        ("x", {}, "The column x is of type double: a column that grows is"),
        ("id", {"incrementing": "z"}, "The offset is 'z', but the column id is of type bigint: reset the offset"),
    ],
)
def test_columns_that_do_not_grow_are_errors(
    spark: SparkSession, column: str, position: dict[str, object], text: str
) -> None:
    spark.range(1).selectExpr("id", "CAST(id AS DOUBLE) AS x").createOrReplaceTempView("odd")
    read = Reader(spark, table="odd", mode="incrementing", incrementing_column_name=column)
    if position:
        read.position = {partition_key({"table": "odd"}): position}
    with pytest.raises(ConfigException, match=text):
        read.read()


def test_unknown_format_is_an_error_that_names_it(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="nowhere"):
        Reader(spark, format="nowhere").read()


def sink(**settings: str) -> SparkSinkConnector:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    config = {"name": "s", "connector.class": "SparkSink", "topics": "a,b", **named}
    return SparkSinkConnector(Registry.installed("1").settings(config))


def test_topics_columns_and_missing_values(tmp_path: Path, spark: SparkSession) -> None:
    rows = spark.range(4).selectExpr(
        "IF(id < 2, 'a', 'b') AS topic",
        "0 AS partition",
        "id AS offset",
        "timestamp_seconds(id) AS timestamp",
        "CAST(id AS STRING) AS key",
        "IF(id = 3, NULL, named_struct('id', id, 'day', id % 2)) AS value",
        "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
    )
    path = str(tmp_path / "${topic}")
    ignoring = sink(format="json", path=path, partition_by="day", behavior_on_null_values="ignore")
    ignoring.put(rows, Batch("q", 0))
    divided = spark.read.json(str(tmp_path / "a"))
    assert sorted((row["id"], row["day"]) for row in divided.collect()) == [(0, 0), (1, 1)]
    assert [row["id"] for row in spark.read.json(str(tmp_path / "b")).collect()] == [2]
    with pytest.raises(Exception, match="The record b-0-3 has no value, and behavior"):
        sink(format="json", path=path).put(rows, Batch("q", 0))
    sink(format="parquet", path=str(tmp_path / "all"), columns="topic,offset,key").put(rows, Batch("q", 0))
    found = spark.read.parquet(str(tmp_path / "all"))
    assert found.columns == ["topic", "offset", "key"]
    assert found.count() == 4


def test_table_goes_through_a_topic_to_files(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "in.json").write_text(
        "".join(json.dumps({"id": number, "name": f"n{number}"}) + "\n" for number in range(5))
    )
    with FakeCluster() as cluster:
        cluster.create_topic("rows")
        document = parse_document(
            f"""
name: rows
settings:
  bootstrap.servers: {cluster.bootstrap_servers}
  checkpoint.location: {tmp_path / "checkpoints"}
connectors:
  rows-in:
    connector.class: SparkSource
    topic: rows
    format: json
    path: {tmp_path / "in.json"}
    mode: incrementing
    incrementing.column.name: id
    batch.max.rows: 2
    value.converter: JsonConverter
  rows-out:
    connector.class: SparkSink
    topics: rows
    format: parquet
    path: {tmp_path / "out"}
    value.converter: JsonConverter
"""
        )
        chosen = pipeline_settings(document, {})
        for _ in range(2):
            registry = Registry.installed("1", chosen.converters)
            plan = plan_pipeline(document, chosen, registry)
            assert PipelineProcess(plan, registry, lambda: spark, lambda line: None, once=True).run()
    found = spark.read.parquet(str(tmp_path / "out"))
    assert sorted((row["id"], row["name"]) for row in found.collect()) == [(n, f"n{n}") for n in range(5)]

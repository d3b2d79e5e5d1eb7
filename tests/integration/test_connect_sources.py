"""FilesSource and Datagen on Spark: rows, offsets and files that cannot be read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidelog_connect.connectors.connector import SourceBatch, SourceConnector
from tidelog_connect.connectors.datagen.source import DatagenConnector
from tidelog_connect.connectors.files.source import FilesSourceConnector
from tidelog_connect.connectors.offsets import partition_key
from tidelog_connect.connectors.registry import Registry


def created(kind: type[SourceConnector], **settings: str) -> SourceConnector:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    return kind(Registry.installed("1").settings({"name": "in", "connector.class": kind.class_name, **named}))


def after(position: Mapping[str, Any], batch: SourceBatch) -> dict[str, Any]:
    changed = {partition_key(each.partition): each.offset for each in batch.offsets}
    return {key: offset for key, offset in {**position, **changed}.items() if offset is not None}


def values(batch: SourceBatch | None) -> list[Any]:
    assert batch is not None
    found = batch.rows.selectExpr("to_json(struct(value)) AS json").collect()
    return [json.loads(row["json"])["value"] for row in found]


def test_files_of_a_folder_are_read_once_each(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "a[1].json").write_text('{"id":1,"x":"y"}\n\n{"id":2}\n')
    source = created(FilesSourceConnector, path=str(tmp_path), format_class="JsonFormat", topic="t")
    batch = source.poll(spark, {})
    assert values(batch) == [{"id": 1, "x": "y"}, {"id": 2}]
    assert batch is not None
    position = after({}, batch)
    assert source.poll(spark, position) is None
    (tmp_path / "b.json").write_text('{"id":3}\n')
    assert values(source.poll(spark, position)) == [{"id": 3}]


@pytest.mark.compat
def test_formats_of_files_have_their_fields(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "a.csv").write_text("id,name\n1,x\n")
    (tmp_path / "b.csv").write_text("id,name\n2,y\n")
    common = {"path": str(tmp_path), "topic": "t", "format_class": "CsvFormat"}
    expected = [{"id": "1", "name": "x"}, {"id": "2", "name": "y"}]
    found = values(created(FilesSourceConnector, **common).poll(spark, {}))
    assert sorted(found, key=str) == expected
    typed = created(FilesSourceConnector, **common, schema="id INT, name STRING", input_file_pattern="a.*")
    assert values(typed.poll(spark, {})) == [{"id": 1, "name": "x"}]
    spark.range(3).write.parquet(str(tmp_path / "deep" / "table"))
    parquet = {**common, "format_class": "ParquetFormat", "input_file_pattern": r".*\.parquet"}
    source = created(FilesSourceConnector, **parquet, input_path_walk_recursively="true")
    assert sorted(each["id"] for each in values(source.poll(spark, {}))) == [0, 1, 2]
    text = created(FilesSourceConnector, **{**common, "format_class": "StringFormat"}, input_file_pattern="b.csv")
    assert values(text.poll(spark, {})) == ["id,name", "2,y"]


@pytest.mark.compat
def test_lines_and_files_that_cannot_be_read_fail_or_are_skipped(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "a.json").write_text('{"id":1}\n{"id"\n')
    common = {"path": str(tmp_path), "topic": "t", "format_class": "JsonFormat"}
    for schema in ("", "id INT"):
        failing = created(FilesSourceConnector, **common, schema=schema)
        with pytest.raises(Exception, match=r'A line of .*a\.json cannot be parsed: \{"id"'):
            values(failing.poll(spark, {}))
        tolerant = created(FilesSourceConnector, **common, schema=schema, errors_tolerance="all")
        assert values(tolerant.poll(spark, {})) == [{"id": 1}]
    folder = tmp_path / "parquet"
    spark.range(2).coalesce(1).write.parquet(str(folder))
    (folder / "bad.parquet").write_bytes(b"PAR1 torn")
    (folder / "bad2.parquet").write_bytes(b"")
    torn = {**common, "path": str(folder), "format_class": "ParquetFormat", "input_file_pattern": r".*\.parquet"}
    with pytest.raises(Exception, match=r"bad2?\.parquet"):
        values(created(FilesSourceConnector, **torn).poll(spark, {}))
    batch = created(FilesSourceConnector, **torn, errors_tolerance="all").poll(spark, {})
    assert sorted(each["id"] for each in values(batch)) == [0, 1]
    assert batch is not None
    assert len(batch.offsets) == 3


@pytest.mark.compat
def test_files_are_moved_once_their_batch_is_committed(tmp_path: Path, spark: SparkSession) -> None:
    folder, done = tmp_path / "in", tmp_path / "done"
    folder.mkdir()
    (folder / "a.txt").write_text("1\n")
    settings = {"path": str(folder), "topic": "t", "format_class": "StringFormat"}
    source = created(FilesSourceConnector, **settings, cleanup_policy="MOVE", finished_path=str(done))
    batch = source.poll(spark, {})
    assert values(batch) == ["1"]
    assert batch is not None
    position = after({}, batch)
    assert (folder / "a.txt").exists()
    assert source.poll(spark, position) is None
    assert (done / "a.txt").read_text() == "1\n"
    forgetting = source.poll(spark, position)
    assert forgetting is not None
    assert (values(forgetting), after(position, forgetting)) == ([], {})


@pytest.mark.compat
def test_datagen_repeats_a_batch_for_a_position(spark: SparkSession) -> None:
    settings = {"kafka_topic": "t", "quickstart": "orders", "max_interval": "0", "iterations": "100"}
    source = created(DatagenConnector, **settings)
    batch = source.poll(spark, {})
    assert batch is not None
    assert batch.offsets[0].offset is not None
    start = {partition_key({"task.id": "0"}): {**batch.offsets[0].offset, "current.iteration": 0}}
    again = source.poll(spark, start)
    assert values(batch) == values(again)
    assert [row["key"] for row in batch.rows.select("key").collect()] == list(range(100))
    assert source.poll(spark, after({}, batch)) is None

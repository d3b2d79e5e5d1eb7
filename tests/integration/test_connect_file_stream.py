"""FileStreamSink on Spark: the lines of a batch, from tasks on this machine and on others."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tidelog_connect.connectors import file_stream
from tidelog_connect.connectors.connector import Batch
from tidelog_connect.connectors.file_stream import FileStreamSinkConnector
from tidelog_connect.schemas import ConnectSchema, SchemaType

TEXT = ConnectSchema(SchemaType.STRING, optional=True)


@pytest.mark.parametrize("is_local", [True, False])
def test_batch_is_appended_in_order_and_replaced_when_it_comes_again(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, is_local: bool
) -> None:
    monkeypatch.setattr(file_stream, "_tasks_see_files", lambda _: is_local)
    target = tmp_path / "out.txt"
    connector = FileStreamSinkConnector({"file": str(target)})
    words = ["a", None, "", "line\nfeed", "ü\u2028", '"quoted"']
    few = spark.createDataFrame([(word,) for word in words], "value STRING").coalesce(1)
    many = spark.range(0, 30_000, 1, 3).selectExpr("concat('row ', id) AS value")
    lines = 'a\nnull\n\nline\nfeed\nü\u2028\n"quoted"\n'
    connector.put(few, Batch("q", 0, None, TEXT))
    assert target.read_bytes().decode() == lines
    for _ in range(2):
        connector.put(many, Batch("q", 1, None, TEXT))
        assert target.read_bytes().decode() == lines + "".join(f"row {n}\n" for n in range(30_000))
    connector.put(few.limit(0), Batch("q", 2, None, TEXT))
    assert target.read_bytes().decode() == lines + "".join(f"row {n}\n" for n in range(30_000))
    assert {path.name for path in tmp_path.iterdir()} == {"out.txt", "out.txt.tidelog-batch"}

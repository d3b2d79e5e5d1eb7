"""FilesSink on Spark: formats, folders, repeated batches, and a worker that is killed while it writes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx2
import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame, SparkSession

from tidelog import Producer
from tidelog.testing import FakeCluster
from tidelog.testing.ports import free_ports
from tidelog_connect.configuration import ConfigException
from tidelog_connect.connectors.connector import Batch
from tidelog_connect.connectors.files.sink import FilesSinkConnector
from tidelog_connect.connectors.registry import Registry


def sink(folder: Path, **settings: str) -> FilesSinkConnector:
    config = {"name": "files", "connector.class": "FilesSink", "topics": "orders", "path": str(folder)}
    named = {key.replace("_", "."): value for key, value in settings.items()}
    return FilesSinkConnector(Registry.installed("1").settings({**config, **named}))


def written(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix()
        for path in (folder / "orders").rglob("*")
        if path.is_file() and not path.name.startswith(".")
    )


def ids(frame: DataFrame) -> list[int]:
    return sorted(int(row["id"]) for row in frame.select("id").collect())


def test_repeated_batch_leaves_its_files_once(tmp_path: Path, spark: SparkSession) -> None:
    connector = sink(
        tmp_path, format_class="ParquetFormat", partitioner_class="FieldPartitioner", partition_field_name="country"
    )
    rows = spark.range(0, 10, 1, 2).selectExpr(*_columns())
    connector.put(rows, Batch("0123456789", 0))
    before = written(tmp_path)
    connector.put(rows.repartition(3), Batch("0123456789", 0))
    assert written(tmp_path) == before
    found = spark.read.parquet(str(tmp_path / "orders"))
    assert ids(found) == list(range(10))
    assert {row["country"] for row in found.collect()} == {"a/b", "Zürich", None}


@pytest.mark.compat
@pytest.mark.parametrize(
    ("settings", "form", "folder"),
    [
        ({"format_class": "JsonFormat"}, "json", "partition=0"),
        ({"format_class": "OrcFormat", "option_compression": "zlib"}, "orc", "partition=1"),
        (
            {
                "format_class": "CsvFormat",
                "partitioner_class": "HourlyPartitioner",
                "timestamp_extractor": "Record",
                "timezone": "Europe/Berlin",
            },
            "csv",
            "year=2023/month=11/day=14/hour=23",
        ),
        (
            {
                "format_class": "ParquetFormat",
                "partitioner_class": "TimeBasedPartitioner",
                "path_format": "'day'=YYYY-MM-dd/'from'=HHmm",
                "timestamp_extractor": "RecordField",
                "timestamp_field": "at",
                "partition_duration_ms": "7200000",
                "flush_size": "1",
            },
            "parquet",
            "day=2023-11-14/from=2200",
        ),
    ],
)
def test_formats_and_folders(
    tmp_path: Path, spark: SparkSession, settings: dict[str, str], form: str, folder: str
) -> None:
    rows = spark.range(0, 10, 1, 2).selectExpr(*_columns())
    sink(tmp_path, **settings).put(rows, Batch("0123456789", 0))
    assert ids(spark.read.options(header=True).format(form).load(str(tmp_path / "orders"))) == list(range(10))
    assert any(path.startswith(f"orders/{folder}/part-01234567-0000000000-") for path in written(tmp_path))
    if "flush_size" in settings:
        assert len(written(tmp_path)) == 10


@pytest.mark.compat
def test_records_that_a_format_cannot_have_are_errors(tmp_path: Path, spark: SparkSession) -> None:
    rows = spark.range(0, 2).selectExpr(*_columns())
    with pytest.raises(ConfigException, match=r"no data source delta: add io\.delta"):
        sink(tmp_path, format_class="DeltaFormat").put(rows, Batch("q", 0))
    connector = sink(
        tmp_path, format_class="ParquetFormat", partitioner_class="FieldPartitioner", partition_field_name="county"
    )
    with pytest.raises(ConfigException, match="no field county; they have id, country, at"):
        connector.put(rows, Batch("q", 0))
    variants = rows.selectExpr("* EXCEPT (value)", "parse_json(to_json(value)) AS value")
    with pytest.raises(ConfigException, match="ParquetFormat needs values with a schema"):
        sink(tmp_path, format_class="ParquetFormat").put(variants, Batch("q", 0))
    sink(tmp_path, format_class="JsonFormat").put(variants, Batch("q", 0))
    assert ids(spark.read.json(str(tmp_path / "orders"))) == [0, 1]
    without = rows.selectExpr("* EXCEPT (value)", "CAST(NULL AS STRUCT<id: BIGINT>) AS value")
    with pytest.raises(Exception, match="The record orders-0-0 has no value"):
        sink(tmp_path, format_class="JsonFormat").put(without.where("offset = 0"), Batch("q", 1))
    sink(tmp_path, format_class="JsonFormat", behavior_on_null_values="ignore").put(without, Batch("q", 1))
    assert ids(spark.read.json(str(tmp_path / "orders"))) == [0, 1]


def _columns() -> list[str]:
    return [
        "'orders' AS topic",
        "CAST(id % 2 AS INT) AS partition",
        "id AS offset",
        "timestamp_millis(1700000000000 + id * 1800000) AS timestamp",
        "CAST(NULL AS BINARY) AS key",
        "named_struct('id', id, 'country', element_at(array('a/b', 'Zürich', NULL), CAST(id % 3 + 1 AS INT)),"
        " 'at', timestamp_millis(1700000000000 + id * 1800000)) AS value",
    ]


class Worker:
    """``tidelog connect`` as a process group, which `kill` ends at once, with its Java."""

    def __init__(self, bootstrap_servers: str, folder: Path) -> None:
        self.url = f"http://127.0.0.1:{free_ports(1)[0]}"
        settings = {
            "bootstrap.servers": bootstrap_servers,
            "listeners": self.url,
            "session.timeout.ms": "3000",
            "checkpoint.location": str(folder / "checkpoints"),
            "spark.master": "local[2]",
        }
        overrides = [part for key, value in settings.items() for part in ("--override", f"{key}={value}")]
        command = [sys.executable, "-c", "from tidelog_cli.main import main; main()", "connect", *overrides]
        self.http = httpx2.Client(timeout=30, trust_env=False)
        self.process = subprocess.Popen(command, start_new_session=True)

    def put(self, name: str, config: dict[str, str]) -> None:
        deadline = time.monotonic() + 120
        while True:
            try:
                answer = self.http.put(f"{self.url}/connectors/{name}/config", json=config)
                if answer.status_code == 201:
                    return
            except httpx2.HTTPError:
                pass
            assert self.process.poll() is None, "the worker has ended"
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.http.close()


def _values(folder: Path) -> list[str]:
    """Return the values in all files that readers see. Each of them must be whole."""
    found: list[Any] = []
    for path in written(folder):
        found += pyarrow.parquet.ParquetFile(folder / path).read()["value"].to_pylist()
    return found


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.skipif("TIDELOG_CHAOS_ROUNDS" not in os.environ, reason="make chaos runs it: it takes minutes")
def test_worker_that_is_killed_loses_and_doubles_nothing(tmp_path: Path) -> None:
    target = tmp_path / "files"
    config = {
        "connector.class": "FilesSink",
        "topics": "orders",
        "path": str(target),
        "format.class": "ParquetFormat",
        "flush.size": "1000",
        "rotate.interval.ms": "300",
    }
    done, expected, partial = threading.Event(), 0, []

    def watch() -> None:
        while not done.is_set():
            try:
                seen = _values(target)
                if len(seen) != len(set(seen)):
                    partial.append("a value is doubled")
            except (OSError, pyarrow.ArrowInvalid) as error:
                partial.append(str(error))
            time.sleep(0.05)

    with FakeCluster() as cluster, Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        cluster.create_topic("orders", partitions=3)
        worker = Worker(cluster.bootstrap_servers, tmp_path)
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            worker.put("files", config)
            for _ in range(4):
                before, until = len(written(target)), time.monotonic() + 120
                limit = random.uniform(0.0, 3.0)
                since: float | None = None
                while time.monotonic() < until and (since is None or time.monotonic() < since + limit):
                    producer.produce("orders", value=f"{expected}".encode())
                    producer.flush()
                    expected += 1
                    if since is None and len(written(target)) > before:
                        since = time.monotonic()
                assert since is not None
                worker.kill()
                worker = Worker(cluster.bootstrap_servers, tmp_path)
            until = time.monotonic() + 120
            while len(_values(target)) < expected and time.monotonic() < until:
                time.sleep(0.2)
            time.sleep(1)
        finally:
            done.set()
            watcher.join()
            worker.kill()
    assert partial == []
    assert sorted(map(int, _values(target))) == list(range(expected))

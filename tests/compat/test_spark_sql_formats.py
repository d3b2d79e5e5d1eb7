"""``tidelog sql`` reads and writes Avro, with the package of Spark that a definition needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from compat.jars import Unavailable, spark_format_jar
from quick_jvm import QUICK_JVM

from tidelog.testing import FakeCluster

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400)]

SCHEMA = """{"type": "record", "name": "flight", "fields": [
  {"name": "carrier", "type": "string"}, {"name": "delay", "type": ["null", "int"]}]}"""


def sql(cluster: FakeCluster, folder: Path, conf: str, statements: str) -> subprocess.CompletedProcess[str]:
    (folder / "flight.avsc").write_text(SCHEMA)
    environment = {
        **os.environ,
        "TIDELOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
        "TIDELOG_PROFILE": str(folder / "profile.toml"),
    }
    command = [sys.executable, "-c", "from tidelog_cli.main import main; main()", "sql", "--catalog", str(folder)]
    settings = [*(f"--conf={key}={value}" for key, value in QUICK_JVM.items()), f"--conf={conf}", "--output=csv"]
    return subprocess.run(
        [*command, *settings, statements], env=environment, capture_output=True, text=True, timeout=380, check=False
    )


def create(folder: Path, name: str = "flights", delay: str = "INT") -> str:
    options = f"topic='flights', format='avro', avro.schema='{folder}/flight.avsc', partitions=1"
    return f"CREATE STREAM {name} (carrier STRING, delay {delay}) WITH ({options})"


def test_sql_writes_and_reads_avro_as_its_columns(tmp_path: Path) -> None:
    try:
        jar = spark_format_jar("spark-avro")
    except Unavailable as error:
        pytest.skip(str(error))
    with FakeCluster() as cluster:
        insert = "INSERT INTO flights VALUES ('UA', 4), ('AA', NULL)"
        select = "SELECT carrier, delay, typeof(delay) AS type FROM wide ORDER BY carrier"
        script = f"{create(tmp_path)};{create(tmp_path, 'wide', 'BIGINT')};{insert};{select};INSERT INTO wide SELECT *"
        done = sql(cluster, tmp_path, f"spark.jars={jar}", f"{script} FROM flights")
        assert "Cannot convert SQL field 'delay' to Avro field 'delay' because schema is incompatible" in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stdout == "carrier,delay,type\nAA,,bigint\nUA,4,bigint\n"
        values = sorted(record.value or b"" for record in cluster.records("flights", 0, read_committed=True))
        assert values == [b"\x04AA\x00", b"\x04UA\x02\x08"]


def test_sql_with_a_package_that_cannot_be_downloaded_names_the_way_without_network(tmp_path: Path) -> None:
    with FakeCluster() as cluster:
        package = "spark.jars.packages=org.apache.spark:spark-avro_2.13:0.0.0"
        done = sql(cluster, tmp_path, package, f"{create(tmp_path)};SELECT * FROM flights")
    assert done.returncode == 1
    assert "Spark did not start" in done.stderr
    assert "without network, give the jars of avro by --conf spark.jars=PATHS" in done.stderr

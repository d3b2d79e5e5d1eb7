"""Spark Connect: a client registers the data source, reads, writes and streams through the server's Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from quick_jvm import QUICK_JVM

from tidelog.testing import FakeCluster
from tidelog_foundation.records import RecordBatchBuilder
from tidelog_spark.java import find_java

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300)]

PROGRAM = """
import json, sys, warnings
warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
from pyspark.sql import SparkSession
import tidelog.spark

servers, folder, settings = json.loads(sys.argv[1])
builder = SparkSession.builder.remote("local[2]")
for key, value in settings.items():
    builder = builder.config(key, value)
spark = tidelog.spark.register(builder.getOrCreate())
assert not isinstance(spark, SparkSession), "not a session of Spark Connect"
assert tidelog.spark.session() is spark

def read(reader):
    return reader.format("tidelog").options(**servers).option("subscribe", "t").option("startingOffsets", "earliest")

def write(writer, topic):
    return writer.format("tidelog").options(**servers).option("topic", topic)

filtered = read(spark.read).option("columns", "value,partition,offset").load().where("partition = 1 AND offset >= 15")
values = sorted(row.value.decode() for row in filtered.collect())
write(read(spark.read).load().select("value").write, "batch").mode("append").save()
copies = write(read(spark.readStream).load().select("value").writeStream, "stream")
query = copies.option("checkpointLocation", folder).trigger(availableNow=True).start()
query.awaitTermination()
lag = tidelog.spark.lag(query.lastProgress)
try:
    read(spark.read).option("colums", "value").load().count()
except Exception as error:
    refused = str(error)
print(json.dumps({"values": values, "lag": lag.total, "rows": lag.rows, "refused": refused}))
spark.stop()
"""


def test_session_of_spark_connect_reads_writes_and_streams(tmp_path: Path) -> None:
    pytest.importorskip("grpc_status", reason="Spark Connect needs grpcio-status")
    settings = {**QUICK_JVM, "spark.sql.python.filterPushdown.enabled": "true", "spark.ui.enabled": "false"}
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with FakeCluster(node_config={"transaction.two.phase.commit.enable": "true"}) as cluster:
        for topic, partitions in (("t", 2), ("batch", 1), ("stream", 1)):
            cluster.create_topic(topic, partitions)
        for partition in range(2):
            builder = RecordBatchBuilder()
            builder.extend([str(number).encode() for number in range(20)], None, 1_700_000_000_000)
            cluster.append("t", partition, builder.build())
        argument = json.dumps([cluster.client_settings(), str(tmp_path / "checkpoint"), settings])
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, argument], capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        seen = json.loads(done.stdout.splitlines()[-1])
        assert 'did you mean "columns"?' in seen.pop("refused")
        assert seen == {"values": ["15", "16", "17", "18", "19"], "lag": 0, "rows": 40}
        assert [len(cluster.records(topic, read_committed=True)) for topic in ("batch", "stream")] == [40, 40]

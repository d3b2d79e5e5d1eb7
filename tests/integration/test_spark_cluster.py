"""Spark on several executors: each row once though an executor is killed or a task has a copy, and secured."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from acknowledged import wait_for
from pyspark.sql import SparkSession
from sink_runner import open_ids
from spark_cluster import IS_STANDALONE, SPARK_HOME, SUPPORT, Spark

from tidelog import AdminClient, NewTopic, Producer
from tidelog.testing import FakeCluster, LocalCluster
from tidelog_foundation.records import RecordBatchBuilder
from tidelog_spark.java import find_java

pytestmark = [
    pytest.mark.slow,
    pytest.mark.chaos,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not IS_STANDALONE, reason="needs a cluster of Spark: make spark-cluster starts one"),
]

ROWS = 400
DEADLINE_S = 400
COPY = """
import json, os, signal, sys, time
from pathlib import Path
import pyspark, tidelog.spark
from killing_sink import executor_pid

fault, servers, folder, master, config = sys.argv[1:]
marks = Path(folder)

def disturb(batches):
    context = pyspark.TaskContext.get()
    if context.partitionId() == 0:
        if context.attemptNumber() > 0:
            (marks / "second").touch()
        elif not (marks / "first").exists():
            (marks / "first").touch()
            if fault == "kill":
                os.kill(executor_pid(), signal.SIGKILL)
            deadline = time.monotonic() + 240
            while not (marks / "second").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
    yield from batches

spark = tidelog.spark.session(master=master, config=json.loads(config))
options = {"bootstrap.servers": servers, "subscribe": "t", "startingOffsets": "earliest", "minPartitions": "2"}
if fault == "none":
    rows = spark.read.format("tidelog").options(**options).load()
    print(spark.sparkContext.master, rows.count(), rows.mapInArrow(disturb, rows.schema).count())
else:
    rows = spark.readStream.format("tidelog").options(**options).load().select("key", "value")
    writer = rows.mapInArrow(disturb, rows.schema).writeStream.format("tidelog").options(topic="u")
    writer = writer.option("bootstrap.servers", servers).option("checkpointLocation", folder + "/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()
"""
"""Copies the topic t to u; in its first task, which writes, the executor is killed or waits for a copy of the task."""
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    # Otherwise a task without metrics of its rows is copied only after twice the time.
    "spark.speculation.efficiency.enabled": "false",
}


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        for topic in ("t", "u"):
            cluster.create_topic(topic)
        builder = RecordBatchBuilder()
        for number in range(ROWS):
            builder.append(None, str(number).encode(), (), 0)
        cluster.append("t", 0, builder.build())
        yield cluster


@pytest.mark.parametrize(("fault", "settings"), [("kill", {}), ("speculate", SPECULATION)])
def test_stream_writes_each_row_once_when_a_task_runs_again_on_another_executor(
    fault: str, settings: dict[str, str], spark_under_test: Spark, fake: FakeCluster, tmp_path: Path
) -> None:
    arguments = [fault, fake.bootstrap_servers, str(tmp_path), spark_under_test.master]
    config = json.dumps({**spark_under_test.settings, **settings})
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT)}
    subprocess.run([sys.executable, "-c", COPY, *arguments, config], env=environment, check=True, timeout=DEADLINE_S)
    assert (tmp_path / "second").exists(), "the task ran twice"
    values = sorted(int(record.value or b"-1") for record in fake.records("u", read_committed=True))
    assert values == list(range(ROWS))
    wait_for(lambda: open_ids(fake) == [], "the end of the transactions of attempts that do not count")


def test_submitted_program_keeps_its_master_and_its_python(
    spark_under_test: Spark, fake: FakeCluster, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(COPY.replace("master=master, config=json.loads(config)", ""))
    settings = {**spark_under_test.settings, "spark.pyspark.python": sys.executable}
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", spark_under_test.master]
    command += [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    command += [str(program), "none", fake.bootstrap_servers, str(tmp_path), "", ""]
    (tmp_path / "second").touch()
    environment = {"PATH": os.defpath, "HOME": os.environ["HOME"], "JAVA_HOME": str(find_java().home)}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(SUPPORT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert f"{spark_under_test.master} {ROWS} {ROWS}" in done.stdout, done.stderr[-3000:]


def test_registered_session_runs_the_python_of_its_settings(spark_under_test: Spark, fake: FakeCluster) -> None:
    program = """
import json, sys
import tidelog.spark
from pyspark.sql import SparkSession
servers, master, config = sys.argv[1:]
spark = tidelog.spark.register(SparkSession.builder.master(master).config(map=json.loads(config)).getOrCreate())
print("rows", spark.read.format("tidelog").options(**{"bootstrap.servers": servers, "subscribe": "t"}).load().count())
"""
    settings = {**spark_under_test.settings, "spark.pyspark.python": sys.executable}
    command = [sys.executable, "-c", program, fake.bootstrap_servers, spark_under_test.master, json.dumps(settings)]
    environment = {"PATH": os.defpath, "HOME": os.environ["HOME"], "JAVA_HOME": str(find_java().home)}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert f"rows {ROWS}" in done.stdout, done.stderr[-3000:]


def test_executors_log_in_with_a_password_that_the_driver_has_from_a_file(spark: SparkSession, tmp_path: Path) -> None:
    with LocalCluster(controllers=1, nodes=1, security="sasl_ssl") as secured:
        settings = secured.client_settings()
        with AdminClient(settings) as admin:
            for future in admin.create_topics([NewTopic(name, 2, 1) for name in ("t", "u")]).values():
                future.result(60)
        with contextlib.closing(Producer(settings)) as producer:
            for number in range(ROWS):
                producer.produce("t", str(number), partition=number % 2)
            assert producer.flush(60) == 0
        (tmp_path / "login").write_text(f"password={settings['sasl.password']}\n")
        options = {**settings, "sasl.password": f"${{file:{tmp_path / 'login'}:password}}", "config.providers": "file"}
        source = {**options, "subscribe": "t", "startingOffsets": "earliest"}
        rows = spark.readStream.format("tidelog").options(**source).load().select("value")
        writer = rows.writeStream.format("tidelog").options(**options, topic="u")
        query = writer.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE_S)
        copy = spark.read.format("tidelog").options(**options, subscribe="u").load()
        assert sorted(int(row.value) for row in copy.select("value").collect()) == list(range(ROWS))

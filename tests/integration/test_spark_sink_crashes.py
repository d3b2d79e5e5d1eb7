"""The sink is exactly once wherever a process of it is killed: in a model, on a node in memory, and in Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from quick_jvm import QUICK_JVM
from sink_runner import PARTITIONS, crash_and_recover, open_ids
from spark_sink_model import BATCHES, ModelSpark

from tidelog.testing import FakeCluster
from tidelog_foundation.records import RecordBatchBuilder

pytestmark = [pytest.mark.slow, pytest.mark.chaos]


@pytest.mark.parametrize("is_after", [False, True])
def test_batch_is_committed_once_after_a_crash_at_any_command(is_after: bool) -> None:
    commands, crashed = 1, True
    while crashed:
        with FakeCluster() as fake:
            fake.create_topic("t", partitions=PARTITIONS)
            crashed = crash_and_recover(fake, commands, is_after=is_after)
        commands += 1
    assert commands > 15


def test_every_batch_is_committed_once_in_many_histories() -> None:
    for seed in range(2_000):
        spark = ModelSpark(Random(seed))
        spark.run_until(BATCHES)
        spark.check()


SUPPORT = Path(__file__).parents[1] / "support"
ROWS = 30
PROGRAM = """
import json, os, sys
import tidelog.spark
from killing_sink import KillingDataSource

order, servers, folder, config = sys.argv[1:]
spark = tidelog.spark.session(master="local[2,3]", config=json.loads(config))
spark.dataSource.register(KillingDataSource)
jvm = spark.sparkContext._gateway.proc.pid
if os.path.exists(order):
    text = open(order).read()
    with open(order + ".new", "w") as file:
        file.write(text.replace("driver", f"{jvm},{os.getpid()}"))
    os.replace(order + ".new", order)
options = {"bootstrap.servers": servers, "subscribe": "t", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
frame = spark.readStream.format("tidelog").options(**options, minPartitions="2").load().select("key", "value")
writer = frame.writeStream.format("killing").option("bootstrap.servers", servers).option("topic", "u")
writer = writer.option("checkpointLocation", folder).option("kill.order", order)
writer.trigger(availableNow=True).start().awaitTermination()
"""
"""Copies a topic, and is killed at the step of the file ``order``, for which ``driver`` is this program and its JVM."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "order",
    [
        "process Begin after",
        "process Write after",
        "driver Begin after",
        "driver Write after",
        "driver Append before",
        "driver ListOpen before",
        "driver TakeOver after",
        "driver Complete before",
        "driver Complete after",
    ],
)
def test_stream_writes_each_row_once_after_kills(order: str, tmp_path: Path) -> None:
    path = tmp_path / "order"
    path.write_text(order)
    with FakeCluster() as fake:
        for topic in ("t", "u"):
            fake.create_topic(topic)
        builder = RecordBatchBuilder()
        for number in range(ROWS):
            builder.append(None, str(number).encode(), (), 0)
        fake.append("t", 0, builder.build())
        arguments = [str(path), fake.bootstrap_servers, str(tmp_path / "checkpoint"), json.dumps(QUICK_JVM)]
        command = [sys.executable, "-c", PROGRAM, *arguments]
        environment = {**os.environ, "PYTHONPATH": str(SUPPORT)}
        codes = [subprocess.run(command, env=environment, check=False).returncode for _ in range(2)]
        assert not path.exists()
        assert codes[-1] == 0
        assert (codes[0] != 0) == order.startswith("driver"), "a task is repeated, a driver is not"
        values = sorted(int(record.value or b"-1") for record in fake.records("u", read_committed=True))
        assert values == list(range(ROWS))
        assert open_ids(fake) == []

"""The sink is exactly once wherever a process of it is killed: in a model, on a node in memory, and in Spark."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from shared_spark_clients import closing_shared_clients
from sink_runner import PARTITIONS, SINK, Crash, Runner, crash_and_recover, expected, open_ids
from spark_cluster import IS_STANDALONE, Spark
from spark_sink_model import BATCHES, ModelSpark

from tidelog import AdminClient, Consumer, KafkaError, NewTopic, TopicPartition
from tidelog.testing import FakeCluster, LocalCluster
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.records import RecordBatchBuilder
from tidelog_spark.sink.execution import Execution, task_pattern
from tidelog_spark.sink.journal_topic import JOURNAL_TOPIC
from tidelog_spark.sink.protocol import Append, Begin, Command, Complete, ListOpen, Result, TakeOver, Write

pytestmark = [pytest.mark.slow, pytest.mark.chaos]

DEADLINE_S = 60
IS_CAMPAIGN = "TIDELOG_CHAOS_ROUNDS" in os.environ
STEPS = (Begin, Write, Append, ListOpen, TakeOver, Complete)
in_campaign = pytest.mark.skipif(not IS_CAMPAIGN, reason="make chaos runs it; the other runs are a share of it")


@pytest.mark.parametrize("is_after", [False, True])
def test_batch_is_committed_once_after_a_crash_at_any_command(is_after: bool) -> None:
    commands, crashed = 1, True
    while crashed:
        with FakeCluster() as fake, closing_shared_clients():
            fake.create_topic("t", partitions=PARTITIONS)
            crashed = crash_and_recover(fake, commands, is_after=is_after)
        commands += 1
    assert commands > 15


def test_every_batch_is_committed_once_in_many_histories() -> None:
    for seed in range(2_000 if IS_CAMPAIGN else 60):
        spark = ModelSpark(Random(seed))
        spark.run_until(BATCHES)
        spark.check()


class Failing(Execution):
    """Kills a node before the first command of a kind, and crashes after it in the last of two batches."""

    step: type[Command] | None = None
    crashes = False
    kill: Callable[[], None]

    def execute(self, command: Command) -> Result:
        cls = type(self)
        if cls.step is None or not isinstance(command, cls.step):
            return super().execute(command)
        cls.step = None
        cls.kill()
        result = super().execute(command)
        if cls.crashes:
            raise Crash(command)
        return result


def leader_of_journal(cluster: LocalCluster) -> int | None:
    return cluster.leader(JOURNAL_TOPIC, zlib.crc32(SINK.encode()) % 16)


def coordinator_of_tasks(cluster: LocalCluster) -> int | None:
    with AdminClient(cluster.client_settings()) as admin:
        listed = admin.list_transactions(transactional_id_pattern=task_pattern(SINK)).result().valid
    return next((each.coordinator_id for each in listed), None)


def committed_values(cluster: LocalCluster) -> list[bytes]:
    settings = {**cluster.client_settings(), "group.id": "check", "auto.offset.reset": "earliest"}
    found: list[bytes] = []
    with Consumer({**settings, "enable.partition.eof": True}) as consumer:
        consumer.assign([TopicPartition("t", partition, 0) for partition in range(PARTITIONS)])
        ended: set[int | None] = set()
        while len(ended) < PARTITIONS:
            for record in consumer.consume(100, 1):
                error = record.error()
                if error is None:
                    found.append(record.value() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(record.partition())
    return sorted(found)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "leader_of",
    [leader_of_journal, coordinator_of_tasks, lambda cluster: cluster.leader("t", 0)],
    ids=["journal", "coordinator", "topic"],
)
@pytest.mark.parametrize(
    "step",
    [pytest.param(step, marks=[] if step is ListOpen else in_campaign) for step in STEPS],
    ids=lambda s: s.__name__,
)
def test_batch_is_committed_once_while_a_leader_is_killed(
    cluster: LocalCluster, step: type[Command], leader_of: Callable[[LocalCluster], int | None]
) -> None:
    create_anew(cluster)
    first = next(_batches)
    Runner(cluster).run(f"setup-{first}", first)
    batches = [first]
    for crashes in (False, True):
        batch = next(_batches)
        wait_until(lambda: leader_of(cluster) is not None)
        killed = leader_of(cluster)
        assert killed is not None
        Failing.step, Failing.crashes, Failing.kill = step, crashes, cluster.nodes[killed].kill
        try:
            Runner(cluster, Failing).run(f"first-{batch}", batch)
        except Crash:
            assert crashes
            Runner(cluster).run(f"second-{batch}", batch)
        assert Failing.step is None
        cluster.nodes[killed].start()
        cluster.wait_ready()
        batches.append(batch)
    assert committed_values(cluster) == expected(*batches)
    assert open_ids(cluster) == []


@pytest.mark.timeout(300)
def test_batch_that_finds_too_few_replicas_fails_with_the_reason_and_is_written_later(cluster: LocalCluster) -> None:
    create_anew(cluster, {"min.insync.replicas": "3"})
    batch, down = next(_batches), next(node for node in cluster.nodes if node != cluster.leader("t", 0))
    Runner(cluster).run(f"setup-{batch}", batch)
    # Before its markers are written, a transaction would be in the way of the next one.
    assert committed_values(cluster) == expected(batch)
    failing = next(_batches)
    cluster.nodes[down].kill()
    text = r"t-\d: .* not acknowledged within 4000 ms; the last error was NOT_ENOUGH_REPLICAS"
    with pytest.raises(TidelogError, match=text):
        Runner(cluster, **{"message.timeout.ms": "4000"}).run(f"first-{failing}", failing)
    cluster.nodes[down].start()
    cluster.wait_ready()
    Runner(cluster).run(f"second-{failing}", failing)
    assert committed_values(cluster) == expected(batch, failing)
    assert open_ids(cluster) == []


def create_anew(cluster: LocalCluster, config: dict[str, str] | None = None) -> None:
    with AdminClient(cluster.client_settings()) as admin:
        if "t" in admin.list_topics().topics:
            deleted = admin.delete_topics(["t"])["t"].exception()
            # The controllers may have elected another leader: an attempt whose answer was lost has deleted it.
            assert deleted is None or "UNKNOWN_TOPIC_OR_PART" in str(deleted), deleted
            wait_until(lambda: "t" not in admin.list_topics().topics)
        admin.create_topics([NewTopic("t", PARTITIONS, 3, config=config or {})])["t"].result()


_batches = itertools.count()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


SUPPORT = Path(__file__).parents[1] / "support"
ROWS = 30
PROGRAM = """
import json, os, sys
import tidelog.spark
from killing_sink import KillingDataSource

order, servers, folder, master, config = sys.argv[1:]
spark = tidelog.spark.session(master=master, config=json.loads(config))
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


@in_campaign
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
        *(["executor Begin after", "executor Write after"] if IS_STANDALONE else []),
    ],
)
def test_stream_writes_each_row_once_after_kills(order: str, spark_under_test: Spark, tmp_path: Path) -> None:
    path = tmp_path / "order"
    path.write_text(order)
    with FakeCluster() as fake:
        for topic in ("t", "u"):
            fake.create_topic(topic)
        builder = RecordBatchBuilder()
        for number in range(ROWS):
            builder.append(None, str(number).encode(), (), 0)
        fake.append("t", 0, builder.build())
        arguments = [str(path), fake.bootstrap_servers, str(tmp_path / "checkpoint")]
        arguments += [spark_under_test.master_with_retries(), json.dumps(spark_under_test.settings)]
        command = [sys.executable, "-c", PROGRAM, *arguments]
        environment = {**os.environ, "PYTHONPATH": str(SUPPORT)}
        codes = [subprocess.run(command, env=environment, check=False).returncode for _ in range(2)]
        assert not path.exists()
        assert codes[-1] == 0
        assert (codes[0] != 0) == order.startswith("driver"), "a task is repeated, a driver is not"
        values = sorted(int(record.value or b"-1") for record in fake.records("u", read_committed=True))
        assert values == list(range(ROWS))
        assert open_ids(fake) == []

"""Spark on a real cluster whose nodes are killed and paused: every acknowledged record, once, at its offset."""

from __future__ import annotations

from pathlib import Path

import pytest
from acknowledged import Load, create_topic
from pyspark.sql import DataFrame, SparkSession

from tidelog.testing import LocalCluster

pytestmark = pytest.mark.slow

PARTITIONS = 4
RECORDS_PER_S = 2_000
"""Enough to be under way at each fault; more would take the processors from Spark."""
Place = tuple[int, int]


def rows_of(frame: DataFrame) -> dict[Place, int]:
    rows = frame.selectExpr("partition", "offset", "int(string(value)) AS value").collect()
    found = {(r.partition, r.offset): r.value for r in rows}
    assert len(found) == len(rows), "an offset was read twice"
    return found


def assert_acknowledged(load: Load, found: dict[Place, int]) -> None:
    assert not load.failed, load.failed[:5]
    assert len(load.acknowledged) == load.sent
    lost = {number: place for number, place in load.acknowledged.items() if found.get(place) != number}
    assert not lost, f"{len(lost)} of {len(load.acknowledged)} acknowledged records are missing"


def test_batch_read_finds_every_acknowledged_record_while_nodes_fail(
    spark: SparkSession, cluster: LocalCluster, topic: str
) -> None:
    create_topic(cluster, topic, PARTITIONS, 3, min_insync_replicas="2")
    reader = spark.read.format("tidelog").option("bootstrap.servers", cluster.bootstrap_servers)
    reader = reader.option("subscribe", topic)
    with Load(cluster.bootstrap_servers, topic, records_per_s=RECORDS_PER_S) as load:
        load.wait_for_progress(5_000)
        assert reader.load().count() > 0, "the workers now know the leaders"
        killed = cluster.leader(topic, 0)
        assert killed is not None
        cluster.nodes[killed].kill()
        load.wait_for_progress(2_000)
    assert_acknowledged(load, rows_of(reader.load()))
    cluster.nodes[killed].start()
    paused = cluster.leader(topic, 1)
    assert paused is not None
    cluster.nodes[paused].pause()
    assert_acknowledged(load, rows_of(reader.load()))
    cluster.nodes[paused].resume()


@pytest.mark.chaos
def test_stream_writes_every_acknowledged_record_once_while_a_node_is_killed(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    create_topic(cluster, topic, PARTITIONS, 3, min_insync_replicas="2")
    reader = spark.readStream.format("tidelog").option("bootstrap.servers", cluster.bootstrap_servers)
    frame = reader.option("subscribe", topic).option("startingOffsets", "earliest").load()
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start(str(tmp_path / "output"))
    try:
        with Load(cluster.bootstrap_servers, topic, records_per_s=RECORDS_PER_S) as load:
            load.wait_for_progress(2_000)
            killed = cluster.leader(topic, 0)
            assert killed is not None
            cluster.nodes[killed].kill()
            load.wait_for_progress(2_000)
            cluster.nodes[killed].start()
            load.wait_for_progress(2_000)
        query.processAllAvailable()
    finally:
        query.stop()
    assert_acknowledged(load, rows_of(spark.read.parquet(str(tmp_path / "output"))))

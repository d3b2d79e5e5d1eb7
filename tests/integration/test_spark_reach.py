"""Batch queries read only what they need: pushed filters and chosen columns, in a session of Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

from tidelog.testing import FakeCluster
from tidelog_foundation.records import RecordBatchBuilder

pytestmark = pytest.mark.slow

BASE_MS = 1_700_000_000_000
PARTITIONS = 3
BATCHES = 20
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
AT_10 = f"timestamp_millis({BASE_MS + 10})"


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeCluster]:
    """A topic whose offsets have the timestamps 1, 0, 3, 2, 5, 4, ... and one batch each."""
    with FakeCluster() as cluster:
        cluster.create_topic("t", partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            for offset in range(BATCHES):
                builder = RecordBatchBuilder()
                builder.append(b"k", str(offset).encode(), (), BASE_MS + (offset ^ 1))
                cluster.append("t", partition, builder.build())
        yield cluster


def load(spark: SparkSession, cluster: FakeCluster, **options: str) -> DataFrame:
    # A fetch returns one batch, so that the number of fetches is the number of records read.
    base = {"bootstrap.servers": cluster.bootstrap_servers, "subscribe": "t", "max.partition.fetch.bytes": "1"}
    return spark.read.format("tidelog").options(**base, **options).load()


def test_filters_and_columns_read_only_what_they_need(spark: SparkSession, fake: FakeCluster) -> None:
    before = fake.calls("Fetch")
    frame = load(spark, fake, columns="offset,value,partition,timestamp")
    assert frame.columns == ["offset", "value", "partition", "timestamp"]
    condition = f"partition = 1 AND timestamp >= {AT_10} AND timestamp < '2030-01-01' AND offset < 15"
    rows = frame.where(condition).select("offset", "value").collect()
    assert sorted(rows) == [(offset, str(offset).encode()) for offset in range(10, 15)]
    assert fake.calls("Fetch") - before == 5


def test_filters_are_evaluated_by_spark_in_sessions_that_push_none(spark: SparkSession, fake: FakeCluster) -> None:
    before = fake.calls("Fetch")
    spark.conf.set(PUSHDOWN, "false")
    try:
        assert load(spark, fake).where("partition = 1 AND offset < 5").count() == 5
    finally:
        spark.conf.set(PUSHDOWN, "true")
    assert fake.calls("Fetch") - before == PARTITIONS * BATCHES

"""The options of the source in Spark, each once, and topics that come and return while a stream runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tidelog import AdminClient
from tidelog.admin import NewPartitions
from tidelog.testing import FakeCluster
from tidelog_foundation.records import RecordBatchBuilder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DEADLINE_S = 200
"""The first query of a session takes a minute on a busy machine."""
FIRST_MS = 1_700_000_000_000
MIXED = {"subscribe": "a", "startingOffsets": '{"a":{"0":7,"1":-1}}'}


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeCluster]:
    """Two topics; each record of ``a`` is a second later than the one before."""
    with FakeCluster() as cluster:
        cluster.create_topic("a", partitions=2)
        cluster.create_topic("b")
        append(cluster, "a", 0, range(10))
        append(cluster, "a", 1, range(10, 14))
        append(cluster, "b", 0, range(20, 23))
        yield cluster


def append(cluster: FakeCluster, topic: str, partition: int, values: range) -> None:
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(None, str(value).encode(), (), FIRST_MS + 1_000 * value)
    cluster.append(topic, partition, builder.build())


@pytest.mark.parametrize(
    ("options", "values"),
    [
        pytest.param({"subscribePattern": "[ab]"}, [*range(14), 20, 21, 22], marks=pytest.mark.chaos),
        ({"assign": '{"a":[1],"b":[0]}'}, [*range(10, 14), 20, 21, 22]),
        pytest.param(
            {"subscribe": "a", "startingTimestamp": str(FIRST_MS + 8_000)},
            [8, 9, *range(10, 14)],
            marks=pytest.mark.chaos,
        ),
        (
            {
                "subscribe": "a",
                "startingOffsetsByTimestamp": json.dumps({"a": {"0": FIRST_MS + 9_500, "1": FIRST_MS + 12_000}}),
                "startingOffsetsByTimestampStrategy": "latest",
            },
            [12, 13],
        ),
        pytest.param(
            {"subscribe": "a", "maxRecordsPerPartition": "3", "minPartitions": "4", "client.rack": "r1"},
            [*range(14)],
            marks=pytest.mark.chaos,
        ),
        ({"subscribe": "b", "minOffsetsPerTrigger": "2", "maxTriggerDelay": "1s"}, [20, 21, 22]),
        (MIXED, [7, 8, 9]),
    ],
)
def test_stream_reads_what_its_options_select(
    spark: SparkSession, fake: FakeCluster, tmp_path: Path, options: dict[str, str], values: list[int]
) -> None:
    """Trigger.AvailableNow reads in one run, also from timestamps and from offsets next to a "latest".

    ``make test`` leaves out the cases marked ``chaos``; ``tests/unit/spark`` has their options without Spark.
    """
    query = write(frame_of(spark, fake, **options), tmp_path).trigger(availableNow=True).start(str(tmp_path / "rows"))
    assert query.awaitTermination(DEADLINE_S)
    assert values_in(spark, tmp_path) == values


def test_batch_ends_before_the_timestamp_of_each_partition(spark: SparkSession, fake: FakeCluster) -> None:
    ends = json.dumps({"a": {"0": FIRST_MS + 2_000, "1": FIRST_MS + 13_000}})
    reader = spark.read.format("tidelog").option("bootstrap.servers", fake.bootstrap_servers)
    frame = reader.option("subscribe", "a").option("endingOffsetsByTimestamp", ends).load()
    assert sorted(int(row.value) for row in frame.collect()) == [0, 1, 10, 11, 12]


def test_stream_reads_new_topics_and_partitions_and_tells_apart_a_topic_that_returns(
    spark: SparkSession, fake: FakeCluster, tmp_path: Path
) -> None:
    fake.create_topic("new-1")
    append(fake, "new-1", 0, range(5))
    options = {"subscribePattern": "new-.*", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    query = write(frame_of(spark, fake, **options), tmp_path).start(str(tmp_path / "rows"))
    try:
        query.processAllAvailable()
        fake.create_topic("new-2")
        append(fake, "new-2", 0, range(10, 12))
        with AdminClient(fake.client_settings()) as admin:
            admin.create_partitions([NewPartitions("new-1", 2)])["new-1"].result(DEADLINE_S)
        append(fake, "new-1", 1, range(20, 22))
        query.processAllAvailable()
        for topic in ("new-1", "new-2"):
            fake.delete_topic(topic)
        fake.create_topic("new-1")
        append(fake, "new-1", 0, range(30, 39))
        query.processAllAvailable()
    finally:
        query.stop()
    assert values_in(spark, tmp_path) == [*range(5), 10, 11, 20, 21, *range(30, 39)]
    fake.delete_topic("new-1")
    fake.create_topic("new-1")
    append(fake, "new-1", 0, range(40, 60))
    options["failOnDataLoss"] = "true"
    strict = write(frame_of(spark, fake, **options), tmp_path).start(str(tmp_path / "rows"))
    with pytest.raises(StreamingQueryException, match=r'topic "new-1" was deleted and created again: its id was'):
        strict.awaitTermination(DEADLINE_S)


def frame_of(spark: SparkSession, fake: FakeCluster, **options: str) -> DataFrame:
    given = {"bootstrap.servers": fake.bootstrap_servers, "startingOffsets": "earliest", **options}
    return spark.readStream.format("tidelog").options(**given).load()


def write(frame: DataFrame, folder: Path) -> Any:
    return frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))


def values_in(spark: SparkSession, folder: Path) -> list[int]:
    rows = spark.read.parquet(str(folder / "rows")).selectExpr("int(string(value)) AS value").collect()
    return sorted(row.value for row in rows)

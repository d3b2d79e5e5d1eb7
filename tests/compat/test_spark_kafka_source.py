"""Spark's own Kafka source and sink, in batch and in streaming queries: it reads what was written, once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from compat.clients.all import client
from compat.clients.record import CODECS, Record
from compat.cluster import NODES, Deployment
from compat.spark import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300)]

PARTITIONS = 3


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        yield session


@pytest.fixture
def topic(cluster: Deployment, name: str) -> str:
    """A topic whose partitions have twenty records each, compressed by every codec in turn."""
    cluster.create(name, PARTITIONS, NODES)
    for index, codec in enumerate(CODECS):
        write(cluster, name, range(index * 12, index * 12 + 12), codec)
    return name


def write(cluster: Deployment, topic: str, numbers: range, codec: str = "none") -> None:
    records = [Record(b"%d" % n, b"key %d" % n, (("h", b"x"),), 1_700_000_000_000 + n, n % PARTITIONS) for n in numbers]
    client("confluent-kafka").produce(cluster.servers, topic, records, codec)


def options(cluster: Deployment, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": cluster.servers, **more}


def numbers_of(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.selectExpr("string(value) AS value").collect())


def test_batch_query_reads_every_record(spark: SparkSession, cluster: Deployment, topic: str) -> None:
    frame = spark.read.format("kafka").options(**options(cluster, subscribe=topic, includeHeaders="true")).load()
    assert numbers_of(frame) == list(range(60))
    row = frame.where("partition = 1").orderBy("offset").first()
    assert row is not None
    assert (row.key, row.value, row.topic, row.offset, row.timestampType) == (b"key 1", b"1", topic, 0, 0)
    assert [(header.key, header.value) for header in row.headers] == [("h", b"x")]


def test_batch_query_reads_between_offsets_and_timestamps(spark: SparkSession, cluster: Deployment, topic: str) -> None:
    reader = spark.read.format("kafka").options(**options(cluster, subscribe=topic))
    between = {
        "startingOffsets": f'{{"{topic}": {{"0": 5, "1": -2, "2": 20}}}}',
        "endingOffsets": f'{{"{topic}": {{"0": 7, "1": 1, "2": -1}}}}',
    }
    assert numbers_of(reader.options(**between).load()) == [1, 15, 18]
    since = spark.read.format("kafka").options(**options(cluster, subscribe=topic, startingTimestamp="1700000000050"))
    assert numbers_of(since.load()) == list(range(50, 60))


def test_batch_query_writes(spark: SparkSession, cluster: Deployment, name: str) -> None:
    cluster.create(name, PARTITIONS, NODES)
    frame = spark.range(100).selectExpr("cast(id % 7 AS string) AS key", "cast(id AS string) AS value")
    frame.write.format("kafka").options(**options(cluster, topic=name)).save()
    read = client("kafka-python").consume(cluster.servers, name, 100, PARTITIONS)
    assert sorted(int(record.value or b"") for record in read) == list(range(100))


def test_streaming_query_copies_a_topic_and_goes_on_where_it_ended(
    spark: SparkSession, cluster: Deployment, topic: str, tmp_path: Path
) -> None:
    target = cluster.create(f"{topic}-copy", PARTITIONS, NODES)

    def run() -> Any:
        source = options(cluster, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="25")
        frame = spark.readStream.format("kafka").options(**source).load().select("key", "value")
        sink = frame.writeStream.format("kafka").options(**options(cluster, topic=target))
        query = sink.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        return query

    run()
    assert [int(r.value or b"") for r in read_copy(cluster, target, 60)] == list(range(60))
    write(cluster, topic, range(60, 90))
    run()
    assert [int(r.value or b"") for r in read_copy(cluster, target, 90)] == list(range(90))


def read_copy(cluster: Deployment, target: str, count: int) -> list[Any]:
    read = client("confluent-kafka").consume(cluster.servers, target, count, PARTITIONS)
    return sorted(read, key=lambda record: int(record.value or b""))

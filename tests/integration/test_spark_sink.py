"""Spark writes to a FakeCluster: rows exact, batches whole and once after kills and restarts, errors before any row."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import killing_sink
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tidelog import AdminClient
from tidelog.admin import TransactionState
from tidelog.testing import FakeCluster
from tidelog_foundation.records import Record, RecordBatchBuilder

pytestmark = pytest.mark.slow

DEADLINE_S = 150
MOMENT = datetime.datetime(2024, 5, 6, 7, 8, 9, 123_000, tzinfo=datetime.UTC)


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        for topic in ("t", "u"):
            cluster.create_topic(topic, partitions=2)
        yield cluster


@pytest.fixture(scope="module")
def killing(spark: SparkSession) -> SparkSession:
    """The session with ``format("killing")``, whose code travels to the workers."""
    cloudpickle.register_pickle_by_value(killing_sink)
    spark.dataSource.register(killing_sink.KillingDataSource)
    return spark


def save(frame: DataFrame, cluster: FakeCluster, mode: str = "append", **options: str) -> None:
    writer = frame.write.format("tidelog").option("bootstrap.servers", cluster.bootstrap_servers)
    writer.options(**options).mode(mode).save()


def records(cluster: FakeCluster, topic: str, *, read_committed: bool = True) -> list[Record]:
    return [r for index in range(2) for r in cluster.records(topic, index, read_committed=read_committed)]


def open_transactions(cluster: FakeCluster) -> list[str]:
    with AdminClient(cluster.client_settings()) as admin:
        found = admin.list_transactions(states=[TransactionState.ONGOING]).result()
    return [each.transactional_id for each in found.valid]


def test_batch_write_stores_every_column_in_the_topic_of_the_row(spark: SparkSession, fake: FakeCluster) -> None:
    header = [("h", b"1"), ("h", None)]
    rows = [(b"k", b"v", "t", 1, header, MOMENT), (None, b"w", "u", 0, None, MOMENT), (b"x", None, "t", 1, [], MOMENT)]
    schema = (
        "key binary, value binary, topic string, partition int, headers array<struct<key:string,value:binary>>, "
        "timestamp timestamp"
    )
    save(spark.createDataFrame(rows, schema), fake, **{"compression.type": "lz4"})
    first, second = sorted(records(fake, "t"), key=lambda record: record.key or b"")
    [third] = records(fake, "u")
    assert (first.key, first.value, tuple(first.headers)) == (b"k", b"v", (("h", b"1"), ("h", None)))
    assert (second.key, second.value) == (b"x", None)
    assert (third.key, third.value) == (None, b"w")
    assert {each.timestamp_ms for each in (first, second, third)} == {int(MOMENT.timestamp() * 1000)}
    assert [len(fake.records("t", 1, read_committed=True)), len(fake.records("u", 0, read_committed=True))] == [2, 1]


@pytest.mark.parametrize("semantics", ["exactly-once", pytest.param("at-least-once", marks=pytest.mark.chaos)])
def test_batch_write_that_fails_is_invisible_only_exactly_once(
    spark: SparkSession, fake: FakeCluster, semantics: str
) -> None:
    rows = spark.range(0, 20, 1, 2).selectExpr("string(id) AS value", "IF(id < 15, 't', NULL) AS topic")
    with pytest.raises(PySparkException, match="a row has null in the column topic"):
        save(rows, fake, **{"sink.semantics": semantics})
    assert bool(records(fake, "t")) == (semantics == "at-least-once")
    assert records(fake, "t", read_committed=False)
    assert open_transactions(fake) == []


@pytest.mark.parametrize(
    ("column", "mode", "options", "text"),
    [
        ("id", "append", {"topic": "t"}, "unknown column id: the tidelog sink takes key, value, topic"),
        ("string(id) AS value", "overwrite", {"topic": "t"}, "the tidelog sink only appends: use the mode append"),
        ("string(id) AS value", "append", {"topics": "t"}, 'unknown configuration "topics"'),
    ],
)
def test_write_that_is_not_valid_fails_before_any_row(
    spark: SparkSession, fake: FakeCluster, column: str, mode: str, options: dict[str, str], text: str
) -> None:
    with pytest.raises(PySparkException) as raised:
        save(spark.range(3).selectExpr(column), fake, mode, **options)
    assert text in str(raised.value)
    assert records(fake, "t", read_committed=False) == []


class Copy:
    """A query that copies the topic t to the topic u, ten records at a time."""

    def __init__(self, spark: SparkSession, cluster: FakeCluster, folder: Path) -> None:
        self.spark, self.cluster, self.folder = spark, cluster, folder
        self.order = folder / "order"
        self.written = 0

    def append(self, count: int) -> None:
        builder = RecordBatchBuilder()
        for number in range(self.written, self.written + count):
            builder.append(None, str(number).encode(), (), 0)
        self.cluster.append("t", 0, builder.build())
        self.written += count

    def run(self) -> None:
        servers = {"bootstrap.servers": self.cluster.bootstrap_servers}
        options = {**servers, "subscribe": "t", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
        frame = self.spark.readStream.format("tidelog").options(**options, minPartitions="2").load()
        writer = frame.select("key", "value").writeStream.format("killing").options(**servers, topic="u")
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        query = writer.option("kill.order", str(self.order)).trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE_S)

    def check(self) -> None:
        values = sorted(int(record.value or b"-1") for record in records(self.cluster, "u"))
        assert values == list(range(self.written))
        assert open_transactions(self.cluster) == []


@pytest.fixture
def copy(killing: SparkSession, fake: FakeCluster, tmp_path: Path) -> Copy:
    return Copy(killing, fake, tmp_path)


@pytest.mark.chaos
def test_stream_writes_each_row_once_and_drops_a_repeated_batch(copy: Copy, tmp_path: Path) -> None:
    copy.append(15)
    copy.run()
    last = max(int(path.name) for path in (tmp_path / "checkpoint" / "commits").iterdir() if path.name.isdigit())
    for name in (str(last), f".{last}.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    copy.append(5)
    copy.run()
    copy.check()


@pytest.mark.parametrize("step", [pytest.param("Write after", marks=pytest.mark.chaos), "TakeOver after"])
def test_stream_writes_each_row_once_after_a_process_was_killed(copy: Copy, step: str) -> None:
    copy.append(10)
    copy.order.write_text(f"process {step}")
    with pytest.raises(StreamingQueryException):
        copy.run()
    assert not copy.order.exists()
    copy.run()
    copy.check()

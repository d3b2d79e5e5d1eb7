"""Spark writes to a FakeCluster: rows exact, batches whole and once after kills and restarts, errors before any row."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterable, Iterator
from pathlib import Path

import killing_sink
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tidelog import AdminClient, NewTopic
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
        pytest.param("id", "append", {}, "unknown column id: the tidelog sink takes key", marks=pytest.mark.chaos),
        pytest.param("string(id) AS value", "overwrite", {}, "the tidelog sink only appends", marks=pytest.mark.chaos),
        ("string(id) AS value", "append", {"topic": "none"}, 'there is no topic "none"'),
    ],
)
def test_write_that_is_not_valid_fails_before_any_row(
    spark: SparkSession, fake: FakeCluster, column: str, mode: str, options: dict[str, str], text: str
) -> None:
    with pytest.raises(PySparkException) as raised:
        save(spark.range(3).selectExpr(column), fake, mode, **{"topic": "t", **options})
    assert text in str(raised.value)
    assert records(fake, "t", read_committed=False) == []


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (["'x' AS value", "9 AS partition"], 'topic "t" has no partition 9, it has 2'),
        (["repeat('x', 2000000) AS value"], "which exceeds message.max.bytes=1000000"),
        (["'x' AS value", "timestamp'1960-01-01 00:00:00' AS timestamp"], "timestamp -315619200000"),
    ],
)
def test_row_that_cannot_be_written_is_named_and_nothing_of_the_batch_is_visible(
    spark: SparkSession, fake: FakeCluster, columns: list[str], text: str
) -> None:
    good = spark.range(5).selectExpr("string(id) AS value")
    both = good.unionByName(spark.range(1).selectExpr(*columns), allowMissingColumns=True)
    with pytest.raises(PySparkException) as raised:
        save(both, fake, topic="t")
    assert text in str(raised.value)
    assert records(fake, "t") == []
    assert open_transactions(fake) == []


def test_stream_fails_before_any_row_where_two_phase_commits_are_not_permitted(
    spark: SparkSession, tmp_path: Path
) -> None:
    with FakeCluster(node_config={"transaction.two.phase.commit.enable": "false"}) as cluster:
        cluster.create_topic("t", partitions=2)
        rows = spark.readStream.format("rate").load().selectExpr("string(value) AS value")
        writer = rows.writeStream.format("tidelog").option("bootstrap.servers", cluster.bootstrap_servers)
        query = writer.option("topic", "t").option("checkpointLocation", str(tmp_path)).start()
        with pytest.raises(StreamingQueryException) as raised:
            query.awaitTermination(DEADLINE_S)
        text = (
            'the option sink.semantics is "exactly-once", which needs transaction.two.phase.commit.enable=true on all'
        )
        assert text in str(raised.value)
        assert records(cluster, "t", read_committed=False) == []


def test_numbered_writes_of_a_repeated_batch_are_dropped_by_application_and_topic(
    spark: SparkSession, fake: FakeCluster
) -> None:
    rows = spark.range(3).selectExpr("string(id) AS value")
    for topic, version in (("t", 4), ("u", 4), ("t", 4), ("u", 3), ("t", 6)):
        save(rows, fake, topic=topic, txnAppId="a", txnVersion=str(version))
    assert [len(records(fake, topic)) for topic in ("t", "u")] == [6, 3]
    assert open_transactions(fake) == []


@pytest.mark.chaos
def test_stream_appends_the_whole_result_in_output_mode_complete(
    spark: SparkSession, fake: FakeCluster, tmp_path: Path
) -> None:
    fake.append("t", 0, _batch(range(20)))
    servers = {"bootstrap.servers": fake.bootstrap_servers}
    options = {**servers, "subscribe": "t", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
    frame = spark.readStream.format("tidelog").options(**options).load()
    counts = frame.groupBy(frame.partition.alias("key")).count().selectExpr("string(key) key", "string(count) value")
    writer = counts.writeStream.format("tidelog").options(**servers, topic="u").outputMode("complete")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(DEADLINE_S)
    assert sorted(record.value or b"" for record in records(fake, "u")) == [b"10", b"20"]


@pytest.mark.chaos
def test_batch_write_stores_large_rows_and_no_rows(spark: SparkSession, fake: FakeCluster) -> None:
    size = 10_000_000
    with AdminClient(fake.client_settings()) as admin:
        admin.create_topics([NewTopic("large", 2, 1, config={"max.message.bytes": "12000000"})])["large"].result()
    rows = spark.range(2).selectExpr(f"repeat('x', {size}) AS value")
    save(rows, fake, topic="large", **{"message.max.bytes": "11000000"})
    assert [len(record.value or b"") for record in records(fake, "large")] == [size, size]
    save(rows.limit(0), fake, topic="t")
    assert records(fake, "t", read_committed=False) == []


def _batch(numbers: Iterable[int]) -> bytes:
    builder = RecordBatchBuilder()
    for number in numbers:
        builder.append(None, str(number).encode(), (), 0)
    return builder.build()


class Copy:
    """A query that copies the topic t to the topic u, ten records at a time."""

    def __init__(self, spark: SparkSession, cluster: FakeCluster, folder: Path) -> None:
        self.spark, self.cluster, self.folder = spark, cluster, folder
        self.order = folder / "order"
        self.written = 0

    def append(self, count: int) -> None:
        self.cluster.append("t", 0, _batch(range(self.written, self.written + count)))
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


@pytest.mark.chaos
@pytest.mark.parametrize("semantics", ["exactly-once", "at-least-once"])
def test_stream_whose_topic_is_deleted_fails_soon_with_its_name_and_loses_no_batch(
    spark: SparkSession, fake: FakeCluster, semantics: str, tmp_path: Path
) -> None:
    servers = {"bootstrap.servers": fake.bootstrap_servers}
    rows = spark.readStream.format("tidelog").options(**servers, subscribe="t", startingOffsets="earliest").load()
    writer = rows.select("value").writeStream.format("tidelog").options(**servers, topic="u")
    writer = writer.option("sink.semantics", semantics).option("checkpointLocation", str(tmp_path))
    fake.append("t", 0, _batch(range(10)))
    query = writer.start()
    try:
        query.processAllAvailable()
        assert len(records(fake, "u")) == 10
        with AdminClient(fake.client_settings()) as admin:
            admin.delete_topics(["u"])["u"].result()
        fake.append("t", 0, _batch(range(10, 20)))
        with pytest.raises(StreamingQueryException, match=r"there is no topic ['\"]u['\"]"):
            query.awaitTermination(DEADLINE_S)
    finally:
        query.stop()
    assert open_transactions(fake) == []
    fake.create_topic("u", partitions=2)
    assert writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)
    assert sorted(int(record.value or b"-1") for record in records(fake, "u")) == list(range(10, 20))


@pytest.mark.chaos
@pytest.mark.parametrize("step", ["Write after", "TakeOver after"])
def test_stream_writes_each_row_once_after_a_process_was_killed(copy: Copy, step: str) -> None:
    copy.append(10)
    copy.order.write_text(f"process {step}")
    # A cluster repeats the task, and a local Spark the query.
    with contextlib.suppress(StreamingQueryException):
        copy.run()
    assert not copy.order.exists()
    copy.run()
    copy.check()

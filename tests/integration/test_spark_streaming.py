"""Spark streams from a FakeCluster: exactly once over restarts and crashes, within limits, to the end when asked."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from tidelog.spark import lag
from tidelog.testing import FakeCluster
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.records import RecordBatchBuilder

pytestmark = pytest.mark.slow

DEADLINE_S = 60


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        cluster.create_topic("t", partitions=2)
        yield cluster


class Stream:
    """One streaming job into a Parquet folder with a checkpoint: what is restarted is the same job."""

    def __init__(self, spark: SparkSession, cluster: FakeCluster, folder: Path, **options: str) -> None:
        self.spark = spark
        self.cluster = cluster
        self.output = folder / "output"
        self.checkpoint = folder / "checkpoint"
        self.options = options

    def frame(self) -> DataFrame:
        reader = self.spark.readStream.format("tidelog").option("bootstrap.servers", self.cluster.bootstrap_servers)
        return reader.option("subscribe", "t").options(**self.options).load()

    def writer(self) -> DataStreamWriter:
        return self.frame().writeStream.option("checkpointLocation", str(self.checkpoint))

    def start(self, **trigger: Any) -> StreamingQuery:
        writer = self.writer().format("parquet").option("path", str(self.output))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def run_until_drained(self) -> StreamingQuery:
        query = self.start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        return query

    def run_available_now(self) -> StreamingQuery:
        query = self.start(availableNow=True)
        assert query.awaitTermination(DEADLINE_S)
        return query

    def rows(self) -> list[tuple[int, int, int]]:
        frame = self.spark.read.parquet(str(self.output))
        rows = frame.selectExpr("partition", "offset", "int(string(value)) AS value").collect()
        return sorted((r.partition, r.offset, r.value) for r in rows)

    def logged_end(self, batch: int) -> Any:
        return json.loads((self.checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1])


def append_values(cluster: FakeCluster, partition: int, values: range) -> None:
    builder = RecordBatchBuilder("lz4")
    for i in values:
        builder.append(None, str(i).encode(), (), 1_700_000_000_000 + i)
    cluster.append("t", partition, builder.build())


def numbered(partition: int, values: range) -> list[tuple[int, int, int]]:
    return [(partition, i, i) for i in values]


def batches_of(query: StreamingQuery) -> list[int]:
    return [p.numInputRows for p in query.recentProgress if p.numInputRows]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.05)


def test_restart_from_the_checkpoint_writes_each_record_once(
    spark: SparkSession, fake: FakeCluster, tmp_path: Path
) -> None:
    stream = Stream(spark, fake, tmp_path, startingOffsets="earliest")
    append_values(fake, 0, range(30))
    append_values(fake, 1, range(5))
    stream.run_until_drained()
    assert stream.rows() == numbered(0, range(30)) + numbered(1, range(5))
    append_values(fake, 0, range(30, 50))
    stream.run_until_drained()
    assert stream.rows() == numbered(0, range(50)) + numbered(1, range(5))


def test_batch_that_was_not_committed_is_replayed_exactly(
    spark: SparkSession, fake: FakeCluster, tmp_path: Path
) -> None:
    stream = Stream(spark, fake, tmp_path, startingOffsets="earliest")
    append_values(fake, 0, range(10))
    stream.run_until_drained()
    append_values(fake, 0, range(10, 20))
    stream.run_until_drained()
    last = max(int(p.name) for p in (stream.checkpoint / "commits").iterdir() if p.name.isdigit())
    for name in (str(last), f".{last}.crc"):
        (stream.checkpoint / "commits" / name).unlink()
    append_values(fake, 0, range(20, 30))
    stream.run_until_drained()
    assert stream.rows() == numbered(0, range(30))


def test_crash_in_batch_0_from_latest_loses_nothing(spark: SparkSession, fake: FakeCluster, tmp_path: Path) -> None:
    append_values(fake, 0, range(10))
    stream = Stream(spark, fake, tmp_path, startingOffsets="latest")
    crashed = stream.writer().foreachBatch(_crash).start()
    with pytest.raises(StreamingQueryException):
        crashed.awaitTermination(DEADLINE_S)
    end = stream.logged_end(0)
    assert end["t"] == end["@start"]["t"] == {"0": 10, "1": 0}
    assert not list((stream.checkpoint / "commits").glob("0"))
    append_values(fake, 0, range(10, 25))
    append_values(fake, 1, range(3))
    stream.run_until_drained()
    assert stream.rows() == numbered(0, range(10, 25)) + numbered(1, range(3))


def _crash(frame: DataFrame, batch: int) -> None:
    raise RuntimeError(f"batch {batch} crashes")


@pytest.mark.chaos
def test_latest_reads_only_what_comes_after_the_start(spark: SparkSession, fake: FakeCluster, tmp_path: Path) -> None:
    append_values(fake, 0, range(10))
    stream = Stream(spark, fake, tmp_path)
    query = stream.start()
    try:
        wait_for(lambda: (stream.checkpoint / "commits" / "0").exists())
        append_values(fake, 0, range(10, 15))
        query.processAllAvailable()
    finally:
        query.stop()
    assert stream.rows() == numbered(0, range(10, 15))


@pytest.mark.chaos
def test_max_offsets_per_trigger_bounds_each_batch(spark: SparkSession, fake: FakeCluster, tmp_path: Path) -> None:
    append_values(fake, 0, range(40))
    append_values(fake, 1, range(10))
    stream = Stream(spark, fake, tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger="15")
    query = stream.run_until_drained()
    assert batches_of(query) == [15, 15, 15, 5]
    assert [lag(progress).total for progress in query.recentProgress if progress.numInputRows] == [35, 20, 5, 0]
    assert stream.rows() == numbered(0, range(40)) + numbered(1, range(10))


def test_available_now_ends_at_the_target_and_goes_on_later(
    spark: SparkSession, fake: FakeCluster, tmp_path: Path
) -> None:
    append_values(fake, 0, range(40))
    stream = Stream(spark, fake, tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger="15")
    assert batches_of(stream.run_available_now()) == [15, 15, 10]
    append_values(fake, 1, range(20))
    assert batches_of(stream.run_available_now()) == [15, 5]
    assert batches_of(stream.run_available_now()) == []
    assert stream.rows() == numbered(0, range(40)) + numbered(1, range(20))


@pytest.mark.chaos
def test_available_now_from_latest_anchors_the_next_run(spark: SparkSession, fake: FakeCluster, tmp_path: Path) -> None:
    append_values(fake, 0, range(5))
    stream = Stream(spark, fake, tmp_path, startingOffsets="latest")
    stream.run_available_now()
    append_values(fake, 0, range(5, 9))
    stream.run_available_now()
    assert stream.rows() == numbered(0, range(5, 9))


@pytest.mark.chaos
def test_idle_stream_makes_no_batches(spark: SparkSession, fake: FakeCluster, tmp_path: Path) -> None:
    append_values(fake, 0, range(5))
    stream = Stream(spark, fake, tmp_path, startingOffsets="earliest")
    query = stream.start()
    try:
        query.processAllAvailable()
        before = fake.calls("ListOffsets")
        wait_for(lambda: fake.calls("ListOffsets") > before + 5)
        assert len(list((stream.checkpoint / "offsets").glob("[0-9]*"))) == 1
    finally:
        query.stop()


def test_leader_changes_and_a_restart_do_not_stop_the_stream(
    spark: SparkSession, fake: FakeCluster, tmp_path: Path
) -> None:
    stream = Stream(spark, fake, tmp_path, startingOffsets="earliest")
    query = stream.start()
    try:
        for step in range(3):
            append_values(fake, 0, range(step * 10, step * 10 + 10))
            fake.elect_leader("t", 0)
            fake.fail_next("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER)
            fake.fail_next("ListOffsets", ErrorCode._TRANSPORT)
            query.processAllAvailable()
        fake.stop()
        fake.start()
        append_values(fake, 0, range(30, 40))
        query.processAllAvailable()
    finally:
        query.stop()
    assert stream.rows() == numbered(0, range(40))


@pytest.mark.chaos
def test_headers_and_timestamps_reach_the_memory_sink(spark: SparkSession, fake: FakeCluster, tmp_path: Path) -> None:
    builder = RecordBatchBuilder()
    builder.append(b"k", b"v", (("trace", b"7"),), 1_700_000_000_123)
    fake.append("t", 1, builder.build())
    stream = Stream(spark, fake, tmp_path, startingOffsets="earliest", includeHeaders="true")
    query = stream.frame().writeStream.format("memory").queryName("rows").start()
    try:
        query.processAllAvailable()
        [row] = spark.sql("SELECT *, unix_millis(timestamp) AS millis FROM rows").collect()
    finally:
        query.stop()
    assert (row.key, row.value, row.millis) == (b"k", b"v", 1_700_000_000_123)
    assert [(h.key, h.value) for h in row.headers] == [("trace", b"7")]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_records_deleted_before_they_were_read_are_data_loss(
    spark: SparkSession, fake: FakeCluster, tmp_path: Path, fail: str
) -> None:
    stream = Stream(spark, fake, tmp_path, startingOffsets="earliest", failOnDataLoss=fail)
    append_values(fake, 0, range(10))
    stream.run_until_drained()
    append_values(fake, 0, range(10, 20))
    append_values(fake, 0, range(20, 30))
    fake.delete_records("t", 0, 15)
    if fail == "true":
        with pytest.raises(StreamingQueryException, match="offset 10 is gone, the partition has"):
            stream.run_until_drained()
    else:
        stream.run_until_drained()
        assert stream.rows() == numbered(0, range(10)) + numbered(0, range(15, 30))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is for batch queries; a stream has no end"),
        ({"startingOffsets": '{"t":{"0":1}}'}, "it names t-0, the topics have t-0, t-1"),
        ({"subscribe": "absent"}, 'there is no topic "absent"'),
    ],
)
def test_bad_stream_options_say_what_is_wrong(
    spark: SparkSession, fake: FakeCluster, tmp_path: Path, options: dict[str, str], text: str
) -> None:
    stream = Stream(spark, fake, tmp_path, **options)
    with pytest.raises(Exception, match=r"PYTHON|STREAM") as raised:
        stream.run_until_drained()
    assert text in str(raised.value)

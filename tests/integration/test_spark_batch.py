"""Spark reads a FakeCluster in batch queries: rows exact, offsets options honoured, errors that say what to do."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from document_blocks import blocks_of
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from tidelog.testing import FakeCluster
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.records import CODECS, RecordBatchBuilder

pytestmark = pytest.mark.slow

BASE_MS = 1_700_000_000_123


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        yield cluster


def append_values(
    cluster: FakeCluster, topic: str, partition: int, values: range, compression: str = "none", per_batch: int = 10
) -> None:
    """Append the numbers as text, ``per_batch`` to a batch, one millisecond apart."""
    for first in range(values.start, values.stop, per_batch):
        builder = RecordBatchBuilder(compression)
        for i in range(first, min(first + per_batch, values.stop)):
            builder.append(None, str(i).encode(), (), BASE_MS + i)
        cluster.append(topic, partition, builder.build())


def load(spark: SparkSession, cluster: FakeCluster, subscribe: str = "t", **options: str) -> DataFrame:
    reader = spark.read.format("tidelog").option("bootstrap.servers", cluster.bootstrap_servers)
    return reader.option("subscribe", subscribe).options(**options).load()


def values_of(frame: DataFrame) -> list[tuple[str, int, int, int]]:
    rows = frame.selectExpr("topic", "partition", "offset", "int(string(value)) AS value").collect()
    return sorted((r.topic, r.partition, r.offset, r.value) for r in rows)


def error_of(frame_or_load: Any) -> str:
    with pytest.raises(PySparkException) as raised:
        frame_or_load()
    return str(raised.value)


def test_rows_are_exact_with_nulls_headers_and_timestamps(spark: SparkSession, fake: FakeCluster) -> None:
    fake.create_topic("t", partitions=2)
    builder = RecordBatchBuilder()
    builder.append(b"k", b"\x00\xff", (("h", b"1"), ("h", None), ("ü", b"")), BASE_MS)
    builder.append(None, b"v", (), BASE_MS + 1)
    builder.append(b"", None, (), -1)
    fake.append("t", 1, builder.build())
    frame = load(spark, fake, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    millis = frame.selectExpr("*", "unix_micros(timestamp) AS micros").orderBy("offset")
    rows = [r.asDict(recursive=True) for r in millis.drop("timestamp").collect()]
    common = {"topic": "t", "partition": 1, "timestampType": 0}
    headers = [{"key": "h", "value": b"1"}, {"key": "h", "value": None}, {"key": "ü", "value": b""}]
    expected = [
        {"key": b"k", "value": b"\x00\xff", "offset": 0, "headers": headers, "micros": BASE_MS * 1000},
        {"key": None, "value": b"v", "offset": 1, "headers": None, "micros": (BASE_MS + 1) * 1000},
        {"key": b"", "value": None, "offset": 2, "headers": None, "micros": -1000},
    ]
    assert rows == [common | e for e in expected]


def test_headers_are_left_out_unless_asked_for(spark: SparkSession, fake: FakeCluster) -> None:
    fake.create_topic("t")
    assert "headers" not in load(spark, fake).columns
    assert load(spark, fake).count() == 0


def test_append_time_is_shown_as_timestamp_type_1(spark: SparkSession, fake: FakeCluster) -> None:
    fake.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
    append_values(fake, "t", 0, range(1))
    [row] = load(spark, fake).select("timestamp", "timestampType").collect()
    assert row.timestampType == 1
    assert row.timestamp.year >= 2024


def test_two_topics_and_several_partitions_are_read_whole(spark: SparkSession, fake: FakeCluster) -> None:
    fake.create_topic("t", partitions=3)
    fake.create_topic("u")
    append_values(fake, "t", 0, range(25))
    append_values(fake, "t", 2, range(7))
    append_values(fake, "u", 0, range(3))
    expected = [("t", 0, i, i) for i in range(25)] + [("t", 2, i, i) for i in range(7)]
    expected += [("u", 0, i, i) for i in range(3)]
    assert values_of(load(spark, fake, "t,u")) == sorted(expected)


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_read(spark: SparkSession, fake: FakeCluster, codec: str) -> None:
    fake.create_topic("t")
    append_values(fake, "t", 0, range(200), codec, per_batch=50)
    assert values_of(load(spark, fake)) == [("t", 0, i, i) for i in range(200)]


def test_offsets_options_bound_what_is_read(spark: SparkSession, fake: FakeCluster) -> None:
    fake.create_topic("t", partitions=2)
    append_values(fake, "t", 0, range(30))
    append_values(fake, "t", 1, range(30))
    starting = json.dumps({"t": {"0": 12, "1": -2}})
    ending = json.dumps({"t": {"0": -1, "1": 5}})
    frame = load(spark, fake, startingOffsets=starting, endingOffsets=ending)
    assert values_of(frame) == [("t", 0, i, i) for i in range(12, 30)] + [("t", 1, i, i) for i in range(5)]


def test_frame_keeps_the_end_of_its_first_action(spark: SparkSession, fake: FakeCluster) -> None:
    fake.create_topic("t")
    append_values(fake, "t", 0, range(10))
    frame = load(spark, fake)
    assert frame.count() == 10
    append_values(fake, "t", 0, range(10, 20))
    assert values_of(frame) == [("t", 0, i, i) for i in range(10)], "Spark plans a source once per load()"
    assert load(spark, fake).count() == 20


def test_min_partitions_splits_without_changing_the_rows(spark: SparkSession, fake: FakeCluster) -> None:
    fake.create_topic("t")
    append_values(fake, "t", 0, range(100), per_batch=30)
    frame = load(spark, fake, minPartitions="4")
    assert frame.rdd.getNumPartitions() == 4
    assert values_of(frame) == [("t", 0, i, i) for i in range(100)]


def test_large_topic_comes_in_batches_of_ten_thousand_rows(spark: SparkSession, fake: FakeCluster) -> None:
    fake.create_topic("t")
    append_values(fake, "t", 0, range(45_000), "lz4", per_batch=15_000)
    summary = load(spark, fake).selectExpr("count(*)", "count(DISTINCT offset)", "sum(offset)", "max(offset)").first()
    assert tuple(summary) == (45_000, 45_000, sum(range(45_000)), 44_999)


def test_deleted_records_are_data_loss_unless_allowed(spark: SparkSession, fake: FakeCluster) -> None:
    fake.create_topic("t")
    append_values(fake, "t", 0, range(30))
    fake.delete_records("t", 0, 12)
    starting = json.dumps({"t": {"0": 3}})
    text = error_of(lambda: load(spark, fake, startingOffsets=starting).collect())
    assert "startingOffsets of t-0 is 3, the partition has [12, 30)" in text
    assert 'Set the option failOnDataLoss to "false"' in text
    frame = load(spark, fake, startingOffsets=starting, failOnDataLoss="false")
    assert values_of(frame) == [("t", 0, i, i) for i in range(12, 30)]
    assert values_of(load(spark, fake)) == [("t", 0, i, i) for i in range(12, 30)], "earliest is no loss"


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode._TRANSPORT]
)
def test_leader_changes_are_survived(spark: SparkSession, fake: FakeCluster, code: ErrorCode) -> None:
    fake.create_topic("t", partitions=2)
    append_values(fake, "t", 0, range(20))
    append_values(fake, "t", 1, range(20))
    fake.elect_leader("t", 0)
    for api in ("Fetch", "ListOffsets", "GetMetadata"):
        fake.fail_next(api, code, times=2)
    assert values_of(load(spark, fake)) == [("t", p, i, i) for p in range(2) for i in range(20)]


def test_new_leader_epoch_while_workers_keep_old_metadata(spark: SparkSession, fake: FakeCluster) -> None:
    fake.create_topic("t")
    append_values(fake, "t", 0, range(10))
    assert load(spark, fake).count() == 10
    fake.elect_leader("t", 0)
    append_values(fake, "t", 0, range(10, 20))
    assert values_of(load(spark, fake)) == [("t", 0, i, i) for i in range(20)]


def test_restarted_node_is_found_again(spark: SparkSession, fake: FakeCluster) -> None:
    fake.create_topic("t")
    append_values(fake, "t", 0, range(10))
    assert load(spark, fake).count() == 10
    fake.stop()
    fake.start()
    assert load(spark, fake).count() == 10


def test_missing_topic_is_named(spark: SparkSession, fake: FakeCluster) -> None:
    text = error_of(lambda: load(spark, fake, "absent").collect())
    assert 'UNKNOWN_TOPIC_OR_PARTITION: there is no topic "absent"' in text


def test_unreachable_cluster_is_named(spark: SparkSession) -> None:
    reader = spark.read.format("tidelog").option("bootstrap.servers", "127.0.0.1:1").option("subscribe", "t")
    text = error_of(lambda: reader.option("kafkaConsumer.pollTimeoutMs", "1500").load().collect())
    assert "_ALL_BROKERS_DOWN" in text or "_TIMED_OUT" in text
    assert "127.0.0.1:1" in text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffset": "earliest"}, 'unknown configuration "startingoffset"; did you mean "startingOffsets"?'),
        ({"startingOffsets": "{bad"}, "invalid startingOffsets '{bad'"),
        ({"startingOffsets": '{"t":{"5":1}}'}, "it names t-5, the topics have t-0"),
        ({"endingOffsets": '{"t":{"0":99}}'}, "endingOffsets of t-0 is 99, the partition has [0, 0)"),
        ({"startingOffsets": "latest"}, "startingOffsets can't be latest (-1) in a batch query"),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is for streaming queries"),
    ],
)
def test_bad_options_say_what_is_wrong(
    spark: SparkSession, fake: FakeCluster, options: dict[str, str], text: str
) -> None:
    fake.create_topic("t")
    assert text in error_of(lambda: load(spark, fake, **options).collect())


def test_own_schema_is_refused(spark: SparkSession, fake: FakeCluster) -> None:
    fake.create_topic("t")
    reader = spark.read.format("tidelog").option("bootstrap.servers", fake.bootstrap_servers).option("subscribe", "t")
    text = error_of(lambda: reader.schema("value string").load().collect())
    assert "the tidelog source has a fixed schema" in text


def test_times_are_utc_in_sql(spark: SparkSession, fake: FakeCluster) -> None:
    fake.create_topic("t")
    append_values(fake, "t", 0, range(1))
    [row] = load(spark, fake).selectExpr("string(timestamp) AS text").collect()
    moment = datetime.datetime.fromtimestamp(BASE_MS / 1000, datetime.UTC)
    assert row == Row(text=moment.strftime("%Y-%m-%d %H:%M:%S.") + "123")


def test_block_of_the_readme_shows_the_records(
    spark: SparkSession, fake: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.create_topic("orders")
    append_values(fake, "orders", 0, range(7, 8))
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    [block] = [b for b in blocks_of(readme) if b.language == "python" and "spark.read" in b.text]
    exec(block.text.replace("localhost:9094", fake.bootstrap_servers), {})
    assert "|    7|     0|" in capsys.readouterr().out

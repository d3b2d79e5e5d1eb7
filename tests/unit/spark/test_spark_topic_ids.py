"""A topic that is deleted and created again is another topic, in a stream, in its restarts and in a batch query."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tidelog.testing import FakeCluster
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.records import RecordBatchBuilder
from tidelog_spark.source.losses import DataLossError
from tidelog_spark.source.options import batch_plan, parse_options, stream_plan
from tidelog_spark.source.reader import TidelogReader, TidelogStreamReader
from tidelog_spark.source.schema import spark_schema
from tidelog_spark.source.stream_offsets import OffsetTree
from tidelog_testing.embedded import NODE_ID

TOPIC = "t"
MOST = ReadAllAvailable()


@pytest.fixture(scope="module")
def shared() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        yield cluster


@pytest.fixture
def fake(shared: FakeCluster) -> Iterator[FakeCluster]:
    """The cluster with the topic, which has ten records."""
    shared.create_topic(TOPIC)
    append(shared, 10, b"old")
    yield shared
    shared.delete_topic(TOPIC)


def append(cluster: FakeCluster, count: int, value: bytes) -> None:
    builder = RecordBatchBuilder()
    for _ in range(count):
        builder.append(None, value, (), 0)
    cluster.append(TOPIC, 0, builder.build())


def create_again(cluster: FakeCluster, count: int) -> None:
    cluster.delete_topic(TOPIC)
    cluster.create_topic(TOPIC)
    append(cluster, count, b"new")


def reader_of(cluster: FakeCluster, *, fail: bool = False, **options: str) -> TidelogStreamReader:
    raw = {"bootstrap.servers": cluster.bootstrap_servers, "subscribe": TOPIC, "startingOffsets": "earliest"}
    raw |= {"failOnDataLoss": str(fail).lower(), **options}
    return TidelogStreamReader(stream_plan(parse_options(raw)), spark_schema(False))


def first_end(reader: TidelogStreamReader) -> OffsetTree:
    return reader.latestOffset(reader.initialOffset(), MOST)


def values_of(reader: Any, parts: Any) -> list[bytes]:
    return [row["value"] for part in parts for rows in reader.read(part) for row in rows.to_pylist()]


@pytest.mark.parametrize("records", [3, 10, 25])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_topic_created_again_is_an_error_that_names_both_ids(
    fake: FakeCluster, records: int, is_restarted: bool
) -> None:
    reader = reader_of(fake, fail=True)
    end = first_end(reader)
    create_again(fake, records)
    new_id = first_end(reader_of(fake))["@ids"][TOPIC]
    reader = reader_of(fake, fail=True) if is_restarted else reader
    with pytest.raises(DataLossError, match=rf'topic "t" .* its id was {end["@ids"][TOPIC]} and is {new_id}') as raised:
        reader.latestOffset(end, MOST)
    assert raised.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


@pytest.mark.parametrize("records", [3, 10, 25])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_topic_created_again_is_read_from_its_first_record_and_the_rest_is_counted(
    fake: FakeCluster, records: int, is_restarted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    reader = reader_of(fake)
    start = reader.latestOffset(reader.initialOffset(), ReadMaxRows(4))
    assert len(values_of(reader, reader.partitions(reader.initialOffset(), start))) == 4
    create_again(fake, records)
    reader = reader_of(fake) if is_restarted else reader
    end = reader.latestOffset(start, MOST)
    assert values_of(reader, reader.partitions(start, end)) == [b"new"] * records
    assert reader.losses.total == (0 if is_restarted else 6), "a restarted query does not know the old topic's end"
    assert len(re.findall("Data loss", caplog.text)) == 1
    assert reader.latestOffset(end, MOST) == end
    assert len(re.findall("Data loss", caplog.text)) == 1


def test_limit_of_a_batch_applies_to_the_new_topic_from_its_first_record(fake: FakeCluster) -> None:
    reader = reader_of(fake)
    start = first_end(reader)
    create_again(fake, 25)
    assert reader.latestOffset(start, ReadMaxRows(7))[TOPIC] == {"0": 7}


def test_replayed_batch_of_the_old_topic_reads_no_record_of_the_new_one(fake: FakeCluster) -> None:
    start = first_end(reader_of(fake))
    append(fake, 5, b"old")
    end = reader_of(fake).latestOffset(start, MOST)
    create_again(fake, 40)
    reader = reader_of(fake)
    assert values_of(reader, reader.partitions(start, end)) == []
    assert reader.losses.total == 5
    with pytest.raises(DataLossError, match="was deleted and created again"):
        reader_of(fake, fail=True).partitions(start, end)
    assert values_of(reader, reader.partitions(end, reader.latestOffset(end, MOST))) == [b"new"] * 40


@pytest.mark.parametrize("is_deleted", [False, True])
def test_topic_that_changes_between_planning_and_reading_is_not_mixed_up(
    fake: FakeCluster, is_deleted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    strict, lenient = reader_of(fake, fail=True), reader_of(fake)
    end = first_end(strict)
    parts = strict.partitions(strict.initialOffset(), end)
    if is_deleted:
        fake.delete_topic(TOPIC)
    else:
        create_again(fake, 40)
    with pytest.raises(DataLossError, match=r'topic "t" .*deleted'):
        values_of(strict, parts)
    assert values_of(lenient, parts) == []
    assert "skipped 10 offsets" in caplog.text
    if is_deleted:
        fake.create_topic(TOPIC)


def test_batch_query_reads_no_record_of_a_topic_that_is_created_after_its_planning(fake: FakeCluster) -> None:
    raw = {"bootstrap.servers": fake.bootstrap_servers, "subscribe": TOPIC}
    readers = [
        TidelogReader(batch_plan(parse_options(raw | {"failOnDataLoss": fail})), spark_schema(False))
        for fail in ("true", "false")
    ]
    parts = readers[0].partitions()
    create_again(fake, 40)
    with pytest.raises(DataLossError, match="was deleted and created again"):
        values_of(readers[0], parts)
    assert values_of(readers[1], parts) == []


def test_available_now_leaves_a_topic_that_is_created_again_meanwhile_to_the_next_run(fake: FakeCluster) -> None:
    reader = reader_of(fake)
    reader.prepareForTriggerAvailableNow()
    start = reader.latestOffset(reader.initialOffset(), ReadMaxRows(4))
    create_again(fake, 25)
    assert reader.latestOffset(start, MOST) == start
    assert reader.losses.total == 6
    later = reader_of(fake)
    later.prepareForTriggerAvailableNow()
    end = later.latestOffset(start, MOST)
    assert values_of(later, later.partitions(start, end)) == [b"new"] * 25


def test_checkpoint_without_ids_goes_on_and_learns_them(fake: FakeCluster) -> None:
    reader = reader_of(fake, fail=True)
    end = reader.latestOffset({TOPIC: {"0": 10}}, MOST)
    assert (end[TOPIC], set(end["@ids"])) == ({"0": 10}, {TOPIC}), "an empty micro-batch logs the ids"
    assert reader.partitions({TOPIC: {"0": 10}}, end) == []
    assert json.dumps(reader.latestOffset(end, MOST)) == json.dumps(end)
    assert len(values_of(reader, reader.partitions({TOPIC: {"0": 4}}, {TOPIC: {"0": 10}}))) == 6
    create_again(fake, 25)
    with pytest.raises(DataLossError):
        reader.latestOffset(end, MOST)


def test_metadata_of_a_node_that_lags_behind_is_not_taken_for_another_topic() -> None:
    with FakeCluster() as fake:
        fake.create_topic(TOPIC)
        append(fake, 10, b"old")
        reader = reader_of(fake, fail=True)
        end = first_end(reader)
        answers = iter([b"x" * 16])
        asked: list[bytes] = []

        def answer(request: pb.GetMetadataRequest) -> pb.GetMetadataResponse:
            """Answer first as a node that still has an earlier topic of the name."""
            asked.append(next(answers, base64.urlsafe_b64decode(end["@ids"][TOPIC] + "==")))
            host, port = fake.bootstrap_servers.split(":")
            partition = pb.PartitionMetadata(index=0, leader_id=NODE_ID)
            return pb.GetMetadataResponse(
                cluster_id=fake.cluster_id,
                brokers=[pb.BrokerMetadata(node_id=NODE_ID, host=host, port=int(port))],
                topics=[pb.TopicMetadata(name=TOPIC, topic_id=asked[-1], partitions=[partition])],
            )

        fake.answer_with("GetMetadata", answer)
        assert reader.latestOffset(end, MOST) == end
        assert asked[0] == b"x" * 16


def test_retention_is_an_error_or_a_counted_loss(fake: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    reader, strict = reader_of(fake), reader_of(fake, fail=True)
    start = first_end(reader)
    append(fake, 10, b"old")
    append(fake, 10, b"old")
    fake.delete_records(TOPIC, 0, 20)
    end = reader.latestOffset(start, MOST)
    assert len(values_of(reader, reader.partitions(start, end))) == 10
    assert (reader.losses.total, [loss.size for loss in reader.losses.last]) == (10, [10])
    assert "skipped 10 offsets: offsets [10, 20) of t-0: offset 10 is gone, the partition has [20, 30)" in caplog.text
    reader.latestOffset(end, MOST)
    assert (reader.losses.total, reader.losses.last) == (10, ())
    report = reader.reportLatestOffset() or {}
    assert (report["@lost"], report["@lostAtMost"]) == (10, 10)
    with pytest.raises(DataLossError, match="offset 10 is gone"):
        strict.partitions(start, strict.latestOffset(start, MOST))


def test_offsets_that_tasks_may_have_lost_are_in_the_next_progress(fake: FakeCluster) -> None:
    reader = reader_of(fake)
    start = first_end(reader)
    append(fake, 10, b"old")
    end = reader.latestOffset(start, MOST)
    planned = reader.partitions(start, end)
    assert "@lostAtMost" not in (reader.reportLatestOffset() or {})
    append(fake, 10, b"new")
    fake.delete_records(TOPIC, 0, 13)
    assert len(values_of(reader, planned)) == 7
    for _ in range(2):
        reader.latestOffset(end, MOST)
        report = reader.reportLatestOffset() or {}
        assert (report.get("@lost"), report["@lostAtMost"]) == (None, 3)

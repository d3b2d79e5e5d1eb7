"""The stream reader driven as Spark drives it, without a JVM: no order of appends, crashes and replays loses a record.

`SparkModel` keeps what Spark keeps: the offset log, the commits and a sink that takes each batch id once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tidelog.testing import FakeCluster
from tidelog_foundation.errors import ConfigError, TidelogError
from tidelog_foundation.records import RecordBatchBuilder
from tidelog_spark.source.offsets import OffsetRange
from tidelog_spark.source.options import batch_plan, parse_options, stream_plan
from tidelog_spark.source.reader import TidelogReader, TidelogStreamReader
from tidelog_spark.source.schema import spark_schema
from tidelog_spark.source.stream_offsets import OffsetTree

PARTITIONS = 2
Place = tuple[int, int]


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        yield cluster


@dataclass
class SparkModel:
    """One streaming query and its checkpoint; ``crash`` forgets the reader, as a new process does."""

    cluster: FakeCluster
    topic: str
    options: dict[str, str]
    offset_log: list[OffsetTree] = field(default_factory=list)
    committed: int = 0
    sink: dict[int, list[Place]] = field(default_factory=dict)
    reader: TidelogStreamReader | None = None
    first_start: OffsetTree | None = None

    def new_reader(self) -> TidelogStreamReader:
        raw = {"bootstrap.servers": self.cluster.bootstrap_servers, **self.options}
        raw |= {"subscribe": self.topic} if self.topic else {}
        return TidelogStreamReader(stream_plan(parse_options(raw)), spark_schema(False))

    def trigger(self, append: int, crash: str) -> bool:
        """Run one micro-batch, with records that arrive between start and end; return whether there was one."""
        self.reader = self.reader or self.new_reader()
        start = self.offset_log[self.committed - 1] if self.committed else self.reader.initialOffset()
        if not self.committed:
            assert self.reader.initialOffset() == start, "Spark asks twice"
        append_records(self.cluster, self.topic, append)
        if len(self.offset_log) == self.committed:
            end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
            if self.committed and end == start:
                return False
            if not self.committed:
                self.first_start = end["@start"]
            self.offset_log.append(end)
        if crash == "logged":
            return self.crash()
        self.write(start, self.offset_log[self.committed])
        if crash == "written":
            return self.crash()
        self.committed += 1
        return True

    def write(self, start: OffsetTree, end: OffsetTree) -> None:
        assert self.reader is not None
        batches = [b for part in self.reader.partitions(start, end) for b in self.reader.read(part)]
        rows = [(r["partition"], r["offset"]) for b in batches for r in b.to_pylist()]
        self.sink.setdefault(self.committed, rows)

    def crash(self) -> bool:
        self.reader = None
        return True

    def delivered(self) -> list[Place]:
        return sorted(place for rows in self.sink.values() for place in rows)

    def expected(self) -> list[Place]:
        assert self.first_start is not None
        starts = self.first_start[self.topic]
        ends = [self.cluster.end_offset(self.topic, p) for p in range(PARTITIONS)]
        return [(p, o) for p in range(PARTITIONS) for o in range(starts[str(p)], ends[p])]


def append_records(cluster: FakeCluster, topic: str, count: int) -> None:
    for i in range(count):
        builder = RecordBatchBuilder()
        builder.append(None, b"v", (), 0)
        cluster.append(topic, i % PARTITIONS, builder.build())


topics = iter(f"model-{i}" for i in range(1_000_000))


@settings(max_examples=examples(15), deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 6), st.sampled_from(["", "", "logged", "written"]), st.integers(0, 3)), max_size=8
    ),
    starting=st.sampled_from(["latest", "earliest", ""]),
    limit=st.sampled_from(["", "1", "4"]),
)
def test_no_record_is_lost_or_read_twice_whatever_crashes(
    fake: FakeCluster, steps: list[tuple[int, str, int]], starting: str, limit: str
) -> None:
    topic = next(topics)
    fake.create_topic(topic, PARTITIONS)
    append_records(fake, topic, 3)
    given_options = {"startingOffsets": starting, "maxOffsetsPerTrigger": limit}
    model = SparkModel(fake, topic, {key: value for key, value in given_options.items() if value})
    for during, crash, after in steps:
        model.trigger(during, crash)
        append_records(fake, topic, after)
    idle = 0
    for _ in range(150):
        # A reader that is new, where the offsets of the first batch are logged, says once that there is nothing new.
        idle = 0 if model.trigger(0, "") else idle + 1
        if idle == 2 and model.committed:
            break
    assert model.delivered() == model.expected()


def reader_of(fake: FakeCluster, topic: str, **options: str) -> TidelogStreamReader:
    return SparkModel(fake, topic, options).new_reader()


def test_target_of_available_now_bounds_later_records(fake: FakeCluster) -> None:
    fake.create_topic("target", PARTITIONS)
    append_records(fake, "target", 4)
    reader = reader_of(fake, "target", startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    append_records(fake, "target", 4)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert end["target"] == {"0": 2, "1": 2}
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    latest = reader.reportLatestOffset()
    assert latest is not None
    assert latest["target"] == {"0": 4, "1": 4}


def test_limit_of_the_trigger_wins_over_the_option(fake: FakeCluster) -> None:
    fake.create_topic("limits", PARTITIONS)
    append_records(fake, "limits", 10)
    reader = reader_of(fake, "limits", startingOffsets="earliest", maxOffsetsPerTrigger="4")
    start = reader.initialOffset()
    assert reader.latestOffset(start, reader.getDefaultReadLimit())["limits"] == {"0": 2, "1": 2}
    assert reader.latestOffset(start, ReadAllAvailable())["limits"] == {"0": 5, "1": 5}


def test_deleted_topic_keeps_its_offsets_where_data_loss_is_allowed(fake: FakeCluster) -> None:
    fake.create_topic("gone", PARTITIONS)
    append_records(fake, "gone", 4)
    reader = reader_of(fake, "gone", startingOffsets="earliest", failOnDataLoss="false")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    fake.delete_topic("gone")
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert reader.losses.total == 0, "all its records were read"


def plain(tree: OffsetTree) -> OffsetTree:
    """Return the offsets without ids."""
    return {topic: parts for topic, parts in tree.items() if not topic.startswith("@")}


def start_of(reader: TidelogStreamReader) -> OffsetTree:
    """Return the start that the first planning resolves."""
    return plain(reader.latestOffset(reader.initialOffset(), ReadAllAvailable())["@start"])


def append_at(cluster: FakeCluster, topic: str, *timestamps_ms: int) -> None:
    for timestamp_ms in timestamps_ms:
        builder = RecordBatchBuilder()
        builder.append(None, b"v", (), timestamp_ms)
        cluster.append(topic, 0, builder.build())


def test_stream_starts_at_the_first_record_of_a_timestamp(fake: FakeCluster) -> None:
    fake.create_topic("times", 1)
    append_at(fake, "times", 100, 200, 300)
    assert start_of(reader_of(fake, "times", startingTimestamp="150")) == {"times": {"0": 1}}
    by_partition = {"startingOffsetsByTimestamp": '{"times":{"0":201}}'}
    assert start_of(reader_of(fake, "times", **by_partition)) == {"times": {"0": 2}}
    late = {"startingTimestamp": "301"}
    with pytest.raises(ConfigError, match=r"times-0 has no record with a timestamp of 301 or later"):
        start_of(reader_of(fake, "times", **late))
    latest = {**late, "startingOffsetsByTimestampStrategy": "latest"}
    assert start_of(reader_of(fake, "times", **latest)) == {"times": {"0": 3}}


def test_batch_ends_before_the_first_record_of_a_timestamp(fake: FakeCluster) -> None:
    fake.create_topic("ends", 1)
    append_at(fake, "ends", 100, 200, 300)
    for end, count in (("200", 1), ("201", 2), ("999", 3)):
        raw = {"bootstrap.servers": fake.bootstrap_servers, "subscribe": "ends", "endingTimestamp": end}
        [planned] = TidelogReader(batch_plan(parse_options(raw)), spark_schema(False)).partitions()
        assert str(planned.value) == str(OffsetRange("ends", 0, 0, count))


def test_available_now_reads_from_a_timestamp_at_once(fake: FakeCluster) -> None:
    fake.create_topic("times-now", 1)
    append_at(fake, "times-now", 100, 200)
    options = {"startingTimestamp": "150", "startingOffsetsByTimestampStrategy": "latest"}
    reader = reader_of(fake, "times-now", **options)
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert (end["times-now"], end["@start"]["times-now"]) == ({"0": 2}, {"0": 1})


def test_small_batch_waits_for_more_records_but_not_under_available_now(fake: FakeCluster) -> None:
    fake.create_topic("small", PARTITIONS)
    reader = reader_of(fake, "small", startingOffsets="earliest", minOffsetsPerTrigger="4", maxTriggerDelay="1h")
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    append_records(fake, "small", 3)
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    append_records(fake, "small", 1)
    before = reader.latestOffset(start, ReadAllAvailable())
    assert before["small"] == {"0": 3, "1": 1}
    append_records(fake, "small", 1)
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(before, ReadAllAvailable())["small"] == {"0": 4, "1": 1}


def test_pattern_reads_topics_that_appear_later_from_their_first_record(fake: FakeCluster) -> None:
    fake.create_topic("seen-a", 1)
    reader = reader_of(fake, "", subscribePattern="seen-.*", startingOffsets="latest")
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert plain(start) == {"seen-a": {"0": 0}}
    fake.create_topic("seen-b", 1)
    fake.create_topic("unseen", 1)
    append_at(fake, "seen-b", 1, 2)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert plain(end) == {"seen-a": {"0": 0}, "seen-b": {"0": 2}}
    assert [str(p.value) for p in reader.partitions(start, end)] == ["seen-b-0 [0, 2)"]


def test_assigned_partitions_are_read_alone_and_must_exist(fake: FakeCluster) -> None:
    fake.create_topic("assigned", PARTITIONS)
    append_records(fake, "assigned", 4)
    reader = reader_of(fake, "", assign='{"assigned":[1]}', startingOffsets="earliest")
    assert plain(reader.latestOffset(reader.initialOffset(), ReadAllAvailable())) == {"assigned": {"1": 2}}
    with pytest.raises(TidelogError, match="assigned"):
        start_of(reader_of(fake, "", assign='{"assigned":[1,7]}'))

"""Ranges are fetched whole through errors, in their order, and what is lost is told."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tidelog import Producer
from tidelog.testing import FakeCluster
from tidelog.v1 import common_pb2 as pb_common
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import CorruptRecordError, ErrorCode, TidelogError
from tidelog_foundation.records import Record, RecordBatchBuilder, iter_headers, read_records
from tidelog_spark.source import fetcher
from tidelog_spark.source.bounds import LogBounds
from tidelog_spark.source.fetcher import bytes_to_request, fetch_range
from tidelog_spark.source.losses import DataLossError
from tidelog_spark.source.offsets import OffsetRange
from tidelog_spark.source.options import SourceOptions
from tidelog_testing.embedded import NODE_ID


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        for first in range(0, 50, 10):
            builder = RecordBatchBuilder()
            for i in range(10):
                builder.append(None, str(first + i).encode(), (), 0)
            cluster.append("t", 0, builder.build())
        yield cluster


def options_of(fake: FakeCluster, poll_timeout_ms: int = 20_000, fail_on_data_loss: bool = True) -> SourceOptions:
    return SourceOptions(
        fake.bootstrap_servers, ("t",), poll_timeout_ms=poll_timeout_ms, fail_on_data_loss=fail_on_data_loss
    )


def spans(options: SourceOptions, start: int, end: int) -> list[tuple[int, int]]:
    return [(f.offset, f.next_offset) for f in fetch_range(options, OffsetRange("t", 0, start, end))]


def test_small_fetches_follow_each_other_without_gaps(fake: FakeCluster) -> None:
    assert spans(replace(options_of(fake), max_partition_fetch_bytes=1), 5, 35) == [
        (5, 10),
        (10, 20),
        (20, 30),
        (30, 40),
    ]


def test_requests_are_as_large_as_the_rest_of_the_range_and_no_larger_than_the_option() -> None:
    option = 4 * 1024 * 1024

    assert bytes_to_request(100, 256.0, option) == 64 * 1024
    assert bytes_to_request(10_000, 113.0, option) == 1_130_000
    assert bytes_to_request(1_000_000, 113.0, option) == option
    assert bytes_to_request(1_000_000, 113.0, 1) == 1


def test_small_range_of_a_large_partition_reads_little_beyond_itself(fake: FakeCluster) -> None:
    builder = RecordBatchBuilder()
    builder.append(None, bytes(100_000), (), 0)
    for _ in range(10):
        fake.append("t", 0, builder.build())

    assert spans(options_of(fake), 50, 51) == [(50, 51)]
    assert spans(options_of(fake), 50, 59) == [(50, 51), (51, 59)]


@pytest.mark.parametrize("is_down", [False, True])
def test_range_is_read_from_the_replica_that_the_leader_prefers(fake: FakeCluster, is_down: bool) -> None:
    [batches] = [fetched.records for fetched in fetch_range(options_of(fake), OffsetRange("t", 0, 0, 50))]
    racks: list[str] = []

    def answer(request: pb.FetchRequest) -> pb.FetchResponse:
        racks.append(request.rack_id)
        result = pb.FetchPartitionResult(index=0, high_watermark=50, records=batches)
        if len(racks) == 1:
            result = pb.FetchPartitionResult(index=0, high_watermark=50, preferred_read_replica=NODE_ID)
        elif is_down and request.rack_id:
            result = pb.FetchPartitionResult(index=0, error=pb_common.Error(code=6, message="not a replica"))
        return pb.FetchResponse(topics=[pb.FetchTopicResult(name="t", partitions=[result])])

    fake.answer_with("Fetch", answer)
    assert spans(replace(options_of(fake), client_rack="a"), 0, 50) == [(0, 50)]
    assert racks == (["a", "a", ""] if is_down else ["a", "a"])


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode._TRANSPORT,
    ],
)
def test_retriable_errors_are_waited_out(fake: FakeCluster, code: ErrorCode) -> None:
    fake.fail_next("Fetch", code, times=3)
    fake.fail_next("GetMetadata", ErrorCode.LEADER_NOT_AVAILABLE, times=2)
    assert spans(options_of(fake), 0, 50) == [(0, 50)]
    assert fake.calls("Fetch") == 4


def test_fenced_epoch_is_learnt_from_the_answer(fake: FakeCluster) -> None:
    options = options_of(fake)
    assert spans(options, 0, 50) == [(0, 50)]
    fake.elect_leader("t", 0)
    assert spans(options, 0, 50) == [(0, 50)]


def test_permanent_errors_are_raised_at_once(fake: FakeCluster) -> None:
    fake.fail_next("Fetch", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(TidelogError, match=r"TOPIC_AUTHORIZATION_FAILED: t-0 \[0, 50\)"):
        spans(options_of(fake), 0, 50)
    assert fake.calls("Fetch") == 1


def test_deadline_without_progress_names_the_offset(fake: FakeCluster) -> None:
    with pytest.raises(TidelogError, match=r"t-0 \[0, 60\): nothing at offset 50, the high watermark is 50"):
        spans(options_of(fake, poll_timeout_ms=1_000), 0, 60)


def test_last_answer_before_the_deadline_is_the_reason_though_a_later_request_has_none(fake: FakeCluster) -> None:
    empty = pb.FetchPartitionResult(index=0, high_watermark=50)
    response = pb.FetchResponse(topics=[pb.FetchTopicResult(name="t", partitions=[empty])])
    asked, is_over = itertools.count(), threading.Event()

    def answer_once(request: object) -> pb.FetchResponse:
        if next(asked):
            is_over.wait(20)
        return response

    fake.answer_with("Fetch", answer_once)
    try:
        with pytest.raises(TidelogError, match=r"t-0 \[50, 60\): nothing at offset 50, the high watermark is 50"):
            spans(options_of(fake, poll_timeout_ms=1_000), 50, 60)
    finally:
        is_over.set()
    assert fake.calls("Fetch") == 2


def test_records_that_arrive_late_complete_the_range(fake: FakeCluster) -> None:
    fetches = fetch_range(options_of(fake), OffsetRange("t", 0, 40, 51))
    assert next(fetches).next_offset == 50
    builder = RecordBatchBuilder()
    builder.append(None, b"50", (), 0)
    fake.append("t", 0, builder.build())
    assert [f.next_offset for f in fetches] == [51]


@pytest.mark.parametrize(("start", "deleted", "found"), [(3, 25, [(25, 50)]), (3, 50, [])])
def test_deleted_records_are_skipped_only_when_allowed(
    fake: FakeCluster, start: int, deleted: int, found: list[tuple[int, int]]
) -> None:
    fake.delete_records("t", 0, deleted)
    with pytest.raises(TidelogError, match=rf"offset 3 is gone, the partition has \[{deleted}, 50\)") as raised:
        spans(options_of(fake), start, 50)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert spans(options_of(fake, fail_on_data_loss=False), start, 50) == found


def test_deleted_topic_ends_the_read(fake: FakeCluster) -> None:
    options = options_of(fake)
    planned = OffsetRange("t", 0, 0, 50, LogBounds(options).look().ids["t"])
    fake.delete_topic("t")
    with pytest.raises(DataLossError, match=r'UNKNOWN_TOPIC_OR_PARTITION: .*topic "t" with id .* is deleted'):
        list(fetch_range(options, planned))


def test_offset_after_refuses_batches_that_end_before() -> None:
    builder = RecordBatchBuilder()
    builder.append(None, b"v", (), 0)
    with pytest.raises(CorruptRecordError, match="a fetch from offset 7"):
        fetcher._offset_after(builder.build(), 7)


def test_abandoned_read_leaves_nothing_behind(fake: FakeCluster) -> None:
    fetches = fetch_range(options_of(fake), OffsetRange("t", 0, 0, 60))
    assert next(fetches).next_offset == 50
    fetches.close()
    assert spans(options_of(fake), 0, 50) == [(0, 50)]


@pytest.mark.parametrize(
    ("isolation", "values"), [("read_committed", [b"a", b"c"]), ("read_uncommitted", [b"a", b"b", b"c", b"d"])]
)
def test_records_of_aborted_and_open_transactions_are_left_out(
    fake: FakeCluster, isolation: str, values: list[bytes]
) -> None:
    fake.create_topic("transactions")
    with Producer({"bootstrap.servers": fake.bootstrap_servers, "transactional.id": isolation}) as producer:
        producer.init_transactions(10)
        for value, end in ((b"a", producer.commit_transaction), (b"b", producer.abort_transaction)):
            producer.begin_transaction()
            producer.produce("transactions", value)
            producer.flush(10)
            end(10)
        with producer.transaction():
            producer.produce("transactions", b"c")
        producer.begin_transaction()
        producer.produce("transactions", b"d")
        producer.flush(10)
        options = SourceOptions(fake.bootstrap_servers, ("transactions",), isolation_level=isolation)
        (end_of_log,) = (offset for offset in LogBounds(options).look().latest.values())
        assert end_of_log == (6 if isolation == "read_committed" else 7)
        planned = OffsetRange("transactions", 0, 0, end_of_log)
        fetched = [record.value for f in fetch_range(options, planned) for record in all_records(f.records)]
        assert fetched == values


def all_records(batches: bytes) -> Iterator[Record]:
    """Yield the records of all batches except control records."""
    for position, header in iter_headers(batches):
        if not header.is_control:
            yield from read_records(batches[position : position + header.size_in_bytes])

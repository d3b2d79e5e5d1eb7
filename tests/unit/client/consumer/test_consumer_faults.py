"""The consumer against a node that fails: each record is delivered once and in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from acknowledged import wait_for

from tidelog import OFFSET_BEGINNING, OFFSET_INVALID, Consumer, KafkaException, TopicPartition
from tidelog.testing import FakeCluster
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.records import RecordBatchBuilder
from tidelog_foundation.transport import call_soon


def batch(first: int, count: int) -> bytes:
    builder = RecordBatchBuilder()
    for n in range(first, first + count):
        builder.append(None, b"%d" % n, (), 1)
    return builder.build()


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as running:
        running.create_topic("t", 2)
        for partition in (0, 1):
            for first in range(0, 100, 10):
                running.append("t", partition, batch(first, 10))
        yield running


def make(cluster: FakeCluster, **config: Any) -> Consumer:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    quick = {"retry.backoff.ms": 10, "retry.backoff.max.ms": 50}
    return Consumer({"bootstrap.servers": cluster.bootstrap_servers, **quick, **settings})


BOTH = [TopicPartition("t", p, OFFSET_BEGINNING) for p in (0, 1)]


@pytest.mark.parametrize("api", ["Fetch", "ListOffsets", "GetMetadata"])
@pytest.mark.parametrize(
    "code", [ErrorCode._TRANSPORT, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH]
)
def test_consumer_goes_on_at_the_same_offset_after_errors_that_pass(
    cluster: FakeCluster, api: str, code: ErrorCode
) -> None:
    with make(cluster, max_partition_fetch_bytes=200) as consumer:
        cluster.fail_next(api, code, times=3)
        consumer.assign(BOTH)
        seen = consumer.consume(50, 20)
        cluster.fail_next(api, code, times=3)
        seen += consumer.consume(150, 20)
    for partition in (0, 1):
        assert [m.offset() for m in seen if m.partition() == partition] == list(range(100))


def test_consumer_follows_a_new_leader_epoch(cluster: FakeCluster) -> None:
    with make(cluster, max_partition_fetch_bytes=200) as consumer:
        consumer.assign(BOTH[:1])
        seen = consumer.consume(5, 20)
        cluster.elect_leader("t", 0)
        seen += consumer.consume(95, 20)
    assert [m.offset() for m in seen] == list(range(100))


def test_consumer_survives_a_restart_and_reports_the_outage(cluster: FakeCluster) -> None:
    with make(cluster, max_partition_fetch_bytes=200, queued_max_messages_kbytes=1, request_timeout_ms=500) as consumer:
        consumer.assign(BOTH[:1])
        seen = consumer.consume(5, 20)
        cluster.stop()
        while not seen[-1].error():
            seen += consumer.consume(1, 20)
        cluster.start()
        outage = seen.pop()
        assert outage.error() == ErrorCode._ALL_BROKERS_DOWN.code
        seen += consumer.consume(100 - len(seen), 20)
    assert [m.offset() for m in seen] == list(range(100))


def test_consumer_continues_after_records_were_deleted_below_it(cluster: FakeCluster) -> None:
    cluster.delete_records("t", 0, 55)
    with make(cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 0, 3)])
        assert [m.offset() for m in consumer.consume(45, 20)] == list(range(55, 100))


def test_consumer_reads_from_the_middle_of_a_batch(cluster: FakeCluster) -> None:
    with make(cluster) as consumer:
        consumer.assign([TopicPartition("t", 0, 37)])
        assert [m.value() for m in consumer.consume(3, 20)] == [b"37", b"38", b"39"]


def test_consumer_without_offset_starts_where_auto_offset_reset_says(cluster: FakeCluster) -> None:
    with make(cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        [message] = consumer.consume(1, 20)
        assert message.offset() == 0
    with make(cluster, auto_offset_reset="error") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        [message] = consumer.consume(1, 20)
        error = message.error()
        assert error is not None
        assert error.name() == "_AUTO_OFFSET_RESET"


def test_consumer_wakes_a_long_poll_for_a_seek(cluster: FakeCluster) -> None:
    with make(cluster, fetch_wait_max_ms=60_000) as consumer:
        consumer.assign([TopicPartition("t", 0, 100)])
        assert consumer.poll(0.2) is None
        consumer.seek(TopicPartition("t", 0, 98))
        assert [m.offset() for m in consumer.consume(2, 10)] == [98, 99]


def test_consumer_reports_a_corrupt_batch_and_stops_until_a_seek(cluster: FakeCluster) -> None:
    damaged = bytearray(batch(0, 3))
    damaged[-1] ^= 1
    with make(cluster) as consumer:
        consumer.assign([TopicPartition("t", 0, 95)])
        seen = consumer.consume(5, 20)
        assert seen[-1].offset() == 99
        with consumer._lock:
            consumer._queue.put(_delivery(consumer, bytes(damaged)))
        [event] = consumer.consume(1, 20)
        error = event.error()
        assert error is not None
        assert error.name() == "CORRUPT_MESSAGE"
        cluster.append("t", 0, batch(100, 1))
        assert consumer.poll(0.2) is None
        consumer.seek(TopicPartition("t", 0, 100))
        assert [m.offset() for m in consumer.consume(1, 20)] == [100]


def _delivery(consumer: Consumer, records: bytes) -> Any:
    from tidelog.consumer.core.events import Deliver

    state = consumer._positions.state("t", 0)
    assert state is not None
    consumer._positions.queued_bytes += len(records)
    return Deliver("t", 0, state.generation, 0, records)


def test_consumer_reads_other_partitions_while_the_offset_of_one_cannot_be_found(cluster: FakeCluster) -> None:
    with make(cluster, auto_offset_reset="earliest", request_timeout_ms=60_000) as consumer:
        consumer.assign([TopicPartition("missing", 0), TopicPartition("t", 0)])
        values = [m.value() for m in consumer.consume(11, 5) if not m.error()]
    assert values[:10] == [b"%d" % n for n in range(10)]


def test_consumer_close_ends_a_poll_in_another_thread(cluster: FakeCluster) -> None:
    consumer = make(cluster)
    consumer.assign([TopicPartition("t", 0, 100)])
    thread = threading.Thread(target=consumer.poll)
    thread.start()
    consumer.close()
    thread.join(10)
    assert not thread.is_alive()


def test_consumer_asks_for_metadata_again_when_it_is_old(cluster: FakeCluster) -> None:
    with make(cluster, metadata_max_age_ms=100) as consumer:
        consumer.assign(BOTH)
        assert len(consumer.consume(10, 20)) == 10
        before = cluster.calls("GetMetadata")
        deadline = time.monotonic() + 10
        while cluster.calls("GetMetadata") < before + 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_consumer_refuses_what_is_not_assigned_or_invalid_and_use_after_close(cluster: FakeCluster) -> None:
    consumer = make(cluster)
    for call in (consumer.seek, lambda p: consumer.pause([p]), lambda p: consumer.resume([p])):
        with pytest.raises(KafkaException, match=r"_STATE.*t-0"):
            call(TopicPartition("t", 0, 1))
    with pytest.raises(KafkaException, match=r"_INVALID_ARG.*partition -1"):
        consumer.assign([TopicPartition("t")])
    with pytest.raises(KafkaException, match=r"_INVALID_ARG.*offset -77"):
        consumer.assign([TopicPartition("t", 0, -77)])
    with pytest.raises(KafkaException, match=f"_INVALID_ARG.*offset {2**63}"):
        consumer.assign([TopicPartition("t", 0, 2**63)])
    with pytest.raises(KafkaException, match=f"_INVALID_ARG.*partition {2**31}"):
        consumer.assign([TopicPartition("t", 2**31, 0)])
    with pytest.raises(KafkaException, match=f"_INVALID_ARG.*timestamp {2**70}"):
        consumer.offsets_for_times([TopicPartition("t", 0, 2**70)])
    with pytest.raises(ValueError, match="num_messages must be from 0 to 1000000, not -1"):
        consumer.consume(-1, 0)
    assert consumer.position([TopicPartition("t", 0)])[0].offset == OFFSET_INVALID
    consumer.close()
    consumer.close()
    with pytest.raises(KafkaException, match="_DESTROY"):
        consumer.poll(0)
    with pytest.raises(RuntimeError, match="the consumer is closed"):
        consumer.poll(0)


def test_consumer_goes_on_in_a_new_session_after_every_error_of_one(cluster: FakeCluster) -> None:
    with make(cluster, max_partition_fetch_bytes=200, fetch_wait_max_ms=50) as consumer:
        consumer.assign(BOTH)
        seen = consumer.consume(30, 20)
        sessions = cluster._context().fetch_sessions
        for _ in range(5):
            for session in sessions.cache:
                call_soon(partial(sessions._close, session.id))
            seen += consumer.consume(10, 20)
        for session in sessions.cache:
            session.epoch += 7
        seen += consumer.consume(120, 20)
    for partition in (0, 1):
        assert [m.offset() for m in seen if m.partition() == partition] == list(range(100))
    assert not list(sessions.cache), "a consumer ends its sessions"


def test_consumer_asks_the_leader_of_a_new_epoch_whether_it_has_what_was_read(cluster: FakeCluster) -> None:
    with make(cluster, max_partition_fetch_bytes=200) as consumer:
        consumer.assign(BOTH[:1])
        seen = consumer.consume(30, 20)
        assert cluster.calls("OffsetForLeaderEpoch") == 0
        for epoch in (1, 2):
            cluster.fail_next("OffsetForLeaderEpoch", ErrorCode.NOT_LEADER_OR_FOLLOWER)
            cluster.elect_leader("t", 0)
            seen += consumer.consume(35, 20)
            # Records that were fetched before may be enough, so the answer may come later.
            wait_for(lambda epoch=epoch: cluster.calls("OffsetForLeaderEpoch") >= 2 * epoch, "both requests")
    assert [m.offset() for m in seen] == list(range(100))

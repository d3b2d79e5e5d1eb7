"""The producer against a node that fails in every way it can: nothing is lost and each partition keeps its order."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tidelog import KafkaError, KafkaException, Message, Producer
from tidelog.errors import ErrorCode
from tidelog.testing import FakeCluster


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as running:
        running.create_topic("t", 2)
        yield running


class Reports:
    def __init__(self) -> None:
        self.errors: list[KafkaError] = []
        self.delivered: list[Message] = []

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.delivered.append(message)
        else:
            self.errors.append(error)


def make(cluster: FakeCluster, **config: Any) -> Producer:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    quick = {"retry.backoff.ms": 10, "retry.backoff.max.ms": 50}
    return Producer({"bootstrap.servers": cluster.bootstrap_servers, **quick, **settings})


def stored(cluster: FakeCluster, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in cluster.records("t", partition)]


def send(producer: Producer, count: int, reports: Reports, partition: int = 0) -> list[bytes]:
    values = [b"%d" % n for n in range(count)]
    for value in values:
        producer.produce("t", value, partition=partition, on_delivery=reports)
    return values


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode._TRANSPORT,
    ],
)
def test_producer_retries_what_may_pass_and_keeps_the_order(cluster: FakeCluster, code: ErrorCode) -> None:
    reports = Reports()
    with make(cluster, batch_num_messages=10) as producer:
        cluster.fail_next("Produce", code, times=3)
        values = send(producer, 100, reports)
        assert producer.flush(20) == 0
    assert stored(cluster) == values
    assert [m.offset() for m in reports.delivered] == list(range(100))
    assert not reports.errors


@pytest.mark.parametrize("whole_call", [True, False])
def test_producer_reports_a_final_error_and_goes_on(cluster: FakeCluster, whole_call: bool) -> None:
    reports = Reports()
    with make(cluster, batch_num_messages=1) as producer:
        cluster.fail_next("Produce", ErrorCode.INVALID_RECORD, whole_call=whole_call, times=2 if whole_call else 1)
        values = send(producer, 3, reports)
        assert producer.flush(20) == 0
    assert [e.name() for e in reports.errors] == ["INVALID_RECORD"]
    assert stored(cluster) == values[1:]


def test_producer_repeats_a_batch_whose_answer_was_lost_and_loses_nothing(cluster: FakeCluster) -> None:
    reports = Reports()
    with make(cluster) as producer:
        cluster.fail_next("Produce", ErrorCode._TRANSPORT, applied=True)
        values = send(producer, 10, reports)
        assert producer.flush(20) == 0
    assert stored(cluster) == values * 2
    assert [m.offset() for m in reports.delivered] == list(range(10, 20))


def test_producer_gives_a_paused_node_up_and_sends_again(cluster: FakeCluster) -> None:
    reports = Reports()
    with make(cluster, request_timeout_ms=300) as producer:
        send(producer, 1, reports)
        assert producer.flush(20) == 0
        cluster.pause()
        send(producer, 5, reports, partition=1)
        assert producer.flush(1.0) == 5
        cluster.resume()
        assert producer.flush(20) == 0
    assert len(reports.delivered) == 6
    assert list(dict.fromkeys(stored(cluster, 1))) == [b"%d" % n for n in range(5)]


def test_producer_survives_a_restart_of_the_node(cluster: FakeCluster) -> None:
    reports = Reports()
    with make(cluster, batch_num_messages=5) as producer:
        first = send(producer, 20, reports)
        assert producer.flush(20) == 0
        cluster.stop()
        send(producer, 20, reports)
        assert producer.flush(0.3) == 20
        cluster.start()
        assert producer.flush(20) == 0
    assert stored(cluster) == first * 2
    assert not reports.errors


def test_producer_times_records_out_when_the_cluster_is_gone(cluster: FakeCluster) -> None:
    reports = Reports()
    with make(cluster, message_timeout_ms=300) as producer:
        send(producer, 1, reports)
        assert producer.flush(20) == 0
        cluster.stop()
        send(producer, 5, reports)
        assert producer.flush(20) == 0
    assert [e.name() for e in reports.errors] == ["_MSG_TIMED_OUT"] * 5
    assert "t-0" in reports.errors[0].str()


def test_producer_times_records_out_when_it_never_reached_a_node() -> None:
    reports = Reports()
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 200})
    producer.produce("t", b"v", on_delivery=reports)
    assert producer.flush(20) == 0
    producer.close()
    assert [e.name() for e in reports.errors] == ["_MSG_TIMED_OUT"]


def test_producer_raises_buffer_error_until_poll_makes_room(cluster: FakeCluster) -> None:
    reports = Reports()
    with make(cluster, queue_buffering_max_messages=10, linger_ms=0) as producer:
        cluster.pause()
        send(producer, 10, reports)
        with pytest.raises(BufferError):
            producer.produce("t", b"more")
        cluster.resume()
        assert producer.poll(10) > 0
        producer.produce("t", b"more", partition=0)
    assert len(stored(cluster)) == 11


def test_producer_keeps_the_other_reports_when_a_callback_raises(cluster: FakeCluster) -> None:
    seen: list[int | None] = []

    def report(error: KafkaError | None, message: Message) -> None:
        seen.append(message.offset())
        if message.offset() == 0:
            raise ValueError("the application's own")

    with make(cluster) as producer:
        for _ in range(3):
            producer.produce("t", b"v", partition=0, on_delivery=report)
        with pytest.raises(ValueError, match="the application's own"):
            producer.flush(20)
        assert len(producer) == 2
        assert producer.flush(20) == 0
    assert seen == [0, 1, 2]


def test_producer_callbacks_may_produce(cluster: FakeCluster) -> None:
    with make(cluster) as producer:
        producer.produce("t", b"a", partition=0, on_delivery=lambda e, m: producer.produce("t", b"b", partition=1))
        assert producer.flush(20) == 0
    assert (stored(cluster), stored(cluster, 1)) == ([b"a"], [b"b"])


def test_producer_purges(cluster: FakeCluster) -> None:
    reports = Reports()
    with make(cluster, linger_ms=60_000) as producer:
        send(producer, 3, reports)
        producer.purge()
        assert producer.poll(0) == 3
    assert {e.name() for e in reports.errors} == {"_PURGE_QUEUE"}


def test_producer_refuses_wrong_types_and_use_after_close(cluster: FakeCluster) -> None:
    producer = make(cluster)
    with pytest.raises(TypeError, match="value must be text, bytes or None, not int"):
        producer.produce("t", 1)  # type: ignore[arg-type]
    producer.close()
    producer.close()
    with pytest.raises(KafkaException, match="_DESTROY"):
        producer.produce("t", b"v")


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({}, "bootstrap.servers"),
        ({"bootstrap.servers": "a:1", "lingerms": 1}, '"lingerms"; did you mean "linger.ms"'),
        ({"bootstrap.servers": "a:1", "acks": "2"}, '"acks"'),
        ({"bootstrap.servers": "a:1", "compression.type": "brotli"}, "none, gzip, snappy, lz4, zstd"),
        ({"bootstrap.servers": "a:1", "enable.idempotence": True}, '"enable.idempotence"'),
    ],
)
def test_producer_refuses_a_configuration_that_it_cannot_follow(config: dict[str, Any], text: str) -> None:
    with pytest.raises(KafkaException) as caught:
        Producer(config)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert text in caught.value.message


def test_producer_that_is_forgotten_stops_its_task(cluster: FakeCluster) -> None:
    producer = make(cluster)
    sender = producer._sender
    del producer
    gc.collect()
    deadline = time.monotonic() + 5
    while sender.is_running and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not sender.is_running

"""The producer against a node that fails in every way it can: nothing is lost and each partition keeps its order."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fake_partitions import partition_bytes

from tidelog import KafkaError, KafkaException, Message, Producer
from tidelog.testing import FakeCluster
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.records import RecordBatchHeader, iter_headers


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


def wait_for(condition: Callable[[], bool], timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


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


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_producer_repeats_a_batch_whose_answer_was_lost_and_loses_nothing(
    cluster: FakeCluster, is_idempotent: bool
) -> None:
    reports = Reports()
    with make(cluster, enable_idempotence=is_idempotent) as producer:
        cluster.fail_next("Produce", ErrorCode._TRANSPORT, applied=True)
        values = send(producer, 10, reports)
        assert producer.flush(20) == 0
    assert stored(cluster) == (values if is_idempotent else values * 2)
    assert [m.offset() for m in reports.delivered] == list(range(10) if is_idempotent else range(10, 20))


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
    assert stored(cluster, 1) == [b"%d" % n for n in range(5)]


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


def test_producer_retries_a_request_that_could_not_be_written_when_its_stream_was_given_up(
    cluster: FakeCluster,
) -> None:
    cluster.create_topic("wide", 40)
    reports = Reports()
    with make(cluster, request_timeout_ms=600, linger_ms=0) as producer:
        producer.produce("wide", b"v", partition=0, on_delivery=reports)
        assert producer.flush(20) == 0
        cluster.pause()
        producer.produce("wide", b"first", partition=0, on_delivery=reports)
        assert producer.flush(0.3) == 1
        # More than flow control lets out to a node that does not read.
        for partition in range(1, 40):
            producer.produce("wide", b"x" * 900_000, partition=partition, on_delivery=reports)
        assert producer.flush(1.0) == 40
        cluster.resume()
        started = time.monotonic()
        assert producer.flush(30) == 0
        assert time.monotonic() - started < 20
    assert len(reports.delivered) == 41


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
    assert "may be stored" not in reports.errors[0].str()


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


def test_producer_callbacks_may_flush(cluster: FakeCluster) -> None:
    left: list[int] = []
    with make(cluster) as producer:
        for _ in range(3):
            producer.produce("t", b"a", partition=0, on_delivery=lambda e, m: left.append(producer.flush(10)))
        started = time.monotonic()
        assert producer.flush(20) == 0
        assert time.monotonic() - started < 5
    assert left == [0, 0, 0]


def test_producer_purges(cluster: FakeCluster) -> None:
    reports = Reports()
    with make(cluster, linger_ms=60_000) as producer:
        send(producer, 3, reports)
        producer.purge()
        assert producer.poll(0) == 3
    assert {e.name() for e in reports.errors} == {"_PURGE_QUEUE"}


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"value": 1}, TypeError, "value must be text, bytes or None, not int"),
        ({"key": 1.5}, TypeError, "key must be text, bytes or None, not float"),
        ({"topic": 5}, TypeError, "topic must be text, not int"),
        ({"topic": ""}, KafkaException, '_INVALID_ARG: topic "" is not valid'),
        ({"topic": "\udc80"}, KafkaException, "_INVALID_ARG: topic .* is not valid"),
        ({"timestamp": 1.5}, TypeError, "float"),
        ({"timestamp": -5}, KafkaException, "INVALID_TIMESTAMP: timestamp -5"),
        ({"timestamp": 2**63}, KafkaException, f"INVALID_TIMESTAMP: .*{2**63}.*{2**63 - 1}"),
        ({"partition": "0"}, TypeError, "str"),
        ({"partition": -2}, KafkaException, "_UNKNOWN_PARTITION: partition -2"),
        ({"headers": [(b"k", b"v")]}, TypeError, "a header's name must be text, not bytes"),
        ({"headers": {"k": 5}}, TypeError, "a header's value must be text, bytes or None, not int"),
        ({"headers": [("k",)]}, TypeError, r"must be a dict or a list of pairs \(name, value\)"),
        ({"headers": {"\udc80": b""}}, ValueError, "surrogates"),
    ],
)
def test_producer_refuses_what_cannot_be_sent_and_keeps_the_other_records(
    cluster: FakeCluster, is_known: bool, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    reports = Reports()
    with make(cluster) as producer:
        if is_known:
            producer.produce("t", b"before", partition=0, on_delivery=reports)
            assert producer.flush(20) == 0
        for value in (b"a", b"b"):
            with pytest.raises(error, match=text):
                producer.produce(**{"topic": "t", "value": b"v", "partition": 0, "on_delivery": reports, **arguments})
            producer.produce("t", value, partition=0, on_delivery=reports)
        assert len(producer) == 2
        assert producer.flush(20) == 0
    assert stored(cluster) == [b"before", b"a", b"b"] if is_known else [b"a", b"b"]
    assert not reports.errors


def test_producer_refuses_use_after_close(cluster: FakeCluster) -> None:
    producer = make(cluster)
    producer.close()
    assert producer.close() == 0
    calls: list[Callable[[], object]] = [
        lambda: producer.produce("t", b"v"),
        lambda: producer.poll(0),
        lambda: producer.flush(0),
        producer.purge,
        producer.list_topics,
    ]
    for call in calls:
        with pytest.raises(KafkaException, match="_DESTROY: the producer is closed"):
            call()


def test_producer_close_ends_a_poll_in_another_thread(cluster: FakeCluster) -> None:
    producer = make(cluster)
    thread = threading.Thread(target=producer.poll)
    thread.start()
    producer.close()
    thread.join(10)
    assert not thread.is_alive()


def test_producer_settles_every_record_that_produce_took_while_it_was_closed(cluster: FakeCluster) -> None:
    reports = Reports()
    taken = 0
    producer = make(cluster, linger_ms=60_000)

    def keep_producing() -> None:
        nonlocal taken
        while True:
            try:
                producer.produce("t", b"v", on_delivery=reports)
            except BufferError:
                time.sleep(0)
            except KafkaException:
                return
            else:
                taken += 1

    threads = [threading.Thread(target=keep_producing) for _ in range(3)]
    for thread in threads:
        thread.start()
    producer.close(0.2)
    for thread in threads:
        thread.join(10)
    producer._reports.serve()
    assert len(reports.delivered) + len(reports.errors) == taken
    assert len(producer) == 0


def test_producer_of_the_parent_is_refused_after_a_fork_and_lives_on_in_the_parent(cluster: FakeCluster) -> None:
    producer = make(cluster)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        answer = "nothing was raised"
        try:
            producer.produce("t", b"child")
        except KafkaException as error:
            answer = f"{error}, and close() returned {producer.close()}"
        finally:
            os.write(writing, answer.encode())
            os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    assert answer == (
        "_STATE: the producer belongs to the parent of this forked process: create a new one here, "
        "and close() returned 0"
    )
    producer.produce("t", b"parent", partition=0)
    assert producer.close() == 0
    assert stored(cluster) == [b"parent"]


def test_producer_finds_new_partitions_when_its_metadata_is_old(cluster: FakeCluster) -> None:
    with make(cluster, metadata_max_age_ms=100) as producer:
        producer.produce("t", b"v")
        assert producer.flush(20) == 0
        before = cluster.calls("GetMetadata")
        wait_for(lambda: cluster.calls("GetMetadata") >= before + 2)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({}, "bootstrap.servers"),
        ({"bootstrap.servers": "a:1", "lingerms": 1}, '"lingerms"; did you mean "linger.ms"'),
        ({"bootstrap.servers": "a:1", "acks": "2"}, '"acks"'),
        ({"bootstrap.servers": "a:1", "compression.type": "brotli"}, "none, gzip, snappy, lz4, zstd"),
        ({"bootstrap.servers": "a:1", "enable.idempotence": True, "acks": "1"}, '"acks" to be all, not 1'),
        ({"bootstrap.servers": "a:1", "enable.idempotence": True, "retries": 0}, '"retries" to be at least 1'),
        ({"bootstrap.servers": "a:1", "enable.idempotence": True, "max.in.flight": 6}, "to be at most 5, not 6"),
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


def headers(cluster: FakeCluster, partition: int = 0) -> list[RecordBatchHeader]:
    data = partition_bytes(cluster, "t", partition)
    return [header for _, header in iter_headers(data)]


def test_producer_takes_a_batch_that_is_known_to_be_there_for_delivered(cluster: FakeCluster) -> None:
    reports = Reports()
    with make(cluster) as producer:
        cluster.fail_next("Produce", ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        send(producer, 3, reports)
        assert producer.flush(20) == 0
    assert not reports.errors
    assert [m.offset() for m in reports.delivered] == [None] * 3


@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID])
def test_producer_begins_another_epoch_when_the_leader_has_lost_what_it_acknowledged(
    cluster: FakeCluster, code: ErrorCode
) -> None:
    reports = Reports()
    with make(cluster, batch_num_messages=2, linger_ms=10_000) as producer:
        first = send(producer, 4, reports)
        assert producer.flush(20) == 0
        cluster.fail_next("Produce", code)
        second = send(producer, 6, reports)
        assert producer.flush(20) == 0
    assert stored(cluster) == [*first, *second]
    assert not reports.errors
    numbers = [(h.producer_epoch, h.base_sequence) for h in headers(cluster)]
    assert numbers == [(0, 0), (0, 2), (1, 0), (1, 2), (1, 4)]
    assert len({h.producer_id for h in headers(cluster)}) == 1


def test_producer_gets_another_id_when_its_epoch_is_refused(cluster: FakeCluster) -> None:
    reports = Reports()
    with make(cluster, batch_num_messages=1) as producer:
        cluster.fail_next("Produce", ErrorCode.INVALID_PRODUCER_EPOCH)
        values = send(producer, 3, reports)
        assert producer.flush(20) == 0
    assert [e.name() for e in reports.errors] == ["INVALID_PRODUCER_EPOCH"]
    assert not reports.errors[0].fatal()
    assert stored(cluster) == values[1:]
    assert [(h.producer_id, h.base_sequence) for h in headers(cluster)] == [(1, 0), (1, 1)]


def test_producer_waits_for_a_producer_id(cluster: FakeCluster) -> None:
    reports = Reports()
    with make(cluster) as producer:
        cluster.fail_next("InitProducerId", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=3)
        values = send(producer, 3, reports)
        assert producer.flush(20) == 0
    assert stored(cluster) == values
    assert cluster.calls("InitProducerId") == 4


def test_producer_that_is_there_before_the_cluster_waits_for_it_and_is_of_use(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    reports = Reports()
    cluster.stop()
    with make(cluster, request_timeout_ms=1_000) as producer:
        values = send(producer, 3, reports)
        # One warning for an outage: of the producer id or of metadata, whichever is missed first.
        wait_for(
            lambda: "the producer is still waiting for a producer id" in caplog.text or "get metadata" in caplog.text
        )
        cluster.start()
        assert producer.flush(20) == 0
    assert reports.errors == []
    assert stored(cluster) == values


@pytest.mark.parametrize("code", [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION])
def test_producer_that_gets_no_id_fails_for_good(cluster: FakeCluster, code: ErrorCode) -> None:
    reports = Reports()
    with make(cluster) as producer:
        cluster.fail_next("InitProducerId", code)
        send(producer, 3, reports)
        assert producer.flush(20) == 0
        assert [(e.name(), e.fatal()) for e in reports.errors] == [(code.name, True)] * 3
        with pytest.raises(KafkaException, match=f"_FATAL: {code.name}") as caught:
            producer.produce("t", b"v")
        assert caught.value.error.fatal()
        assert producer.flush(1) == 0
    assert stored(cluster) == []


def test_producer_stores_nothing_twice_and_keeps_the_order_when_records_time_out_in_a_paused_node(
    cluster: FakeCluster,
) -> None:
    reports = Reports()
    with make(cluster, message_timeout_ms=400, request_timeout_ms=150, batch_num_messages=1, linger_ms=0) as producer:
        send(producer, 1, reports)
        assert producer.flush(20) == 0
        cluster.pause()
        for n in range(1, 9):
            producer.produce("t", b"%d" % n, partition=0, on_delivery=reports)
        assert producer.flush(20) == 0
        cluster.resume()
        for n in range(9, 20):
            producer.produce("t", b"%d" % n, partition=0, on_delivery=reports)
        assert producer.flush(20) == 0
    assert [e.name() for e in reports.errors] == ["_MSG_TIMED_OUT"] * 8
    assert reports.errors[0].str().endswith("; the batch may be stored")
    wait_for(lambda: stored(cluster)[-11:] == [b"%d" % n for n in range(9, 20)])
    numbers = [int(value or b"") for value in stored(cluster)]
    never_sent = {n for n, error in enumerate(reports.errors, 1) if "may be stored" not in error.str()}
    assert never_sent.isdisjoint(numbers)
    assert numbers == sorted(set(numbers))
    assert {0, *range(9, 20)} <= set(numbers)


def test_producer_pipelines_full_batches_to_a_leader_that_knows_it(cluster: FakeCluster) -> None:
    reports = Reports()
    with make(cluster, batch_num_messages=1, linger_ms=0) as producer:
        send(producer, 1, reports)
        assert producer.flush(20) == 0
        cluster.pause()
        values = send(producer, 9, reports)
        wait_for(lambda: sum(b.in_flight for q in producer._accumulator._queues.values() for b in q.sent) == 5)
        cluster.resume()
        assert producer.flush(20) == 0
    assert stored(cluster) == [b"0", *values]

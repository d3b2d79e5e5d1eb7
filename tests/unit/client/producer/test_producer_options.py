"""A producer's features besides sending: room, order of callbacks, interceptors, statistics."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fake_partitions import partition_bytes

from tidelog import AdminClient, KafkaError, KafkaException, Message, NewTopic, Producer, SerializingProducer
from tidelog.producer.hooks import ProducerRecord
from tidelog.serialization import (
    IntegerSerializer,
    JSONSerializer,
    KeySerializationError,
    SerializationContext,
    StringSerializer,
    ValueSerializationError,
)
from tidelog.testing import FakeCluster
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.records import iter_headers


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as running:
        running.create_topic("wrong", 2)
        yield running


@pytest.fixture
def topic(cluster: FakeCluster, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name).replace("[", ".").replace("]", "")
    cluster.create_topic(name, 2)
    return name


def settings(cluster: FakeCluster, **config: Any) -> dict[str, Any]:
    own = {key: value for key, value in config.items() if key.endswith("_cb") or key == "on_delivery"}
    dotted = {key.replace("_", "."): value for key, value in config.items() if key not in own}
    return {"bootstrap.servers": cluster.bootstrap_servers, **own, **dotted}


def values(cluster: FakeCluster, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in cluster.records(topic, partition)]


def wait_for(producer: Producer, condition: Any, timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        producer.poll(0.01)


@pytest.mark.parametrize(
    ("setting", "is_idempotent", "code"),
    [
        ("max.message.bytes", True, KafkaError.MESSAGE_TOO_LARGE),
        ("max.message.bytes", False, KafkaError.MESSAGE_TOO_LARGE),
        ("segment.bytes", True, KafkaError.RECORD_LIST_TOO_LARGE),
    ],
)
def test_producer_splits_batches_that_are_too_large_for_the_topic(
    cluster: FakeCluster, setting: str, is_idempotent: bool, code: int
) -> None:
    name = f"narrow-{setting}-{is_idempotent}".lower()
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        for future in admin.create_topics([NewTopic(name, 1, 1, config={setting: "1000"})]).values():
            future.result(10)
    sent = [b"%03d" % n * 50 for n in range(40)]
    delivered: list[Message] = []
    errors: list[KafkaError] = []

    def report(error: KafkaError | None, message: Message) -> None:
        (delivered if error is None else errors).append(message)  # type: ignore[arg-type]

    with Producer(settings(cluster, linger_ms=1_000, enable_idempotence=is_idempotent)) as producer:
        for value in sent:
            producer.produce(name, value, on_delivery=report)
        written = producer.produce_batch(name, sent)
        producer.produce(name, b"x" * 2_000, on_delivery=report)
        producer.produce(name, b"last", on_delivery=report)
    assert values(cluster, name) == [*sent, *sent, b"last"]
    assert [message.offset() for message in delivered] == [*range(40), 80]
    assert list(written) == list(range(40, 80))
    assert [message.error().code() for message in errors] == [code]  # type: ignore[attr-defined]


def test_produce_waits_for_room_and_serves_callbacks_meanwhile(cluster: FakeCluster, topic: str) -> None:
    served: list[int] = []
    config = settings(cluster, queue_buffering_max_messages=10, max_block_ms=10_000, linger_ms=1)
    with Producer(config) as producer:
        for n in range(300):
            producer.produce(topic, b"%d" % n, partition=0, on_delivery=lambda error, message, n=n: served.append(n))
            assert len(producer) <= 10
        assert len(served) >= 290
        producer.flush()
    assert served == list(range(300))
    assert len(values(cluster, topic)) == 300


def test_produce_raises_when_there_is_no_room_in_time(cluster: FakeCluster, topic: str) -> None:
    for config, least_s in (({}, 0.0), ({"max_block_ms": 80}, 0.08)):
        with Producer(settings(cluster, buffer_memory=1_000, linger_ms=60_000, **config)) as producer:
            producer.produce(topic, b"x" * 900, partition=0)
            began = time.monotonic()
            with pytest.raises(BufferError, match="1 records with 900 bytes wait, and 200 bytes more"):
                producer.produce(topic, b"x" * 200, partition=0)
            assert least_s <= time.monotonic() - began
            producer.purge()


def test_batches_are_no_larger_than_message_max_bytes(cluster: FakeCluster, topic: str) -> None:
    with Producer(settings(cluster, message_max_bytes=2_000, linger_ms=1_000)) as producer:
        for _ in range(20):
            producer.produce(topic, b"x" * 300, partition=0)
    data = partition_bytes(cluster, topic)
    sizes = [header.size_in_bytes for _, header in iter_headers(data)]
    assert len(sizes) > 2
    assert max(sizes) <= 2_000


class Witness:
    """An interceptor that changes records and remembers what became of them."""

    def __init__(self) -> None:
        self.acknowledged: list[tuple[str | None, int | None, KafkaError | None]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(value=(record.value or b"") + b"!", headers=[*record.headers, ("seen", b"1")])

    def on_acknowledgement(self, metadata: Message, error: KafkaError | None) -> None:
        self.acknowledged.append((metadata.topic(), metadata.offset(), error))


class Faulty:
    """An interceptor that always fails."""

    def on_send(self, record: ProducerRecord) -> None:
        raise ValueError("no")

    def on_acknowledgement(self, metadata: Message, error: KafkaError | None) -> None:
        raise ValueError("no")


class Sender:
    """An interceptor that only watches what is sent."""

    def __init__(self) -> None:
        self.sent: list[bytes | None] = []

    def on_send(self, record: ProducerRecord) -> None:
        self.sent.append(record.value)


def test_interceptors_see_every_record_and_faults_are_logged(
    cluster: FakeCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    witness, sender, reports = Witness(), Sender(), []
    with Producer(settings(cluster, interceptors=[Faulty(), witness, sender], message_max_bytes=1_000)) as producer:
        producer.produce(topic, b"a", partition=0)
        producer.produce(topic, b"b", partition=0, on_delivery=lambda error, message: reports.append(message.value()))
        with pytest.raises(KafkaException, match="MESSAGE_TOO_LARGE"):
            producer.produce(topic, b"c" * 2_000, partition=0)
        with pytest.raises(KafkaException, match="interceptors"):
            producer.produce_batch(topic, [b"d"])
        assert producer.flush(10) == 0
        assert len(producer) == 0
    assert values(cluster, topic) == [b"a!", b"b!"]
    assert [record.headers for record in cluster.records(topic, 0)] == [(("seen", b"1"),)] * 2
    assert sender.sent[:2] == [b"a!", b"b!"]
    assert reports == [b"b!"]
    assert [(name, offset) for name, offset, error in witness.acknowledged if error is None] == [(topic, 0), (topic, 1)]
    assert [error.code() for _, _, error in witness.acknowledged if error] == [KafkaError.MESSAGE_TOO_LARGE]  # type: ignore[attr-defined]
    assert sum("interceptor" in record.message for record in caplog.records) == 6


def test_statistics_have_librdkafkas_shape(cluster: FakeCluster, topic: str) -> None:
    texts: list[str] = []
    with Producer(settings(cluster, stats_cb=texts.append, statistics_interval_ms=20, linger_ms=1)) as producer:
        producer.produce(topic, b"value", b"key", partition=1)
        producer.flush()
        wait_for(producer, lambda: texts and json.loads(texts[-1])["txmsgs"] == 1)
    found = json.loads(texts[-1])
    assert (found["type"], found["client_id"], found["txmsg_bytes"], found["msg_cnt"]) == ("producer", "tidelog", 8, 0)
    assert found["msg_max"] == 100_000
    [broker] = found["brokers"].values()
    assert (broker["tx"], broker["rx"], broker["rtt"]["cnt"]) == (1, 1, 1)
    partition = found["topics"][topic]["partitions"]["1"]
    assert (partition["partition"], partition["txmsgs"], partition["msgq_cnt"]) == (1, 1, 0)


def test_error_callback_hears_of_a_cluster_that_is_down() -> None:
    errors: list[KafkaError] = []
    config = {"bootstrap.servers": "127.0.0.1:1", "error_cb": errors.append, "request.timeout.ms": 100}
    log = logging.getLogger("test.silent")
    log.disabled = True
    producer = Producer({**config, "logger": log, "retry.backoff.ms": 10})
    producer.produce("t", b"v")
    wait_for(producer, lambda: errors)
    producer.purge()
    producer.close(0)
    assert errors[0].code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)  # type: ignore[attr-defined]
    assert not errors[0].fatal()


def test_only_errors_are_reported_where_that_is_asked_for(cluster: FakeCluster, topic: str) -> None:
    reports: list[KafkaError | None] = []
    config = settings(cluster, delivery_report_only_error=True, linger_ms=60_000)
    config["on_delivery"] = lambda error, message: reports.append(error)
    with Producer(config) as producer:
        producer.produce(topic, b"stored", partition=0)
        assert producer.flush(10) == 0
        producer.produce(topic, b"purged", partition=0)
        producer.purge()
        assert producer.poll(1) == 1
    assert [error and error.code() for error in reports] == [KafkaError._PURGE_QUEUE]  # type: ignore[attr-defined]


def test_settings_may_be_keyword_arguments(cluster: FakeCluster, topic: str) -> None:
    with Producer(
        bootstrap_servers=cluster.bootstrap_servers, linger_ms=1, logger=logging.getLogger("own")
    ) as producer:
        producer.produce(topic, "text", "key")
    assert sum(len(values(cluster, topic, partition)) for partition in (0, 1)) == 1


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"buffer.memory": 1, "queue.buffering.max.kbytes": 1}, "are the same setting"),
        ({"partitioner": "best"}, "murmur2_random"),
        ({"interceptors": ["no"]}, "must be a list of objects with on_send"),
        ({"interceptors": 5}, "must be a list of objects with on_send"),
        ({"logger": "no"}, "must be a logging.Logger"),
        ({"compression.type": "gzip", "compression.level": 77}, "compression level 77"),
        ({"compression.type": "snappy", "compression.level": 3}, "snappy has no levels"),
        ({"dr_msg_cb": print}, "give on_delivery"),
        ({"key.serializer": print}, "use SerializingProducer"),
        ({"max.block.ms": -1}, '"max.block.ms"'),
    ],
)
def test_producer_names_the_setting_that_it_cannot_follow(config: dict[str, Any], text: str) -> None:
    with pytest.raises(KafkaException) as caught:
        Producer({"bootstrap.servers": "a:1", **config})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert text in caught.value.message


def test_producer_knows_its_clusters_id_and_topics(cluster: FakeCluster, topic: str) -> None:
    with Producer(settings(cluster)) as producer:
        known = producer.list_topics(topic, 10)
        assert producer.cluster_id(10) == known.cluster_id
        assert len(known.topics[topic].partitions) == 2


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"partition": 2**70}, KafkaException, "has no partition 1180591620717411303424"),
        ({"partition": -(2**70)}, KafkaException, "is not valid: must be -1"),
        ({"partition": 2}, KafkaException, "has no partition 2, it has 2"),
        ({"partition": "0"}, TypeError, "str"),
        ({"timestamp": 2**63}, KafkaException, "INVALID_TIMESTAMP"),
        ({"key": 5}, TypeError, "key must be text, bytes or None, not int"),
        ({"value": [b"v"]}, TypeError, "value must be text, bytes or None, not list"),
        ({"topic": ""}, KafkaException, "it is empty"),
        ({"topic": 5}, TypeError, "topic must be text, not int"),
        ({"headers": ["h"]}, TypeError, "headers must be"),
    ],
)
def test_produce_says_what_is_wrong_with_a_record(
    cluster: FakeCluster, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with Producer(settings(cluster)) as producer:
        producer.produce("wrong", b"the partitions are learned")
        producer.flush()
        wrong = {"topic": "wrong", "value": b"v", **arguments}
        with pytest.raises(error, match=text):
            producer.produce(**wrong)
        assert len(producer) == 0


@pytest.mark.parametrize("key", ["error_cb", "stats_cb", "on_delivery"])
def test_producer_refuses_callbacks_that_cannot_be_called(key: str) -> None:
    with pytest.raises(TypeError, match=f"{key} must be callable, not int"):
        Producer({"bootstrap.servers": "a:1", key: 5})


def test_serializing_producer_sends_what_its_serializers_make(cluster: FakeCluster, topic: str) -> None:
    contexts: list[tuple[str, str, Any]] = []

    def noted(obj: Any, context: SerializationContext) -> bytes | None:
        contexts.append((context.topic, context.field, context.headers))
        return JSONSerializer()(obj, context)

    config = {**settings(cluster), "key.serializer": IntegerSerializer(), "value.serializer": noted}
    headers = [("h", b"1")]
    with SerializingProducer(config) as producer:
        producer.produce(topic, 7, {"a": 1}, partition=0, headers=headers)
        producer.produce(topic, None, None, partition=0)
        with pytest.raises(KeySerializationError, match="'seven'"):
            producer.produce(topic, "seven", {})
        with pytest.raises(ValueSerializationError, match="invalid JSON") as caught:
            producer.produce(topic, 7, {1, 2})
        assert caught.value.exception is not None
        with pytest.raises(TypeError, match="topic must be text, not int"):
            producer.produce(5, {})  # type: ignore[arg-type]
    with pytest.raises(KafkaException, match="closed"):
        producer.produce(topic, {})
    assert [(r.key, r.value) for r in cluster.records(topic, 0)] == [(b"\0\0\0\7", b'{"a":1}'), (None, None)]
    assert contexts[0] == (topic, "value", headers)


def test_serializing_producer_refuses_a_serializer_that_cannot_be_called() -> None:
    with pytest.raises(KafkaException, match=r"key\.serializer.*must be callable, not str"):
        SerializingProducer({"bootstrap.servers": "a:1", "key.serializer": "utf-8"})
    assert StringSerializer()("a") == b"a"


def test_threads_that_produce_at_once_lose_nothing(cluster: FakeCluster, topic: str) -> None:
    def produce(number: int) -> None:
        for n in range(2_000):
            producer.produce(topic, b"%d:%d" % (number, n), b"%d" % number)

    with Producer(settings(cluster, linger_ms=1)) as producer:
        threads = [threading.Thread(target=produce, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    stored = [value for partition in (0, 1) for value in values(cluster, topic, partition)]
    assert len(stored) == 8_000
    for number in range(4):
        own = [value for value in stored if value and value.startswith(b"%d:" % number)]
        assert own == [b"%d:%d" % (number, n) for n in range(2_000)]

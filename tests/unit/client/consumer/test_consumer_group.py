"""A consumer in a group, where a cluster in memory is enough: what is refused, told and waited for."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from group_members import Member, until

from tidelog import (
    OFFSET_BEGINNING,
    AdminClient,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    NewTopic,
    TopicPartition,
)
from tidelog.testing import FakeCluster
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.records import RecordBatchBuilder


def batch(count: int) -> bytes:
    builder = RecordBatchBuilder()
    for n in range(count):
        builder.append(None, b"%d" % n, (), 1_000)
    return builder.build()


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as running:
        running.create_topic("t", partitions=2)
        for partition in (0, 1):
            running.append("t", partition, batch(10))
        yield running


def member(cluster: FakeCluster, **config: Any) -> Member:
    return Member(cluster.bootstrap_servers, "g", **config)


def test_what_needs_a_group_is_refused_without_one(cluster: FakeCluster) -> None:
    with Consumer({"bootstrap.servers": cluster.bootstrap_servers}) as consumer:
        for call in (
            lambda: consumer.subscribe(["t"]),
            lambda: consumer.commit(asynchronous=False),
            lambda: consumer.committed([TopicPartition("t", 0)]),
            lambda: consumer.store_offsets(offsets=[TopicPartition("t", 0, 1)]),
            consumer.consumer_group_metadata,
        ):
            with pytest.raises(KafkaException, match=r"_UNKNOWN_GROUP.*set group\.id"):
                call()
        assert consumer.memberid() is None
        consumer.unsubscribe()


def test_arguments_that_cannot_be_are_refused(cluster: FakeCluster) -> None:
    event = Message("t", 0, 1, error=KafkaError(ErrorCode._PARTITION_EOF, "the end"))
    with member(cluster).consumer as consumer:
        with pytest.raises(TypeError, match="expected a list of topics, not 't'"):
            consumer.subscribe("t")
        with pytest.raises(TypeError, match="must be callable, not int"):
            consumer.subscribe(["t"], 3)  # type: ignore[arg-type]
        with pytest.raises(KafkaException, match=r"_INVALID_ARG.*at least one topic"):
            consumer.subscribe([])
        with pytest.raises(ValueError, match="mutually exclusive"):
            consumer.commit(Message("t", 0, 1), [TopicPartition("t", 0, 1)])
        with pytest.raises(KafkaException, match=r"_INVALID_ARG.*cannot commit.*the end"):
            consumer.commit(event)
        with pytest.raises(KafkaException, match=r"_INVALID_ARG.*without one"):
            consumer.commit(Message("t", 0))
        with pytest.raises(TypeError, match="expected a Message, not int"):
            consumer.commit(3)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="expected either message or offsets"):
            consumer.store_offsets()
        with pytest.raises(KafkaException, match=r"_INVALID_ARG.*enable\.auto\.offset\.store=false"):
            consumer.store_offsets(offsets=[TopicPartition("t", 0, 1)])
        with pytest.raises(KafkaException, match=r"_INVALID_ARG.*t-0 is given twice"):
            consumer.assign([TopicPartition("t", 0), TopicPartition("t", 0)])
        consumer.assign([TopicPartition("t", 0)])
        with pytest.raises(KafkaException, match=r"_CONFLICT.*t-0 is already assigned"):
            consumer.incremental_assign([TopicPartition("t", 0)])
        with pytest.raises(KafkaException, match=r"_INVALID_ARG.*t-1 is not assigned"):
            consumer.incremental_unassign([TopicPartition("t", 1)])
        with pytest.raises(ValueError, match="num_messages must be from 0 to 1000000, not 1000001"):
            consumer.consume(1_000_001, 0)


def test_nothing_to_commit_is_told(cluster: FakeCluster) -> None:
    told: list[KafkaError | None] = []
    with member(cluster, on_commit=lambda error, partitions: told.append(error)).consumer as consumer:
        with pytest.raises(KafkaException, match="_NO_OFFSET"):
            consumer.commit(asynchronous=False)
        consumer.commit(offsets=[TopicPartition("t", 0)])
        consumer.poll(0)
        assert [error.error_code() for error in told if error] == [ErrorCode._NO_OFFSET]


def test_messages_that_were_taken_are_returned_before_a_callback_raises(cluster: FakeCluster) -> None:
    def fail(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        raise ZeroDivisionError

    consumer = member(cluster, on_commit=fail, enable_auto_commit=False).consumer
    with consumer:
        consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
        assert consumer.poll(10) is not None
        consumer.commit()
        # The callback comes while the call waits for more than there is.
        assert len(consumer.consume(100, 10)) == 9
        with pytest.raises(ZeroDivisionError):
            consumer.consume(100, 10)


def test_messages_that_were_taken_are_returned_before_their_partition_goes(cluster: FakeCluster) -> None:
    first, second = member(cluster), member(cluster)
    got: list[Message] = []
    at_revocation: list[int] = []
    first.consumer.subscribe(["t"], on_revoke=lambda *_: at_revocation.append(len(got)))
    is_over = threading.Event()

    def join() -> None:
        until([second], is_over.is_set)
        second.consumer.close()

    thread = threading.Thread(target=join)
    with first.consumer as consumer:
        got += consumer.consume(1, 10)
        second.subscribe("t")
        thread.start()
        # It has taken all that is there, and waits for more, when the other joins.
        got += consumer.consume(100, 10)
        while not at_revocation:
            consumer.poll(0.05)
        is_over.set()
        thread.join(30)
    assert at_revocation[0] == 20


def test_close_leaves_the_group_and_then_raises_what_a_callback_raised(cluster: FakeCluster) -> None:
    def fail(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        raise ZeroDivisionError

    first = member(cluster)
    first.consumer.subscribe(["t"], on_revoke=fail)
    until([first], lambda: len(first.messages) == 20)
    with pytest.raises(ZeroDivisionError):
        first.consumer.close()
    with pytest.raises(KafkaException, match="_DESTROY"):
        first.consumer.poll(0)
    second = member(cluster)
    with second.consumer:
        second.subscribe("t")
        until([second], lambda: len(second.owned) == 2, timeout_s=5)
        assert [p.offset for p in second.consumer.committed([TopicPartition("t", p) for p in (0, 1)], 10)] == [10, 10]


def test_the_group_metadata_says_who_the_consumer_is(cluster: FakeCluster) -> None:
    joined = member(cluster, group_instance_id="i")
    with joined.consumer as consumer:
        metadata = consumer.consumer_group_metadata()
        assert (metadata.group_id, metadata.generation_id, metadata.member_id) == ("g", -1, "")
        joined.subscribe("t")
        until([joined], lambda: len(joined.owned) == 2)
        metadata = consumer.consumer_group_metadata()
        assert (metadata.generation_id, metadata.member_id) == (1, consumer.memberid())
        assert metadata.group_instance_id == "i"


def test_a_subscription_may_end_before_anything_came_of_it(cluster: FakeCluster) -> None:
    joined = member(cluster)
    joined.subscribe("t")
    joined.consumer.unsubscribe()
    assert joined.consumer.list_topics(timeout=10).topics.keys() == {"t"}
    joined.subscribe("t")
    until([joined], lambda: len(joined.messages) == 20)
    joined.consumer.close()
    for _ in range(3):
        short = member(cluster)
        short.subscribe("^t")
        short.consumer.close()


def test_a_consumer_that_is_forgotten_ends(cluster: FakeCluster) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
    consumer.subscribe(["t"])
    while not consumer.assignment():
        consumer.poll(0.05)
    forgotten = weakref.ref(consumer)
    del consumer
    gc.collect()
    assert forgotten() is None


def test_close_does_not_wait_for_a_cluster_that_is_gone(cluster: FakeCluster) -> None:
    joined = member(cluster, request_timeout_ms=300)
    joined.subscribe("t")
    until([joined], lambda: len(joined.messages) == 20)
    cluster.stop()
    started = time.monotonic()
    joined.consumer.close()
    assert time.monotonic() - started < 5
    assert joined.told[-1][0] == "revoke"


def test_an_outage_is_told_once(cluster: FakeCluster) -> None:
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        admin.create_topics([NewTopic("__consumer_offsets", 1, 1)])["__consumer_offsets"].result(30)
    cluster.stop()
    waiting = member(cluster, request_timeout_ms=100, retry_backoff_max_ms=100)
    with waiting.consumer:
        waiting.subscribe("t")
        until([waiting], lambda: bool(waiting.errors))
        cluster.start()
        until([waiting], lambda: len(waiting.messages) == 20)
    errors = [m.error() for m in waiting.errors]
    # The first answer after the start may be that the coordinator's partition has no leader yet.
    told = [error for error in errors if error != KafkaError.COORDINATOR_NOT_AVAILABLE]  # type: ignore[attr-defined]
    assert told == [KafkaError._ALL_BROKERS_DOWN]  # type: ignore[attr-defined]

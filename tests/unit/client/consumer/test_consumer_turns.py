"""The position of a consumer: it counts exactly the messages that the application has received, by any method."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from example_counts import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelog import Consumer, KafkaException, Message, TopicPartition
from tidelog.testing import FakeCluster
from tidelog_foundation.records import RecordBatchBuilder

P = TopicPartition("t", 0)


def batch(count: int) -> bytes:
    builder = RecordBatchBuilder()
    for n in range(count):
        builder.append(None, b"%d" % n, (), 1_000)
    return builder.build()


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as running:
        running.create_topic("t", partitions=1)
        for _ in range(3):
            running.append("t", 0, batch(20))
        yield running


@pytest.fixture(scope="module")
def large(cluster: FakeCluster) -> str:
    """A topic whose batches have more messages than are created ahead, and fewer."""
    cluster.create_topic("large", partitions=1)
    for count in (700, 20, 480, 300):
        cluster.append("large", 0, batch(count))
    return "large"


@pytest.fixture
def consumer(cluster: FakeCluster, request: pytest.FixtureRequest) -> Iterator[Consumer]:
    group = request.node.name
    with Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group}) as made:
        made.assign([TopicPartition("t", 0, 0)])
        yield made


def poll(consumer: Consumer, count: int) -> list[int]:
    return [one(consumer.poll(10)) for _ in range(count)]


def one(message: Message | None) -> int:
    assert message is not None
    assert message.error() is None
    offset = message.offset()
    assert offset is not None
    return offset


def consume(consumer: Consumer, count: int) -> list[int]:
    return [one(message) for message in consumer.consume(count, 10)]


def rows(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = consumer.consume_arrow(count, 10).column("offset").to_pylist()
    return found


def until_committed(consumer: Consumer, offset: int) -> None:
    deadline = time.monotonic() + 10
    while [p.offset for p in consumer.committed([P], 10)] != [offset]:
        assert time.monotonic() < deadline


@pytest.mark.parametrize("other", [consume, rows])
def test_ways_to_read_may_take_turns(consumer: Consumer, other: Callable[[Consumer, int], list[int]]) -> None:
    seen = poll(consumer, 3) + other(consumer, 4) + poll(consumer, 20) + other(consumer, 13) + poll(consumer, 5)
    assert seen == list(range(45))
    assert consumer.position([P])[0].offset == 45


@given(sizes=st.lists(st.sampled_from([0, 1, 1, 2, 19, 499, 500, 501]), max_size=12))
@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_lists_of_any_length_have_the_next_messages_and_are_counted(
    consumer: Consumer, large: str, sizes: list[int]
) -> None:
    consumer.assign([TopicPartition(large, 0, 0)])
    offset = 0
    for size in sizes:
        wanted = min(size, 1_500 - offset)
        # A size of 0 is one call of poll().
        seen = poll(consumer, 1) if size == 0 and offset < 1_500 else consume(consumer, wanted) if wanted else []
        assert seen == list(range(offset, offset + len(seen)))
        assert len(seen) == (1 if size == 0 and offset < 1_500 else wanted)
        offset += len(seen)
        if offset and offset % 2:
            assert consumer.position([TopicPartition(large, 0)])[0].offset == offset
    if offset:
        assert [p.offset for p in consumer.commit(asynchronous=False) or ()] == [offset]


def test_position_and_commit_are_behind_the_last_message_that_was_returned(consumer: Consumer) -> None:
    assert consumer.position([P])[0].offset < 0
    poll(consumer, 3)
    assert consumer.position([P])[0].offset == 3
    poll(consumer, 2)
    committed = consumer.commit(asynchronous=False)
    assert [p.offset for p in committed] == [5]
    with pytest.raises(KafkaException, match="_NO_OFFSET"):
        consumer.commit(asynchronous=False)


def test_pause_and_resume_go_on_behind_the_last_message_that_was_returned(consumer: Consumer) -> None:
    poll(consumer, 3)
    consumer.pause([P])
    assert consumer.poll(0) is None
    consumer.resume([P])
    assert poll(consumer, 2) == [3, 4]


def test_seek_drops_what_was_made_ready(consumer: Consumer) -> None:
    poll(consumer, 3)
    consumer.seek(TopicPartition("t", 0, 30))
    assert poll(consumer, 2) == [30, 31]
    consumer.seek(TopicPartition("t", 0, 10))
    assert consume(consumer, 2) == [10, 11]


def test_what_is_given_up_is_committed_up_to_the_last_message_that_was_returned(consumer: Consumer) -> None:
    poll(consumer, 7)
    consumer.incremental_unassign([P])
    assert consumer.poll(0) is None
    until_committed(consumer, 7)


def test_time_commits_what_poll_has_returned(cluster: FakeCluster) -> None:
    timed = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "timed", "auto.commit.interval.ms": 20}
    with Consumer(timed) as consumer:
        consumer.assign([TopicPartition("t", 0, 0)])
        poll(consumer, 4)
        until_committed(consumer, 4)


def test_consume_that_is_interrupted_has_read_nothing(consumer: Consumer) -> None:
    poll(consumer, 2)

    def interrupt() -> None:
        until = time.monotonic() + 10
        while consumer._positions.queued_bytes and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        consumer.consume(1000, 20)
    thread.join()
    assert [p.offset for p in consumer.commit(asynchronous=False)] == [2]
    assert consume(consumer, 3) == [2, 3, 4]


def test_a_forked_child_reads_nothing_of_what_is_ready(consumer: Consumer) -> None:
    poll(consumer, 1)
    started, release = threading.Event(), threading.Event()

    def hold() -> None:
        with consumer._lock:
            started.set()
            release.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    started.wait(10)
    child = os.fork()
    if child == 0:
        calls: list[Callable[[], object]] = [
            lambda: consumer.poll(0),
            lambda: consumer.consume(1, 0),
            consumer.assignment,
            lambda: consumer.position([P]),
            lambda: consumer.pause([P]),
            lambda: consumer.get_watermark_offsets(P, cached=True),
        ]
        os._exit(0 if all(map(_is_refused, calls)) else 1)
    killer = threading.Timer(10, os.kill, (child, signal.SIGKILL))
    killer.start()
    status = os.waitpid(child, 0)[1]
    killer.cancel()
    release.set()
    holder.join()
    assert status == 0


def _is_refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except KafkaException:
        return True
    return False


def test_another_thread_may_pause_resume_and_commit_between_the_messages(consumer: Consumer) -> None:
    is_over = threading.Event()
    failures: list[Exception] = []

    def meddle() -> None:
        try:
            while not is_over.is_set():
                consumer.pause([P])
                consumer.commit()
                consumer.resume([P])
                consumer.position([P])
                time.sleep(0.001)
        except Exception as error:  # noqa: BLE001 - it is shown by the test
            failures.append(error)

    thread = threading.Thread(target=meddle)
    thread.start()
    try:
        seen = []
        for _ in range(5):
            seen += poll(consumer, 60)
            consumer.seek(TopicPartition("t", 0, 0))
    finally:
        is_over.set()
        thread.join()
    assert seen == [*range(60)] * 5
    assert not failures


@pytest.mark.parametrize("is_list", [False, True], ids=["poll", "consume"])
def test_reading_what_is_ready_counts_as_polling(cluster: FakeCluster, is_list: bool) -> None:
    reading = {"bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "earliest"}
    late = {"max.poll.interval.ms": 700, "session.timeout.ms": 600, "heartbeat.interval.ms": 100}
    with Consumer({**reading, **late, "group.id": f"slow-{is_list}"}) as consumer:
        consumer.subscribe(["t"])
        seen: list[int] = []
        while len(seen) < 20:
            for each in consumer.consume(1, 0.5) if is_list else [consumer.poll(0.5)]:
                seen += [one(each)] if each is not None else []
                time.sleep(0.05)
        assert seen == list(range(20))

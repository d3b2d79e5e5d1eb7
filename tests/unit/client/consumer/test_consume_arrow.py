"""consume_arrow(): one table of what was fetched, exactly as many rows as asked for, positions moved behind them."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tidelog import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from tidelog.testing import FakeCluster
from tidelog_foundation.records import RecordBatchBuilder


def batch(prefix: bytes, count: int) -> bytes:
    builder = RecordBatchBuilder()
    for n in range(count):
        builder.append(None if n % 2 else b"k", b"%s%d" % (prefix, n), (), 1_000 + n)
    return builder.build()


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as running:
        for topic in ("a", "b"):
            running.create_topic(topic, partitions=2)
            for partition in (0, 1):
                for _ in range(3):
                    running.append(topic, partition, batch(topic.encode(), 10))
        yield running


def make(cluster: FakeCluster, **config: Any) -> Consumer:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    return Consumer({"bootstrap.servers": cluster.bootstrap_servers, **settings})


ALL = [TopicPartition(topic, p, OFFSET_BEGINNING) for topic in ("a", "b") for p in (0, 1)]


def test_tables_mix_topics_and_have_exactly_as_many_rows_as_asked_for(cluster: FakeCluster) -> None:
    with make(cluster, enable_partition_eof=True) as consumer:
        consumer.assign(ALL)
        tables = [consumer.consume_arrow(17, 10) for _ in range(7)]
        assert [t.num_rows for t in tables] == [17] * 7
        last = consumer.consume_arrow(17, 0.5)
        assert last.num_rows == 1
        assert consumer.consume_arrow(17, 0).num_rows == 0
        positions = {(p.topic, p.partition): p.offset for p in consumer.position(ALL)}
    assert set(positions.values()) == {30}
    seen: dict[tuple[str, int], list[int]] = {}
    for row in (row for table in [*tables, last] for row in table.to_pylist()):
        assert row["value"].startswith(row["topic"].encode())
        assert row["key"] == (None if row["offset"] % 2 else b"k")
        seen.setdefault((row["topic"], row["partition"]), []).append(row["offset"])
    assert seen == {(p.topic, p.partition): list(range(30)) for p in ALL}


def test_tables_and_messages_may_be_taken_in_turn(cluster: FakeCluster) -> None:
    with make(cluster) as consumer:
        consumer.assign(ALL[:1])
        seen = [m.offset() for m in consumer.consume(4, 10)]
        seen += consumer.consume_arrow(9, 10)["offset"].to_pylist()
        message = consumer.poll(10)
        assert message is not None
        seen.append(message.offset())
        seen += consumer.consume_arrow(16, 10)["offset"].to_pylist()
    assert seen == list(range(30))


def test_a_seek_drops_rows_that_were_decoded(cluster: FakeCluster) -> None:
    with make(cluster) as consumer:
        consumer.assign(ALL[:1])
        assert consumer.consume_arrow(3, 10)["offset"].to_pylist() == [0, 1, 2]
        consumer.seek(TopicPartition("a", 0, 25))
        assert consumer.consume_arrow(5, 10)["offset"].to_pylist() == list(range(25, 30))


def test_an_event_is_raised_once_the_rows_before_it_were_returned(cluster: FakeCluster) -> None:
    with make(cluster, auto_offset_reset="error") as consumer:
        consumer.assign(ALL[:1])
        assert consumer.consume_arrow(1, 10).num_rows == 1
        consumer.incremental_assign([TopicPartition("b", 0)])
        assert consumer.consume_arrow(100, 10).num_rows == 29
        with pytest.raises(KafkaException, match=r"_AUTO_OFFSET_RESET.*b-0"):
            consumer.consume_arrow(100, 10)
        consumer.incremental_assign([TopicPartition("b", 1, 28)])
        assert consumer.consume_arrow(2, 10)["offset"].to_pylist() == [28, 29]


def waits(thread: threading.Thread) -> bool:
    """Return whether a thread waits for something."""
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code.co_name == "wait"


def test_close_ends_the_wait_in_another_thread(cluster: FakeCluster) -> None:
    consumer = make(cluster)
    consumer.assign([TopicPartition("a", 0, 30)])
    thread = threading.Thread(target=consumer.consume_arrow)
    thread.start()
    deadline = time.monotonic() + 10
    while not waits(thread) and time.monotonic() < deadline:
        time.sleep(0.001)
    consumer.close()
    thread.join(10)
    assert not thread.is_alive()
    with pytest.raises(KafkaException, match="_DESTROY"):
        consumer.consume_arrow()


def test_a_number_of_rows_that_cannot_be_is_refused(cluster: FakeCluster) -> None:
    with make(cluster) as consumer, pytest.raises(ValueError, match="max_records must be at least 0, not -1"):
        consumer.consume_arrow(-1, 0)


@pytest.mark.costly
def test_without_pyarrow_it_says_what_to_install() -> None:
    program = """
import sys
sys.modules["pyarrow"] = None
from tidelog import Consumer
consumer = Consumer({"bootstrap.servers": "127.0.0.1:1"})
try:
    consumer.consume_arrow(1, 0)
except ModuleNotFoundError as error:
    print(error)
consumer.close()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "pip install tidelog[spark]" in done.stdout

"""A consumer's callbacks beside the messages: statistics, errors of the client as a whole; and what it reads ahead."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tidelog import Consumer, KafkaError, Producer, TopicPartition
from tidelog.aio import AIOConsumer
from tidelog.testing import FakeCluster

COUNT = 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as running:
        running.create_topic("t", 1)
        with Producer({"bootstrap.servers": running.bootstrap_servers}) as producer:
            for number in range(COUNT):
                producer.produce("t", str(number), partition=0)
        yield running


def _settings(cluster: FakeCluster, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "earliest", **more}


def _poll_until(consumer: Consumer, is_done: Callable[[], bool]) -> list[Any]:
    messages: list[Any] = []
    deadline = time.monotonic() + 30
    while not is_done():
        assert time.monotonic() < deadline
        message = consumer.poll(0.1)
        messages += [] if message is None else [message]
    return messages


def test_statistics_have_the_structure_of_librdkafka(cluster: FakeCluster) -> None:
    texts: list[str] = []
    given = {"group.id": "stats", "statistics.interval.ms": 20, "stats_cb": texts.append, "client.id": "me"}
    with Consumer(_settings(cluster, **given)) as consumer:
        consumer.subscribe(["t"])
        seen: list[Any] = []
        deadline = time.monotonic() + 30
        while len(seen) < COUNT:
            assert time.monotonic() < deadline
            seen += consumer.consume(COUNT, 0.2)
        consumer.commit(asynchronous=False)
        before = len(texts)
        _poll_until(consumer, lambda: len(texts) > before + 1)
        found = json.loads(texts[-1])
    assert (found["client_id"], found["type"], found["name"]) == ("me", "consumer", "me#consumer")
    assert {
        "ts",
        "time",
        "age",
        "replyq",
        "msg_cnt",
        "msg_size",
        "tx",
        "rx",
        "brokers",
        "topics",
        "cgrp",
    } <= found.keys()
    partition = found["topics"]["t"]["partitions"]["0"]
    assert partition["rxmsgs"] == found["rxmsgs"] == COUNT
    assert (partition["committed_offset"], partition["stored_offset"], partition["app_offset"]) == (COUNT,) * 3
    assert (partition["hi_offset"], partition["lo_offset"], partition["consumer_lag"]) == (COUNT, 0, 0)
    assert partition["fetch_state"] == "active"
    assert found["cgrp"]["assignment_size"] == 1
    node = next(iter(found["brokers"].values()))
    assert node["tx"] >= 1
    assert node["rtt"]["cnt"] >= 1


def test_statistics_wait_for_an_application_that_does_not_poll(cluster: FakeCluster) -> None:
    texts: list[str] = []
    given = {"statistics.interval.ms": 1, "stats_cb": texts.append}
    with Consumer(_settings(cluster, **given)) as consumer:
        consumer.assign([TopicPartition("t", 0, 0)])
        _poll_until(consumer, lambda: len(texts) >= 2)
        deadline = time.monotonic() + 0.2
        while time.monotonic() < deadline:
            assert len(consumer._queue._calls) <= 1
            time.sleep(0.005)


def test_an_outage_goes_to_the_error_callback_and_not_to_poll() -> None:
    errors: list[KafkaError] = []
    given = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "error_cb": errors.append, "request.timeout.ms": 200}
    with Consumer(given) as consumer:
        consumer.subscribe(["t"])
        assert _poll_until(consumer, lambda: bool(errors)) == []
    assert errors[0].name() in ("_ALL_BROKERS_DOWN", "_TIMED_OUT")
    assert "127.0.0.1:1" in errors[0].str()


def test_what_an_error_callback_raises_comes_out_of_poll() -> None:
    def fail(error: KafkaError) -> None:
        raise RuntimeError(error.name())

    given = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "error_cb": fail, "request.timeout.ms": 200}
    with Consumer(given) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(RuntimeError):
            _poll_until(consumer, lambda: False)


def test_callbacks_of_an_event_loop_may_be_coroutines(cluster: FakeCluster) -> None:
    async def run() -> str:
        told: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def stats(text: str) -> None:
            await asyncio.sleep(0)
            if not told.done():
                told.set_result(text)

        given = {"statistics.interval.ms": 10, "stats_cb": stats}
        async with AIOConsumer(_settings(cluster, **given), max_workers=2) as consumer:
            await consumer.assign([TopicPartition("t", 0, 0)])
            while not told.done():
                await consumer.poll(0.1)
            return told.result()

    assert json.loads(asyncio.run(asyncio.wait_for(run(), 30)))["type"] == "consumer"


@pytest.mark.parametrize(("setting", "most"), [({}, COUNT), ({"queued.min.messages": 5, "fetch.max.bytes": 1}, 9)])
def test_reading_ahead_ends_at_queued_min_messages(cluster: FakeCluster, setting: dict[str, Any], most: int) -> None:
    cluster.create_topic(f"ahead{most}", 1)
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "batch.num.messages": 3}) as producer:
        for number in range(COUNT):
            producer.produce(f"ahead{most}", str(number), partition=0)
    with Consumer(_settings(cluster, **setting)) as consumer:
        consumer.assign([TopicPartition(f"ahead{most}", 0, 0)])
        deadline = time.monotonic() + 30
        state = consumer._positions.state(f"ahead{most}", 0)
        assert state is not None
        while state.waiting_offsets < (5 if setting else COUNT):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        assert state.waiting_offsets <= most
        seen = []
        while len(seen) < COUNT:
            assert time.monotonic() < deadline
            seen += [message.value() for message in consumer.consume(1, 1)]
            assert state.waiting_offsets <= most
        assert seen == [str(number).encode() for number in range(COUNT)]

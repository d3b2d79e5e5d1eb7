"""Calls into librdkafka that never end, whatever timeout they are given: the client is left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

from tidelog_chaos.workload import load_library
from tidelog_foundation.errors import ErrorCode, TidelogError

released = threading.Event()


class EndlessProducer:
    """Stands for confluent-kafka's producer; no call ends before :data:`released` is set."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.purged = 0

    def init_transactions(self, *args: object) -> None:
        released.wait(30)

    send_offsets_to_transaction = commit_transaction = abort_transaction = flush = init_transactions

    def begin_transaction(self) -> None:
        released.wait(30)

    def purge(self, *, blocking: bool) -> None:
        assert not blocking


class EndlessConsumer:
    """Stands for confluent-kafka's consumer likewise."""

    def __init__(self, config: dict[str, Any]) -> None:
        pass

    def committed(self, partitions: list[Any], timeout: float) -> None:
        released.wait(30)

    def close(self) -> None:
        released.wait(30)


@pytest.fixture(autouse=True)
def _endless(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(confluent_kafka, "Producer", EndlessProducer)
    monkeypatch.setattr(confluent_kafka, "Consumer", EndlessConsumer)
    for module in ("calls", "producers", "consumer"):
        monkeypatch.setattr(f"tidelog_chaos.workload.confluent.{module}.GRACE_S", 0.02)
    monkeypatch.setattr("tidelog_chaos.workload.confluent.calls.HANGS_S", 0.02)
    released.clear()
    yield
    released.set()


@pytest.mark.parametrize(
    ("what", "call"),
    [
        ("initialize transactions", lambda producer: producer.init_transactions(0.01)),
        ("begin a transaction", lambda producer: producer.begin_transaction()),
        ("send offsets to a transaction", lambda producer: producer.send_offsets_to_transaction([], None, 0.01)),
        ("commit a transaction", lambda producer: producer.commit_transaction(0.01)),
        ("abort a transaction", lambda producer: producer.abort_transaction(0.01)),
    ],
)
def test_transactional_call_that_never_ends_is_the_producers_last(what: str, call: Callable[[Any], object]) -> None:
    producer = load_library("confluent-kafka").transactional_producer({})
    with pytest.raises(TidelogError, match=f"asked to {what} and has not done it in 0") as raised:
        call(producer)
    assert raised.value.code is ErrorCode._TIMED_OUT
    assert raised.value.error.fatal()
    assert not raised.value.error.retriable()
    with pytest.raises(TidelogError, match="asked to begin a transaction after a call that has not ended"):
        producer.begin_transaction()
    producer.purge()
    producer.close(0)


def test_producer_and_consumer_whose_end_never_comes_are_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    library = load_library("confluent-kafka")
    library.producer({}).close(0)
    library.consumer({"group.id": "group"}).close()
    assert [record.getMessage() for record in caplog.records] == [
        "A client is left behind: librdkafka was asked to end and has not done it in 0.02 s",
        "A client is left behind: librdkafka was asked to close and has not done it in 0.02 s",
    ]


def test_consumer_whose_call_never_ends_is_no_member_any_more() -> None:
    consumer = load_library("confluent-kafka").consumer({"group.id": "group"})
    with pytest.raises(TidelogError, match="asked to return committed offsets and has not done it in 0"):
        consumer.committed([], 0.01)
    assert consumer.generation == -1
    consumer.close()

"""The CPU time of reading messages: ``consume(500)``, ``consume(1)`` and ``poll()`` beside confluent-kafka's.

Both clients are members of no group, store and commit offsets by default, read the same records of the same node, and
look at error, key, value and offset of each message. Tidelog reads through gRPC, confluent-kafka through the node's
Kafka listener. A round opens a consumer, reads a topic from its beginning to its end, and closes the consumer. Counted
is the CPU time of the client's process with all threads, also those of gRPC and librdkafka, so that the load of the
machine matters little. The node is a process of its own; a mock cluster would count as part of the client.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import confluent_kafka
import pyarrow

from benchmarks.options import Options
from benchmarks.result import Bar, Result
from benchmarks.rounds import alternate
from tidelog.consumer import Consumer
from tidelog.message import TopicPartition
from tidelog.producer import Producer

PARTITIONS = 2
LARGE, SMALL = "messages-large-batches", "messages-small-batches"
_SMALL_BATCH = {"batch.size": 1_200}
"""Ten records."""
_PEER = "confluent-kafka on the same node"
_SETTINGS = {"group.id": "bench", "auto.offset.reset": "earliest"}


@dataclass(frozen=True, slots=True)
class _Side:
    """A client's way to open a consumer, and its class of partitions."""

    open_consumer: Callable[[], Any]
    partition: Callable[[str, int, int], Any]

    def cpu_seconds(self, topic: str, count: int, read: Callable[[Any, int], None]) -> float:
        """Read a topic, and return the CPU time."""
        started = time.process_time()
        consumer = self.open_consumer()
        consumer.assign([self.partition(topic, number, 0) for number in range(PARTITIONS)])
        read(consumer, count)
        consumer.close()
        return time.process_time() - started


def run(options: Options, bootstrap_servers: str, kafka_bootstrap_servers: str) -> list[Result]:
    """Measure each way to read, with values of 100 bytes."""
    count = options.pick(400_000, 200_000)
    options.say("consume(): filling the topics")
    _fill(bootstrap_servers, LARGE, count, {})
    _fill(bootstrap_servers, SMALL, count, _SMALL_BATCH)
    log = logging.getLogger("confluent-kafka")
    log.setLevel(logging.CRITICAL)
    theirs = {"bootstrap.servers": kafka_bootstrap_servers, **_SETTINGS}
    sides = {
        "ours": _Side(lambda: Consumer({"bootstrap.servers": bootstrap_servers, **_SETTINGS}), TopicPartition),
        _PEER: _Side(lambda: confluent_kafka.Consumer(theirs, logger=log), confluent_kafka.TopicPartition),
    }
    return [
        _measured(options, sides, LARGE, count, "consume(500)", _in_batches),
        _measured(options, sides, SMALL, count, "consume(500), batches of 10", _in_batches),
        _measured(options, sides, LARGE, count, "consume(1)", _in_lists_of_one),
        _measured(options, sides, LARGE, count, "poll()", _by_poll),
    ]


def _fill(servers: str, topic: str, count: int, settings: dict[str, Any]) -> None:
    values = pyarrow.array([b"%010d" % n * 10 for n in range(count // PARTITIONS)], pyarrow.binary())
    with Producer({"bootstrap.servers": servers, **settings}) as producer:
        for partition in range(PARTITIONS):
            producer.produce_batch(topic, values, partition=partition)


def _measured(
    options: Options, sides: dict[str, _Side], topic: str, count: int, name: str, read: Callable[[Any, int], None]
) -> Result:
    name = f"{name} of 100 bytes: CPU of the client"
    options.say(name)

    def variant(side: _Side) -> Callable[[], float]:
        return lambda: side.cpu_seconds(topic, count, read)

    taken = alternate({name: variant(side) for name, side in sides.items()}, options.pick(15, 5))
    cost_ns = taken.median("ours") / count * 1e9
    return Result(name, cost_ns, "ns a message", _PEER, taken.speed_ratio("ours", _PEER), Bar.on_ratio(at_least=1))


def _in_batches(consumer: Any, left: int) -> None:
    while left > 0:
        messages = consumer.consume(min(left, 500), 1.0)
        for message in messages:
            assert message.error() is None
            message.key()
            message.value()
            message.offset()
        left -= len(messages)


def _in_lists_of_one(consumer: Any, left: int) -> None:
    while left > 0:
        for message in consumer.consume(1, 1.0):
            assert message.error() is None
            message.key()
            message.value()
            message.offset()
            left -= 1


def _by_poll(consumer: Any, left: int) -> None:
    while left > 0:
        message = consumer.poll(1.0)
        if message is not None:
            assert message.error() is None
            message.key()
            message.value()
            message.offset()
            left -= 1

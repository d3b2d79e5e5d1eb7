"""The CPU time of reading one message at a time: ``consume(500)``, ``consume(1)`` and ``poll()`` beside confluent-kafka's.

Both clients read the same records of the same node and look at error, key, value and offset of each message. Tidelog
reads through gRPC, confluent-kafka through the node's Kafka listener. A round opens a consumer, reads the topic once and
closes it. The CPU time is that of the whole process of the client, with the network thread and the threads of
librdkafka, so it hardly depends on the machine's load. The node is another process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pyarrow

from benchmarks.options import Options
from benchmarks.result import Bar, Result
from benchmarks.rounds import alternate
from tidelog.consumer import Consumer
from tidelog.message import TopicPartition
from tidelog.producer import Producer

TOPIC = "messages"
PARTITIONS = 2
_PEER = "confluent-kafka on the same node"
_GROUP = {"group.id": "bench", "auto.offset.reset": "earliest"}


def run(options: Options, bootstrap_servers: str, kafka_bootstrap_servers: str) -> list[Result]:
    """Measure each way to read, with values of 100 bytes."""
    count = options.pick(400_000, 100_000)
    options.say("consume(): filling the topic")
    values = pyarrow.array([b"%010d" % n * 10 for n in range(count // PARTITIONS)], pyarrow.binary())
    with Producer({"bootstrap.servers": bootstrap_servers}) as producer:
        for partition in range(PARTITIONS):
            producer.produce_batch(TOPIC, values, partition=partition)
    log = logging.getLogger("confluent-kafka")
    log.setLevel(logging.CRITICAL)
    results = []
    for name, read in (("consume(500)", _in_batches), ("consume(1)", _in_lists_of_one), ("poll()", _by_poll)):
        options.say(name)
        variants = {
            "ours": _cpu_of(lambda: Consumer({"bootstrap.servers": bootstrap_servers, **_GROUP}), TopicPartition, read),
            _PEER: _cpu_of(
                lambda: confluent_kafka.Consumer({"bootstrap.servers": kafka_bootstrap_servers, **_GROUP}, logger=log),
                confluent_kafka.TopicPartition,
                read,
            ),
        }
        variants = {side: _bound(variant, count) for side, variant in variants.items()}
        taken = alternate(variants, options.pick(15, 5))
        cost_ns = taken.median("ours") / count * 1e9
        ratio = taken.speed_ratio("ours", _PEER)
        text = f"{name} of 100 bytes, CPU of the client"
        results.append(Result(text, cost_ns, "ns a message", _PEER, ratio, Bar.on_ratio(at_least=1)))
    return results


def _bound(variant: Callable[[int], float], count: int) -> Callable[[], float]:
    return lambda: variant(count)


def _cpu_of(open_consumer: Callable[[], Any], partition: Any, read: Callable[[Any, int], None]) -> Callable[[int], float]:
    def variant(count: int) -> float:
        started = time.process_time()
        consumer = open_consumer()
        consumer.assign([partition(TOPIC, number, 0) for number in range(PARTITIONS)])
        read(consumer, count)
        consumer.close()
        return time.process_time() - started

    return variant


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

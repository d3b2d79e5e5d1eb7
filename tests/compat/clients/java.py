"""The Java client, in one JVM that Python speaks to over py4j, which comes with PySpark."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from compat.clients.client import Client, Reader
from compat.clients.librdkafka import dotted
from compat.clients.record import Received, Record
from compat.jars import QUICK_JAVA, Unavailable, java, kafka_libs

_SERIALIZER = "org.apache.kafka.common.serialization.ByteArraySerializer"
_DESERIALIZER = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
_RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"


@cache
def gateway() -> Any:
    """Return the JVM with Kafka's jars, started once. Raises Unavailable."""
    import pyspark
    from py4j.java_gateway import JavaGateway

    [jar] = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    return JavaGateway.launch_gateway(
        jarpath=str(jar),
        classpath=f"{kafka_libs()}/*",
        java_path=java(),
        javaopts=list(QUICK_JAVA),
        die_on_exit=True,
    )


def properties(servers: str, config: dict[str, Any]) -> Any:
    """Return ``java.util.Properties`` for a client."""
    made = gateway().jvm.java.util.Properties()
    for key, value in {"bootstrap.servers": servers, **config}.items():
        made.setProperty(key, str(value).lower() if isinstance(value, bool) else str(value))
    return made


class JavaReader(Reader):
    def __init__(self, servers: str, topic: str, group: str | None, partitions: int, config: dict[str, Any]) -> None:
        self._jvm = gateway().jvm
        settings = {
            "key.deserializer": _DESERIALIZER,
            "value.deserializer": _DESERIALIZER,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": group is not None,
            **({} if group is None else {"group.id": group}),
            **({"partition.assignment.strategy": _RANGE} if config.get("group.protocol") != "consumer" else {}),
            **config,
        }
        self._consumer = self._jvm.org.apache.kafka.clients.consumer.KafkaConsumer(properties(servers, settings))
        topics = self._jvm.java.util.ArrayList()
        if group is None:
            for index in range(partitions):
                topics.add(self._jvm.org.apache.kafka.common.TopicPartition(topic, index))
            self._consumer.assign(topics)
        else:
            topics.add(topic)
            self._consumer.subscribe(topics)

    def poll(self, timeout_s: float) -> list[Received]:
        polled = self._consumer.poll(self._jvm.java.time.Duration.ofMillis(int(timeout_s * 1000)))
        records, read = polled.iterator(), []
        while records.hasNext():
            read.append(_received(records.next()))
        return read

    def assignment(self) -> set[int]:
        return {partition.partition() for partition in self._consumer.assignment().toArray()}

    def close(self) -> None:
        self._consumer.close()


def _received(record: Any) -> Received:
    headers = tuple((header.key(), header.value()) for header in record.headers().toArray())
    place = (record.partition(), record.offset())
    return Received(*place, record.key(), record.value(), headers, record.timestamp())


class Java(Client):
    name = "java"

    def missing(self) -> str | None:
        try:
            gateway()
        except Unavailable as error:
            return str(error)
        return None

    def produce(
        self, servers: str, topic: str, records: Iterable[Record], compression: str = "none", **config: Any
    ) -> None:
        jvm = gateway().jvm
        settings = {"compression.type": compression, "acks": "all", "linger.ms": 5, **dotted(config)}
        settings |= {"key.serializer": _SERIALIZER, "value.serializer": _SERIALIZER}
        producer = jvm.org.apache.kafka.clients.producer.KafkaProducer(properties(servers, settings))
        try:
            futures = []
            for record in records:
                headers = jvm.org.apache.kafka.common.header.internals.RecordHeaders()
                for name, value in record.headers:
                    headers.add(name, value)
                made = jvm.org.apache.kafka.clients.producer.ProducerRecord(
                    topic, record.partition, record.timestamp_ms, record.key, record.value, headers
                )
                futures.append(producer.send(made))
            producer.flush()
            for future in futures:
                future.get()
        finally:
            producer.close()

    def reader(self, servers: str, topic: str, group: str | None = None, partitions: int = 1, **config: Any) -> Reader:
        return JavaReader(servers, topic, group, partitions, dotted(config))

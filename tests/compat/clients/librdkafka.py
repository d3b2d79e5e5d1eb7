"""confluent-kafka: librdkafka with its Python binding; and our own client, which has the same interface over gRPC."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from typing import Any

from compat.clients.client import DEADLINE_S, Client, Reader
from compat.clients.record import Received, Record

_BEGINNING = -2


def dotted(config: dict[str, Any]) -> dict[str, Any]:
    """Return properties by the names that Kafka has for them."""
    return {key.replace("_", "."): value for key, value in config.items()}


class ConfluentReader(Reader):
    def __init__(
        self, library: Any, servers: str, topic: str, group: str | None, partitions: int, config: dict[str, Any]
    ) -> None:
        self._library = library
        settings = {
            "bootstrap.servers": servers,
            "group.id": group or "none",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": group is not None,
        }
        if config.get("group.protocol") != "consumer":
            settings["partition.assignment.strategy"] = "range"
        self._consumer = library.Consumer({**settings, **config})
        if group is None:
            self._consumer.assign([library.TopicPartition(topic, i, _BEGINNING) for i in range(partitions)])
        else:
            self._consumer.subscribe([topic])

    def poll(self, timeout_s: float) -> list[Received]:
        read = []
        for message in self._consumer.consume(500, timeout_s):
            if (error := message.error()) is not None:
                raise self._library.KafkaException(error)
            headers = tuple((name, value) for name, value in message.headers() or ())
            place = (message.partition(), message.offset())
            read.append(Received(*place, message.key(), message.value(), headers, message.timestamp()[1]))
        return read

    def assignment(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


class Confluent(Client):
    name = "confluent-kafka"
    _module = "confluent_kafka"

    def missing(self) -> str | None:
        return None if importlib.util.find_spec(self._module) else f"{self.name} is not installed"

    def produce(
        self, servers: str, topic: str, records: Iterable[Record], compression: str = "none", **config: Any
    ) -> None:
        library = importlib.import_module(self._module)
        errors: list[Any] = []
        settings = {"bootstrap.servers": servers, "compression.type": compression, "acks": "all", "linger.ms": 5}
        producer = library.Producer({**settings, **dotted(config)})
        for record in records:
            extra = {} if record.timestamp_ms is None else {"timestamp": record.timestamp_ms}
            if record.partition is not None:
                extra["partition"] = record.partition
            producer.produce(
                topic,
                record.value,
                record.key,
                headers=list(record.headers),
                on_delivery=lambda error, _: errors.append(error) if error is not None else None,
                **extra,
            )
            producer.poll(0)
        left = producer.flush(DEADLINE_S)
        assert left == 0, f"{left} records were not delivered"
        if errors:
            raise library.KafkaException(errors[0])

    def reader(self, servers: str, topic: str, group: str | None = None, partitions: int = 1, **config: Any) -> Reader:
        library = importlib.import_module(self._module)
        return ConfluentReader(library, servers, topic, group, partitions, dotted(config))


class Tidelog(Confluent):
    """Its ``servers`` are the addresses of gRPC."""

    name = "tidelog"
    _module = "tidelog"

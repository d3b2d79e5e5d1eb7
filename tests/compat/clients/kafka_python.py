"""kafka-python: the protocol in Python."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterable
from typing import Any

from compat.clients.client import DEADLINE_S, Client, Reader
from compat.clients.record import Received, Record
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor

_UNASSIGNED_S = 10.0
"""A leader of a group that learns of its topic's partitions after its first assignment joins again. If its poll ends
meanwhile, kafka-python forgets the join: no assignment, no heartbeats. An application that notices subscribes again."""


class KafkaPythonReader(Reader):
    def __init__(self, servers: str, topic: str, group: str | None, partitions: int, config: dict[str, Any]) -> None:
        self._topic, self._group = topic, group
        self._assigned_at = time.monotonic()
        self._consumer = KafkaConsumer(
            bootstrap_servers=servers.split(","),
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=group is not None,
            partition_assignment_strategy=[RangePartitionAssignor],
            **config,
        )
        if group is None:
            self._consumer.assign([TopicPartition(topic, i) for i in range(partitions)])
            self._consumer.seek_to_beginning()
        else:
            self._consumer.subscribe([topic])

    def poll(self, timeout_s: float) -> list[Received]:
        polled = self._consumer.poll(timeout_ms=int(timeout_s * 1000))
        if self._group is None or self._consumer.assignment():
            self._assigned_at = time.monotonic()
        elif time.monotonic() - self._assigned_at > _UNASSIGNED_S:
            self._consumer.unsubscribe()
            self._consumer.subscribe([self._topic])
            self._assigned_at = time.monotonic()
        return [
            Received(r.partition, r.offset, r.key, r.value, tuple(map(tuple, r.headers)), r.timestamp)
            for records in polled.values()
            for r in records
        ]

    def assignment(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


class KafkaPython(Client):
    name = "kafka-python"
    takes_null_headers = False

    def missing(self) -> str | None:
        return None if importlib.util.find_spec("kafka") else "kafka-python is not installed"

    def produce(
        self, servers: str, topic: str, records: Iterable[Record], compression: str = "none", **config: Any
    ) -> None:
        producer = KafkaProducer(
            bootstrap_servers=servers.split(","),
            compression_type=None if compression == "none" else compression,
            acks="all",
            linger_ms=5,
            **config,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            producer.flush(DEADLINE_S)
            for future in futures:
                future.get(DEADLINE_S)
        finally:
            producer.close(timeout=10)

    def reader(self, servers: str, topic: str, group: str | None = None, partitions: int = 1, **config: Any) -> Reader:
        return KafkaPythonReader(servers, topic, group, partitions, config)

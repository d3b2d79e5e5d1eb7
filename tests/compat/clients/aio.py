"""aiokafka: the protocol on asyncio."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from compat.clients.client import DEADLINE_S, Client, Reader
from compat.clients.record import Received, Record


class AiokafkaReader(Reader):
    """Its event loop runs while it is asked for something."""

    def __init__(self, servers: str, topic: str, group: str | None, partitions: int, config: dict[str, Any]) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._start(servers, topic, group, partitions, config))

    async def _start(
        self, servers: str, topic: str, group: str | None, partitions: int, config: dict[str, Any]
    ) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=group is not None,
            partition_assignment_strategy=[RangePartitionAssignor],
            **config,
        )
        if group is None:
            self._consumer.assign([TopicPartition(topic, i) for i in range(partitions)])
        else:
            self._consumer.subscribe([topic])
        await self._consumer.start()
        if group is None:
            await self._consumer.seek_to_beginning()

    def poll(self, timeout_s: float) -> list[Received]:
        polled = self._loop.run_until_complete(self._consumer.getmany(timeout_ms=int(timeout_s * 1000)))
        return [
            Received(r.partition, r.offset, r.key, r.value, tuple(r.headers), r.timestamp)
            for records in polled.values()
            for r in records
        ]

    def assignment(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def close(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())
        self._loop.close()


class Aiokafka(Client):
    name = "aiokafka"

    def missing(self) -> str | None:
        return None if importlib.util.find_spec("aiokafka") else "aiokafka is not installed"

    def produce(
        self, servers: str, topic: str, records: Iterable[Record], compression: str = "none", **config: Any
    ) -> None:
        asyncio.run(self._produce(servers, topic, records, compression, config))

    async def _produce(
        self, servers: str, topic: str, records: Iterable[Record], compression: str, config: dict[str, Any]
    ) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=servers,
            compression_type=None if compression == "none" else compression,
            acks="all",
            linger_ms=5,
            **config,
        )
        await producer.start()
        try:
            futures = []
            todo = iter(records)
            while (record := await asyncio.to_thread(next, todo, None)) is not None:
                futures.append(
                    await producer.send(
                        topic,
                        value=record.value,
                        key=record.key,
                        headers=list(record.headers),
                        partition=record.partition,
                        timestamp_ms=record.timestamp_ms,
                    )
                )
            await asyncio.wait_for(asyncio.gather(*futures), DEADLINE_S)
        finally:
            await producer.stop()

    def reader(self, servers: str, topic: str, group: str | None = None, partitions: int = 1, **config: Any) -> Reader:
        return AiokafkaReader(servers, topic, group, partitions, config)

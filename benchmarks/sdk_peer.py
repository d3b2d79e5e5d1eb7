"""confluent-kafka with the mock cluster that librdkafka runs in the client's process: the reference of the SDK."""

from __future__ import annotations

import logging
from typing import Any

import confluent_kafka

PEER = "confluent-kafka on its mock cluster"
_QUEUE = {"queue.buffering.max.messages": 10_000_000, "queue.buffering.max.kbytes": 2_000_000}


class PeerCluster:
    """A mock cluster of one broker and a producer on it. It lives as long as the producer."""

    def __init__(self, **settings: Any) -> None:
        """``settings`` are the producer's, with ``_`` for dots."""
        own = {key.replace("_", "."): value for key, value in settings.items()}
        log = logging.getLogger("confluent-kafka")
        log.setLevel(logging.CRITICAL)
        self._log = log
        mock = {"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "acks": "all", **_QUEUE, **own}
        self.producer = confluent_kafka.Producer(mock, logger=log)
        [broker] = self.producer.list_topics(timeout=10).brokers.values()
        self.address = f"{broker.host}:{broker.port}"

    def consumer(self, topic: str, partitions: int) -> Any:
        """Return a consumer that reads the first partitions from their start."""
        settings = {"bootstrap.servers": self.address, "group.id": "bench", "enable.auto.commit": False}
        consumer = confluent_kafka.Consumer(settings, logger=self._log)
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(partitions)])
        return consumer

    def close(self) -> None:
        """Release the mock cluster."""
        self.producer.purge()
        self.producer.flush(5)
        del self.producer

"""The consumer of assigned partitions, with confluent-kafka's API."""

from tidelog.consumer.config import ConsumerConfig
from tidelog.consumer.consumer import Consumer

__all__ = ["Consumer", "ConsumerConfig"]

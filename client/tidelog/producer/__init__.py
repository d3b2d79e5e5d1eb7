"""The producer, with confluent-kafka's API."""

from tidelog.producer.config import ProducerConfig
from tidelog.producer.producer import Producer

__all__ = ["Producer", "ProducerConfig"]

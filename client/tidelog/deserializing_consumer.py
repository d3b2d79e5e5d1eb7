"""The names of ``confluent_kafka.deserializing_consumer``."""

from tidelog.consumer import DeserializingConsumer

__all__ = ["DeserializingConsumer"]

"""The names of ``confluent_kafka.serializing_producer``."""

from tidelog.producer import SerializingProducer

__all__ = ["SerializingProducer"]

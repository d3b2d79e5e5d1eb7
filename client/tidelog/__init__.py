"""Tidelog's client SDK: produce, consume and administer, with confluent-kafka's names."""

from tidelog.errors import KafkaError, KafkaException, TidelogError

__all__ = ["KafkaError", "KafkaException", "TidelogError"]

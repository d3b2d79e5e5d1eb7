"""The producer with confluent-kafka's API."""

from tidelog.producer.config import ProducerConfig
from tidelog.producer.core.transaction_requests import PreparedTransaction
from tidelog.producer.hooks import ProducerInterceptor, ProducerRecord
from tidelog.producer.producer import Producer
from tidelog.producer.serializing_producer import SerializingProducer
from tidelog.producer.written import BatchDeliveryError, WrittenRows

__all__ = [
    "BatchDeliveryError",
    "PreparedTransaction",
    "Producer",
    "ProducerConfig",
    "ProducerInterceptor",
    "ProducerRecord",
    "SerializingProducer",
    "WrittenRows",
]

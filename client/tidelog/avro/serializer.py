"""The errors of the former serializers, from confluent-kafka."""

from tidelog.schema_registry.extra import missing

try:
    from confluent_kafka.avro.serializer import KeySerializerError, SerializerError, ValueSerializerError
except ModuleNotFoundError as error:
    raise missing(__name__, error) from error

__all__ = ["KeySerializerError", "SerializerError", "ValueSerializerError"]

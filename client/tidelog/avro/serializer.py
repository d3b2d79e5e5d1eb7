"""The errors of the former serializers, from confluent-kafka."""

from tidelog.schema_registry.extra import schema_registry_extra

with schema_registry_extra(__name__):
    from confluent_kafka.avro.serializer import KeySerializerError, SerializerError, ValueSerializerError

__all__ = ["KeySerializerError", "SerializerError", "ValueSerializerError"]

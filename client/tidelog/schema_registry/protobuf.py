"""Serializers and deserializers of Protobuf with a schema registry: confluent-kafka's classes, with the same bytes."""

from tidelog.schema_registry.extra import schema_registry_extra

with schema_registry_extra(__name__):
    from confluent_kafka.schema_registry.protobuf import *  # noqa: F403

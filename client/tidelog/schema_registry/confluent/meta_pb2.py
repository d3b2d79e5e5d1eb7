"""Confluent's options for Protobuf messages and fields: confluent-kafka's own module, under this name."""

from tidelog.schema_registry.extra import schema_registry_extra

with schema_registry_extra(__name__):
    from confluent_kafka.schema_registry.confluent.meta_pb2 import *  # noqa: F403

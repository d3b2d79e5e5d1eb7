"""The former schema registry client, from confluent-kafka."""

from tidelog.schema_registry.extra import schema_registry_extra

with schema_registry_extra(__name__):
    from confluent_kafka.avro.cached_schema_registry_client import CachedSchemaRegistryClient

__all__ = ["CachedSchemaRegistryClient"]

"""Functions that parse a schema, from confluent-kafka."""

from tidelog.schema_registry.extra import schema_registry_extra

with schema_registry_extra(__name__):
    from confluent_kafka.avro.load import load, loads

__all__ = ["load", "loads"]

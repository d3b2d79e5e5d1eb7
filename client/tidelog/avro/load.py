"""Functions that parse a schema, from confluent-kafka."""

from tidelog.schema_registry.extra import missing

try:
    from confluent_kafka.avro.load import load, loads
except ModuleNotFoundError as error:
    raise missing(__name__, error) from error

__all__ = ["load", "loads"]

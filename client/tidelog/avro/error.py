"""The error of the former client of schema registries: confluent-kafka's own."""

from tidelog.schema_registry.extra import missing

try:
    from confluent_kafka.avro.error import ClientError
except ModuleNotFoundError as error:
    raise missing(__name__, error) from error

__all__ = ["ClientError"]

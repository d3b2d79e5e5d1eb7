"""The error of the former schema registry client, from confluent-kafka."""

from tidelog.schema_registry.extra import missing

try:
    from confluent_kafka.avro.error import ClientError
except ModuleNotFoundError as error:
    raise missing(__name__, error) from error

__all__ = ["ClientError"]

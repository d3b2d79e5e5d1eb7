"""Serializers and deserializers of Avro with a schema registry.

The classes are confluent-kafka's, with the same bytes.
"""

from tidelog.schema_registry.extra import missing

try:
    from confluent_kafka.schema_registry.avro import *  # noqa: F403
except ModuleNotFoundError as error:
    raise missing(__name__, error) from error

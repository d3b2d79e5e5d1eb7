"""Confluent's options for Protobuf messages and fields: confluent-kafka's own module, under this name."""

from tidelog.schema_registry.extra import missing

try:
    from confluent_kafka.schema_registry.confluent.meta_pb2 import *  # noqa: F403
except ModuleNotFoundError as error:
    raise missing(__name__, error) from error

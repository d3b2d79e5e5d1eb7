"""Clients of schema registries.

The classes are confluent-kafka's.
"""

from tidelog.schema_registry.extra import missing

try:
    from confluent_kafka.schema_registry.schema_registry_client import *  # noqa: F403
except ModuleNotFoundError as error:
    raise missing(__name__, error) from error

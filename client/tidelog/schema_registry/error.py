"""The errors of schema registries.

The classes are confluent-kafka's.
"""

from tidelog.schema_registry.extra import schema_registry_extra

with schema_registry_extra(__name__):
    from confluent_kafka.schema_registry.error import *  # noqa: F403

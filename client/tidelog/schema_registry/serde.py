"""The shared parts of serializers and deserializers with a schema registry.

The classes are confluent-kafka's, with the same bytes.
"""

from tidelog.schema_registry.extra import schema_registry_extra

with schema_registry_extra(__name__):
    from confluent_kafka.schema_registry.serde import *  # noqa: F403

"""Clients of Confluent Schema Registry and their serializers: confluent-kafka's own, under this name.

A registry is independent of the log, and its serializers are callables for any client. This is therefore the code that
wrote a program's records, not another version of it. It requires the extra ``schema-registry``.
"""

from tidelog.schema_registry.extra import schema_registry_extra

with schema_registry_extra(__name__):
    from confluent_kafka.schema_registry import *  # noqa: F403

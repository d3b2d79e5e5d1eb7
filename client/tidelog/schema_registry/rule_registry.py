"""The registry of the rules that serializers apply: confluent-kafka's classes."""

from tidelog.schema_registry.extra import schema_registry_extra

with schema_registry_extra(__name__):
    from confluent_kafka.schema_registry.rule_registry import *  # noqa: F403

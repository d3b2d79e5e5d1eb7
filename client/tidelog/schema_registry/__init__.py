"""Clients of Confluent Schema Registry, and serializers that use them: confluent-kafka's own, under this name.

A registry knows nothing of the log, and its serializers are callables that any client takes. So they are the very code
that wrote the records that a program has, and not another version of it. They need the extra ``schema-registry``.
"""

from tidelog.schema_registry.extra import missing

try:
    from confluent_kafka.schema_registry import *  # noqa: F403
except ModuleNotFoundError as error:
    raise missing(__name__, error) from error

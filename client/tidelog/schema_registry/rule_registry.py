"""The registry of the rules that serializers apply.

The classes are confluent-kafka's.
"""

from tidelog.schema_registry.extra import missing

try:
    from confluent_kafka.schema_registry.rule_registry import *  # noqa: F403
except ModuleNotFoundError as error:
    raise missing(__name__, error) from error

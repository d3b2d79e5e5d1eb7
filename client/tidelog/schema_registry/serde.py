"""The parts that serializers and deserializers with a schema registry share.

The classes are those of confluent-kafka, and so are their bytes.
"""

from tidelog.schema_registry.extra import missing

try:
    from confluent_kafka.schema_registry.serde import *  # noqa: F403
except ModuleNotFoundError as error:
    raise missing(__name__, error) from error

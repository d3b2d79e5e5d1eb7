"""Settings of all sources and of all sinks, with Connect's names, defaults and groups.

Source: ConnectorConfig, SourceConnectorConfig and SinkConnectorConfig of Kafka 4.1.
"""

from __future__ import annotations

from tidelog_connect.configuration import (
    NO_DEFAULT_VALUE,
    ConfigDef,
    Importance,
    NonEmptyStringWithoutControlChars,
    Range,
    Type,
    ValidString,
    Width,
)
from tidelog_connect.connectors.step_settings import COMMON, define_steps
from tidelog_connect.errors import ERRORS_CONFIG, SINK_ERRORS_CONFIG

TOPIC_CREATION = "Topic Creation"
TASKS_MAX = "tasks.max"
TOPICS = "topics"
TOPICS_REGEX = "topics.regex"
PARTITIONS = "topic.creation.default.partitions"
REPLICATION_FACTOR = "topic.creation.default.replication.factor"


def shared_settings(kind: str, version: str) -> ConfigDef:
    """Return the settings of all connectors of a kind; ``version`` is that of the connector."""
    found = ConfigDef()
    high, medium = Importance.HIGH, Importance.MEDIUM
    found.define(
        "name",
        Type.STRING,
        NO_DEFAULT_VALUE,
        high,
        "The name of the connector, unique in its group of workers.",
        validator=NonEmptyStringWithoutControlChars(),
        group=COMMON,
        order=1,
        width=Width.MEDIUM,
        display_name="Connector name",
    )
    found.define(
        "connector.class",
        Type.STRING,
        NO_DEFAULT_VALUE,
        high,
        "The class of the connector, as GET /connector-plugins lists it, or its last part with or without Connector.",
        group=COMMON,
        order=2,
        width=Width.LONG,
        display_name="Connector class",
    )
    found.define(
        "connector.plugin.version",
        Type.STRING,
        version,
        medium,
        "The version of the connector, of which one is installed.",
        validator=ValidString((version,)),
        group=COMMON,
        order=3,
        width=Width.MEDIUM,
        display_name="Connector version",
        recommender=_Only(version),
    )
    found.define(
        TASKS_MAX,
        Type.INT,
        "1",
        high,
        "The maximum number of tasks that Spark runs for the connector at a time.",
        validator=Range(1),
        group=COMMON,
        order=4,
        width=Width.SHORT,
        display_name="Tasks max",
    )
    define_steps(found)
    for key in (*ERRORS_CONFIG, *(SINK_ERRORS_CONFIG if kind == "sink" else ())):
        found.add(key)
    if kind == "sink":
        _define_topics(found)
    else:
        _define_topic_creation(found)
    return found


class _Only:
    def __init__(self, value: str) -> None:
        self._value = value

    def valid_values(self, name: str, parsed: object) -> list[object]:
        return [self._value]

    def visible(self, name: str, parsed: object) -> bool:
        return True


def _define_topics(found: ConfigDef) -> None:
    found.define(
        TOPICS,
        Type.LIST,
        "",
        Importance.HIGH,
        "Topics to read, separated by commas.",
        group=COMMON,
        order=4,
        width=Width.LONG,
        display_name="Topics",
    )
    found.define(
        TOPICS_REGEX,
        Type.STRING,
        "",
        Importance.HIGH,
        "A regular expression that the whole names of the topics to read match. Either this or topics is required.",
        group=COMMON,
        order=4,
        width=Width.LONG,
        display_name="Topics regex",
    )


def _define_topic_creation(found: ConfigDef) -> None:
    for order, (key, text) in enumerate(((REPLICATION_FACTOR, "replicas"), (PARTITIONS, "partitions")), 1):
        found.define(
            key,
            Type.INT,
            None,
            Importance.LOW,
            f"The number of {text} of topics that the source creates; without it, the cluster's default.",
            validator=_OptionalRange(),
            group=TOPIC_CREATION,
            order=order,
            width=Width.LONG,
            display_name=key,
        )


class _OptionalRange:
    def __call__(self, name: str, value: object) -> None:
        if value is not None and value != -1:
            Range(1)(name, value)

"""The predicates by the names of Kafka's classes, their settings, and the conditions that they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as sql

from tidelog_connect.configuration import (
    NO_DEFAULT_VALUE,
    Composite,
    ConfigDef,
    Importance,
    NonEmptyString,
    Type,
)
from tidelog_connect.plugins import Plugin, Plugins
from tidelog_connect.transforms.java import matches
from tidelog_connect.transforms.settings import ValidRegex, text

_PACKAGE = "org.apache.kafka.connect.transforms.predicates."

Predicate: TypeAlias = Column
"""A condition over the columns of records."""

_HEADER_CONFIG = ConfigDef().define(
    "name", Type.STRING, NO_DEFAULT_VALUE, Importance.MEDIUM, "The header's name.", validator=NonEmptyString()
)
_TOPIC_CONFIG = ConfigDef().define(
    "pattern",
    Type.STRING,
    NO_DEFAULT_VALUE,
    Importance.MEDIUM,
    "A regular expression of Java that matches the names of topics as a whole.",
    validator=Composite([NonEmptyString(), ValidRegex()]),
)


def _has_header(values: Mapping[str, object]) -> Column:
    name = text(values["name"])
    return sql.exists("headers", lambda header: header.getField("key") == name)


def _topic_matches(values: Mapping[str, object]) -> Column:
    return matches(sql.col("topic"), text(values["pattern"]))


def _is_tombstone(values: Mapping[str, object]) -> Column:
    return sql.col("value").isNull()


PREDICATES: Plugins[Predicate] = Plugins(
    (
        Plugin(f"{_PACKAGE}HasHeaderKey", _HEADER_CONFIG, _has_header),
        Plugin(f"{_PACKAGE}RecordIsTombstone", ConfigDef(), _is_tombstone),
        Plugin(f"{_PACKAGE}TopicNameMatches", _TOPIC_CONFIG, _topic_matches),
    ),
    "type",
    "Predicate",
)
"""The predicates by the names of Kafka's classes."""

TOMBSTONE = f"{_PACKAGE}RecordIsTombstone"

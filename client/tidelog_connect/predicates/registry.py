"""The predicates by the names of Kafka's classes, their settings, and the conditions that they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as sql

from tidelog_connect.configuration import (
    NO_DEFAULT_VALUE,
    Composite,
    ConfigDef,
    ConfigException,
    Importance,
    NonEmptyString,
    Type,
)
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


@dataclass(frozen=True, slots=True)
class PredicatePlugin:
    """A predicate: the name of Kafka's class, the settings, and the condition of parsed settings."""

    class_name: str
    config: ConfigDef
    condition: Callable[[Mapping[str, object]], Predicate]

    @property
    def alias(self) -> str:
        """The name without its package."""
        return self.class_name.removeprefix(_PACKAGE)


def _has_header(values: Mapping[str, object]) -> Column:
    name = text(values["name"])
    return sql.exists("headers", lambda header: header.getField("key") == name)


def _topic_matches(values: Mapping[str, object]) -> Column:
    return matches(sql.col("topic"), text(values["pattern"]))


def _is_tombstone(values: Mapping[str, object]) -> Column:
    return sql.col("value").isNull()


PREDICATES: Mapping[str, PredicatePlugin] = MappingProxyType(
    {
        plugin.class_name: plugin
        for plugin in (
            PredicatePlugin(f"{_PACKAGE}HasHeaderKey", _HEADER_CONFIG, _has_header),
            PredicatePlugin(f"{_PACKAGE}RecordIsTombstone", ConfigDef(), _is_tombstone),
            PredicatePlugin(f"{_PACKAGE}TopicNameMatches", _TOPIC_CONFIG, _topic_matches),
        )
    }
)
"""The predicates by the names of Kafka's classes."""

TOMBSTONE = f"{_PACKAGE}RecordIsTombstone"


def create_predicate(name: str, settings: Mapping[str, str]) -> tuple[PredicatePlugin, Predicate]:
    """Return a predicate by the name of its class, in full or without the package, and its condition.

    Raises:
        ConfigException: there is no such predicate, or a setting is not valid.
    """
    plugin = PREDICATES.get(name) or PREDICATES.get(_PACKAGE + name)
    if plugin is None:
        raise ConfigException.of("type", name, f"Class {name} could not be found.")
    return plugin, plugin.condition(plugin.config.parse(settings))

"""`RegexRouter` and `TimestampRouter`: other topics for records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import functions as sql

from tidelog_connect.configuration import NO_DEFAULT_VALUE, ConfigDef, ConfigException, Importance, Type
from tidelog_connect.records import DATA_EXCEPTION, ILLEGAL_ARGUMENT, Failure, Records
from tidelog_connect.transforms import java
from tidelog_connect.transforms.date_patterns import unknown_letter
from tidelog_connect.transforms.settings import ValidRegex, text

REGEX_CONFIG = (
    ConfigDef()
    .define("regex", Type.STRING, NO_DEFAULT_VALUE, Importance.HIGH, "Matches whole topics.", validator=ValidRegex())
    .define("replacement", Type.STRING, NO_DEFAULT_VALUE, Importance.HIGH, "The new topic; $1 is the first group.")
)
TIMESTAMP_CONFIG = (
    ConfigDef()
    .define(
        "topic.format",
        Type.STRING,
        "${topic}-${timestamp}",
        Importance.HIGH,
        "The new topic, with ${topic} for the topic and ${timestamp} for the timestamp.",
    )
    .define(
        "timestamp.format",
        Type.STRING,
        "yyyyMMdd",
        Importance.HIGH,
        "The timestamp's format, of Java's SimpleDateFormat.",
    )
)


@dataclass(frozen=True, slots=True)
class RegexRouter:
    """Replaces topics that match a regular expression."""

    regex: str
    replacement: str

    @classmethod
    def of(cls, values: Mapping[str, object]) -> RegexRouter:
        """Return the transform of parsed settings."""
        return cls(text(values["regex"]), text(values["replacement"]))

    def __call__(self, records: Records) -> Records:
        """Return the records with their topics."""
        topic = sql.col("topic")
        is_match = java.matches(topic, self.regex)
        routed = java.with_first_replaced(topic, self.regex, self.replacement)
        message = f"Invalid replacement {self.replacement!r} for the regular expression {self.regex!r}"
        failure = Failure(is_match & routed.isNull(), ILLEGAL_ARGUMENT, message)
        return records.changed({"topic": sql.when(is_match, routed).otherwise(topic)}, [failure])


@dataclass(frozen=True, slots=True)
class TimestampRouter:
    """Makes topics of topics and timestamps."""

    topic_format: str
    timestamp_format: str

    @classmethod
    def of(cls, values: Mapping[str, object]) -> TimestampRouter:
        """Return the transform of parsed settings.

        Raises:
            ConfigException: the format of the timestamp is not one of SimpleDateFormat.
        """
        pattern = text(values["timestamp.format"])
        letter = unknown_letter(pattern)
        if letter is not None:
            raise ConfigException.of("timestamp.format", pattern, f"Illegal pattern character '{letter}'")
        return cls(text(values["topic.format"]), pattern)

    def __call__(self, records: Records) -> Records:
        """Return the records with their topics."""
        timestamp = sql.col("timestamp")
        topic = sql.replace(sql.lit(self.topic_format), sql.lit("${topic}"), sql.col("topic"))
        found = sql.replace(topic, sql.lit("${timestamp}"), java.formatted_utc(timestamp, self.timestamp_format))
        message = sql.concat(sql.lit("Timestamp missing on record: "), sql.col("topic"))
        return records.changed({"topic": found}, [Failure(timestamp.isNull(), DATA_EXCEPTION, message)])

"""The settings of error handling, of all connectors and of sinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog_connect.configuration import ConfigDef, Importance, Type, ValidString, Width

_GROUP = "Error Handling"
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"

ERRORS_CONFIG = (
    ConfigDef()
    .define(
        "errors.retry.timeout",
        Type.LONG,
        0,
        Importance.MEDIUM,
        "The time in ms for which a batch that a connector cannot read or write at present is repeated: 0 for no "
        "retries, -1 for no limit.",
        group=_GROUP,
        order=1,
        width=Width.MEDIUM,
        display_name="Retry Timeout for Errors",
    )
    .define(
        "errors.retry.delay.max.ms",
        Type.LONG,
        60_000,
        Importance.MEDIUM,
        "The longest wait in ms between two attempts. Waits grow exponentially from 300 ms.",
        group=_GROUP,
        order=2,
        width=Width.MEDIUM,
        display_name="Maximum Delay Between Retries for Errors",
    )
    .define(
        "errors.tolerance",
        Type.STRING,
        "none",
        Importance.MEDIUM,
        "none: the first record that cannot be processed fails the task. all: such records are skipped.",
        validator=ValidString(["none", "all"]),
        group=_GROUP,
        order=3,
        width=Width.SHORT,
        display_name="Error Tolerance",
    )
    .define(
        "errors.log.enable",
        Type.BOOLEAN,
        False,
        Importance.MEDIUM,
        "Whether each error is logged. When false, only those that fail the task are.",
        group=_GROUP,
        order=4,
        width=Width.SHORT,
        display_name="Log Errors",
    )
    .define(
        "errors.log.include.messages",
        Type.BOOLEAN,
        False,
        Importance.MEDIUM,
        "Whether the line of an error names the record: topic, partition, offset and timestamp.",
        group=_GROUP,
        order=5,
        width=Width.SHORT,
        display_name="Log Error Details",
    )
)
"""Of sources and sinks."""

SINK_ERRORS_CONFIG = (
    ConfigDef()
    .define(
        DEAD_LETTER_TOPIC,
        Type.STRING,
        "",
        Importance.MEDIUM,
        "The topic for records that cannot be processed. Empty: they are not kept.",
        group=_GROUP,
        order=6,
        width=Width.MEDIUM,
        display_name="Dead Letter Queue Topic Name",
    )
    .define(
        "errors.deadletterqueue.topic.replication.factor",
        Type.SHORT,
        3,
        Importance.MEDIUM,
        "The replication factor of the dead-letter topic, if it does not exist.",
        group=_GROUP,
        order=7,
        width=Width.MEDIUM,
        display_name="Dead Letter Queue Topic Replication Factor",
    )
    .define(
        "errors.deadletterqueue.context.headers.enable",
        Type.BOOLEAN,
        False,
        Importance.MEDIUM,
        "Whether records in the dead-letter topic have headers that describe the error: __connect.errors.*",
        group=_GROUP,
        order=8,
        width=Width.MEDIUM,
        display_name="Enable Error Context Headers",
    )
)
"""Of sinks alone."""


@dataclass(frozen=True, slots=True)
class ErrorSettings:
    """The settings of one connector. A source has no dead-letter topic."""

    retry_timeout_ms: int
    max_delay_ms: int
    tolerates_all: bool
    logs_errors: bool
    logs_records: bool
    dead_letter_topic: str
    dead_letter_replication_factor: int
    adds_headers: bool

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> ErrorSettings:
        """Return the settings of a connector's configuration.

        Raises:
            ConfigException: a setting is not valid.
        """
        values = ERRORS_CONFIG.parse(settings) | SINK_ERRORS_CONFIG.parse(settings)
        return cls(
            retry_timeout_ms=_number(values["errors.retry.timeout"]),
            max_delay_ms=_number(values["errors.retry.delay.max.ms"]),
            tolerates_all=values["errors.tolerance"] == "all",
            logs_errors=bool(values["errors.log.enable"]),
            logs_records=bool(values["errors.log.include.messages"]),
            dead_letter_topic=str(values[DEAD_LETTER_TOPIC]).strip(),
            dead_letter_replication_factor=_number(values["errors.deadletterqueue.topic.replication.factor"]),
            adds_headers=bool(values["errors.deadletterqueue.context.headers.enable"]),
        )


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value

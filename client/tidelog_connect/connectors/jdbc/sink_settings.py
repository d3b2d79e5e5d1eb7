"""The settings of the JDBC sink, by the names and defaults of Confluent's connector where it has them (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidelog_connect.configuration import (
    CaseInsensitiveValidString,
    ConfigDef,
    ConfigException,
    Importance,
    NonEmptyString,
    Range,
    Type,
)
from tidelog_connect.connectors.jdbc.connection_settings import (
    ConnectionSettings,
    define_connection,
    is_quoted,
    timezone,
)

INSERT, UPSERT, UPDATE = "insert", "upsert", "update"
NONE, KAFKA, RECORD_KEY, RECORD_VALUE = "none", "kafka", "record_key", "record_value"
KAFKA_FIELDS = ("__connect_topic", "__connect_partition", "__connect_offset")
_WRITES, _MAPPING, _DDL, _RETRIES = "Writes", "Data Mapping", "DDL Support", "Retries"
_MAX_INT = 2**31 - 1
_TOPIC = "${topic}"


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """The settings of a sink that fit together."""

    name: str
    connection: ConnectionSettings
    insert_mode: str
    pk_mode: str
    pk_fields: tuple[str, ...]
    whitelist: tuple[str, ...]
    table_format: str
    creates: bool
    evolves: bool
    deletes: bool
    batch_size: int
    max_retries: int
    retry_backoff_ms: int
    timezone: str
    is_quoted: bool
    batch_table: str

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> SinkSettings:
        """Return those of a connector's parsed settings.

        Raises:
            ConfigException: a mode lacks the primary key that it needs, or has one that does not fit.
        """
        found = cls(
            name=settings["name"],
            connection=ConnectionSettings.of(settings),
            insert_mode=str(settings["insert.mode"]).lower(),
            pk_mode=str(settings["pk.mode"]).lower(),
            pk_fields=tuple(settings["pk.fields"]),
            whitelist=tuple(settings["fields.whitelist"]),
            table_format=settings["table.name.format"],
            creates=settings["auto.create"],
            evolves=settings["auto.evolve"],
            deletes=settings["delete.enabled"],
            batch_size=settings["batch.size"],
            max_retries=settings["max.retries"],
            retry_backoff_ms=settings["retry.backoff.ms"],
            timezone=timezone(settings),
            is_quoted=is_quoted(settings),
            batch_table=settings["batch.table.name"],
        )
        found._check()
        return found

    def table_of(self, topic: str) -> str:
        """Return the name of a topic's table: one, or schema and table with a point between."""
        return self.table_format.replace(_TOPIC, topic)

    def _check(self) -> None:
        if self.deletes and self.pk_mode != RECORD_KEY:
            raise ConfigException("Primary key mode must be 'record_key' when delete support is enabled")
        if self.insert_mode != INSERT and self.pk_mode == NONE:
            raise ConfigException(
                f"insert.mode={self.insert_mode} needs a primary key: set pk.mode to kafka, record_key or record_value"
            )
        if self.pk_mode == NONE and self.pk_fields:
            raise ConfigException.of("pk.fields", ",".join(self.pk_fields), "pk.mode=none does not use it")
        if self.pk_mode == KAFKA and len(self.pk_fields) not in (0, len(KAFKA_FIELDS)):
            raise ConfigException.of(
                "pk.fields", ",".join(self.pk_fields), "pk.mode=kafka needs three names: of topic, partition and offset"
            )


def sink_config() -> ConfigDef:
    """Return the definitions of the sink's settings."""
    found = ConfigDef()
    define_connection(found)
    _define_writes(found)
    _define_mapping(found)
    for name, text in (
        ("auto.create", "Whether the sink creates tables that do not exist."),
        ("auto.evolve", "Whether the sink adds columns that a table lacks."),
    ):
        found.define(name, Type.BOOLEAN, "false", Importance.MEDIUM, text, group=_DDL)
    found.define(
        "max.retries",
        Type.INT,
        "10",
        Importance.MEDIUM,
        "The number of further attempts to write a batch after an error that can pass.",
        validator=Range(0, _MAX_INT),
        group=_RETRIES,
    )
    found.define(
        "retry.backoff.ms",
        Type.INT,
        "3000",
        Importance.MEDIUM,
        "The time between two attempts, in milliseconds.",
        validator=Range(0, _MAX_INT),
        group=_RETRIES,
    )
    return found


def _define_writes(found: ConfigDef) -> None:
    found.define(
        "insert.mode",
        Type.STRING,
        INSERT,
        Importance.HIGH,
        "insert adds rows, upsert adds or replaces those of a primary key, update changes those that exist.",
        validator=CaseInsensitiveValidString((INSERT, UPSERT, UPDATE)),
        group=_WRITES,
    )
    found.define(
        "batch.size",
        Type.INT,
        "3000",
        Importance.MEDIUM,
        "The number of rows that are sent to the database together.",
        validator=Range(1, 1_000_000),
        group=_WRITES,
    )
    found.define(
        "delete.enabled",
        Type.BOOLEAN,
        "false",
        Importance.MEDIUM,
        "Whether a record without a value deletes the row of its key. Needs pk.mode=record_key.",
        group=_WRITES,
    )
    found.define(
        "batch.table.name",
        Type.STRING,
        "tidelog_connect_batches",
        Importance.LOW,
        "The table, with or without a schema, in which the sink keeps the number of its last batch. Staged rows are in "
        "tables of the same schema.",
        validator=_TableName(),
        group=_WRITES,
    )


def _define_mapping(found: ConfigDef) -> None:
    found.define(
        "table.name.format",
        Type.STRING,
        _TOPIC,
        Importance.MEDIUM,
        "The table of a topic, with or without a schema; ${topic} is the topic's name.",
        validator=NonEmptyString(),
        group=_MAPPING,
    )
    found.define(
        "pk.mode",
        Type.STRING,
        NONE,
        Importance.HIGH,
        "The primary key: none, kafka for topic, partition and offset, record_key for the key or fields of it, "
        "record_value for fields of the value.",
        validator=CaseInsensitiveValidString((NONE, KAFKA, RECORD_KEY, RECORD_VALUE)),
        group=_MAPPING,
    )
    found.define(
        "pk.fields",
        Type.LIST,
        "",
        Importance.MEDIUM,
        "The columns of the primary key. For a key that is no struct, the one name of its column.",
        group=_MAPPING,
    )
    found.define(
        "fields.whitelist",
        Type.LIST,
        "",
        Importance.MEDIUM,
        "The fields of the value to write besides the primary key; all if it is empty.",
        group=_MAPPING,
    )


class _TableName:
    def __call__(self, name: str, value: object) -> None:
        if value is not None and not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}(\.[a-z_][a-z0-9_]{0,62})?", str(value)):
            raise ConfigException.of(name, value, "Must be TABLE or SCHEMA.TABLE of small letters, digits and _")

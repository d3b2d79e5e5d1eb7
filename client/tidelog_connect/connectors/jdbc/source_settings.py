"""The settings of the JDBC source, by the names and defaults of Confluent's connector where it has them (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidelog_connect.configuration import (
    NO_DEFAULT_VALUE,
    CaseInsensitiveValidString,
    ConfigDef,
    ConfigException,
    Importance,
    Range,
    Type,
    ValidList,
    ValidString,
)
from tidelog_connect.connectors.jdbc.connection_settings import (
    ConnectionSettings,
    define_connection,
    is_quoted,
    timezone,
)
from tidelog_connect.connectors.jdbc.postgresql import TABLE_KINDS

BULK, INCREMENTING, TIMESTAMP, BOTH = "bulk", "incrementing", "timestamp", "timestamp+incrementing"
_MODE, _CONNECTOR = "Mode", "Connector"
_MAX_INT = 2**31 - 1
_MAX_ROWS = 10_000_000


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """The settings of a source that fit together."""

    connection: ConnectionSettings
    mode: str
    incrementing: str
    timestamps: tuple[str, ...]
    timestamp_initial_ms: int | None
    delay_ms: int
    is_non_null: bool
    query: str
    whitelist: tuple[str, ...]
    blacklist: tuple[str, ...]
    table_kinds: tuple[str, ...]
    schema_pattern: str | None
    catalog_pattern: str | None
    topic_prefix: str
    poll_interval_ms: int
    max_rows: int
    table_poll_interval_ms: int
    numeric_mapping: str
    timezone: str
    is_quoted: bool
    tasks: int

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> SourceSettings:
        """Return those of a connector's parsed settings.

        Raises:
            ConfigException: a mode lacks its columns or has others, or tables are named twice.
        """
        found = cls(
            connection=ConnectionSettings.of(settings),
            mode=settings["mode"],
            incrementing=settings["incrementing.column.name"],
            timestamps=tuple(settings["timestamp.column.name"]),
            timestamp_initial_ms=settings["timestamp.initial"],
            delay_ms=settings["timestamp.delay.interval.ms"],
            is_non_null=settings["validate.non.null"],
            query=settings["query"],
            whitelist=tuple(settings["table.whitelist"]),
            blacklist=tuple(settings["table.blacklist"]),
            table_kinds=tuple(settings["table.types"]),
            schema_pattern=settings["schema.pattern"],
            catalog_pattern=settings["catalog.pattern"],
            topic_prefix=settings["topic.prefix"],
            poll_interval_ms=settings["poll.interval.ms"],
            max_rows=settings["batch.max.rows"],
            table_poll_interval_ms=settings["table.poll.interval.ms"],
            numeric_mapping=str(settings["numeric.mapping"]).lower(),
            timezone=timezone(settings),
            is_quoted=is_quoted(settings),
            tasks=settings["tasks.max"],
        )
        found._check()
        return found

    def _check(self) -> None:
        has_timestamp, has_number = self.mode in (TIMESTAMP, BOTH), self.mode in (INCREMENTING, BOTH)
        _check_use("timestamp.column.name", ",".join(self.timestamps), self.mode, is_needed=has_timestamp)
        _check_use("incrementing.column.name", self.incrementing, self.mode, is_needed=has_number)
        if self.timestamp_initial_ms is not None and not has_timestamp:
            raise ConfigException.of(
                "timestamp.initial", self.timestamp_initial_ms, f"Mode {self.mode} does not use it"
            )
        if self.delay_ms and not has_timestamp:
            raise ConfigException.of("timestamp.delay.interval.ms", self.delay_ms, f"Mode {self.mode} does not use it")
        if self.whitelist and self.blacklist:
            raise ConfigException("table.whitelist and table.blacklist are exclusive.")
        if self.query and (self.whitelist or self.blacklist):
            raise ConfigException(
                "Do not specify table filtering configs with query. Remove table.whitelist / blacklist."
            )


def source_config() -> ConfigDef:
    """Return the definitions of the source's settings."""
    found = ConfigDef()
    define_connection(found)
    _define_mode(found)
    _define_tables(found)
    found.define(
        "topic.prefix",
        Type.STRING,
        NO_DEFAULT_VALUE,
        Importance.HIGH,
        "The prefix of topics: that of a table has its name behind it, that of the query is the prefix itself.",
        group=_CONNECTOR,
    )
    found.define(
        "poll.interval.ms",
        Type.INT,
        "5000",
        Importance.HIGH,
        "The time after which a table without new rows is asked again, in milliseconds.",
        validator=Range(0, _MAX_INT),
        group=_CONNECTOR,
    )
    found.define(
        "batch.max.rows",
        Type.INT,
        "100000",
        Importance.LOW,
        "The maximum number of rows that are committed together, unless more have the same timestamp.",
        validator=Range(1, _MAX_ROWS),
        group=_CONNECTOR,
    )
    found.define(
        "table.poll.interval.ms",
        Type.LONG,
        "60000",
        Importance.LOW,
        "The time after which the list of tables is read again, in milliseconds.",
        validator=Range(1, _MAX_INT),
        group=_CONNECTOR,
    )
    found.define(
        "numeric.mapping",
        Type.STRING,
        "none",
        Importance.LOW,
        "How columns of the type NUMERIC are read: none as decimals, precision_only whole numbers as integers, "
        "best_fit others of at most 18 digits as doubles too, best_fit_eager_double all others as doubles.",
        validator=CaseInsensitiveValidString(("none", "precision_only", "best_fit", "best_fit_eager_double")),
        group=_CONNECTOR,
    )
    return found


def _define_mode(found: ConfigDef) -> None:
    found.define(
        "mode",
        Type.STRING,
        NO_DEFAULT_VALUE,
        Importance.HIGH,
        "How new rows are found: bulk reads all rows each time, incrementing finds those with a higher number, "
        "timestamp new and changed ones, timestamp+incrementing both.",
        validator=ValidString((BULK, TIMESTAMP, INCREMENTING, BOTH)),
        group=_MODE,
    )
    found.define(
        "incrementing.column.name",
        Type.STRING,
        "",
        Importance.MEDIUM,
        "The column that is higher in each new row.",
        group=_MODE,
    )
    found.define(
        "timestamp.column.name",
        Type.LIST,
        "",
        Importance.MEDIUM,
        "The columns whose first value that is not null is the time of the row's last change.",
        group=_MODE,
    )
    found.define(
        "timestamp.initial",
        Type.LONG,
        None,
        Importance.LOW,
        "The time from which rows are read when there is no offset, in milliseconds since the epoch; -1 is now.",
        validator=_InitialTime(),
        group=_MODE,
    )
    found.define(
        "timestamp.delay.interval.ms",
        Type.LONG,
        "0",
        Importance.HIGH,
        "The age that rows must have, so that transactions with earlier timestamps can end, in milliseconds.",
        validator=Range(0, _MAX_INT),
        group=_MODE,
    )
    found.define(
        "validate.non.null",
        Type.BOOLEAN,
        "true",
        Importance.LOW,
        "Whether the connector fails when the incrementing column or all timestamp columns can be null.",
        group=_MODE,
    )
    found.define(
        "query",
        Type.STRING,
        "",
        Importance.MEDIUM,
        "A query to read in the place of tables.",
        group=_MODE,
    )


def _define_tables(found: ConfigDef) -> None:
    for name, text in (("whitelist", "The only tables to read"), ("blacklist", "Tables not to read")):
        found.define(
            f"table.{name}",
            Type.LIST,
            "",
            Importance.MEDIUM,
            f"{text}, by their names, or with schema or database and schema before it.",
            group=_CONNECTOR,
        )
    found.define(
        "table.types",
        Type.LIST,
        "TABLE",
        Importance.LOW,
        "The types of tables to read.",
        validator=ValidList(tuple(TABLE_KINDS)),
        group=_CONNECTOR,
    )
    for name in ("catalog", "schema"):
        found.define(
            f"{name}.pattern",
            Type.STRING,
            None,
            Importance.MEDIUM,
            f"A pattern of LIKE for the {'databases' if name == 'catalog' else 'schemas'} of the tables.",
            group=_CONNECTOR,
        )


class _InitialTime:
    def __call__(self, name: str, value: object) -> None:
        if value is not None:
            Range(-1, 253_402_300_799_999)(name, value)


def _check_use(name: str, value: str, mode: str, *, is_needed: bool) -> None:
    if is_needed and not value:
        raise ConfigException(f"{name} must be set when mode is {mode}.")
    if value and not is_needed:
        raise ConfigException.of(name, value, f"Mode {mode} does not use it")

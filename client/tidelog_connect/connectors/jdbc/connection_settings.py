"""The settings of the connection and the dialect, which the JDBC source and sink share (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from tidelog_connect.configuration import (
    NO_DEFAULT_VALUE,
    CaseInsensitiveValidString,
    ConfigDef,
    ConfigException,
    Importance,
    Range,
    Type,
    ValidString,
    Width,
)
from tidelog_connect.configuration.values import Password
from tidelog_connect.connectors.jdbc.postgresql import DRIVER, URL_PREFIX

_DATABASE, _MAPPING = "Database", "DataMapping"
_MAX_INT = 2**31 - 1
_DIALECT = "PostgreSqlDatabaseDialect"
ALWAYS, NEVER = "ALWAYS", "NEVER"


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Address and credentials of a database, and the attempts to connect."""

    url: str
    user: str | None
    password: Password | None
    attempts: int
    backoff_ms: int

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> ConnectionSettings:
        """Return those of a connector's parsed settings."""
        return cls(
            settings["connection.url"],
            settings["connection.user"],
            settings["connection.password"],
            settings["connection.attempts"],
            settings["connection.backoff.ms"],
        )

    @property
    def credentials(self) -> dict[str, str]:
        """The properties of the driver that log in."""
        found = {} if self.user is None else {"user": self.user}
        return found if self.password is None else {**found, "password": self.password.secret}

    @property
    def spark_options(self) -> dict[str, str]:
        """The options of Spark's JDBC source and writer."""
        return {"url": self.url, "driver": DRIVER, **self.credentials}


def define_connection(found: ConfigDef) -> None:
    """Add the settings of the connection."""
    high, medium, low = Importance.HIGH, Importance.MEDIUM, Importance.LOW
    found.define(
        "connection.url",
        Type.STRING,
        NO_DEFAULT_VALUE,
        high,
        "The JDBC URL of the database: jdbc:postgresql://HOST:PORT/DATABASE.",
        validator=_Url(),
        group=_DATABASE,
        order=1,
        width=Width.LONG,
        display_name="JDBC URL",
    )
    found.define("connection.user", Type.STRING, None, high, "The user.", group=_DATABASE, order=2)
    found.define("connection.password", Type.PASSWORD, None, high, "The user's password.", group=_DATABASE, order=3)
    found.define(
        "connection.attempts",
        Type.INT,
        "3",
        low,
        "The number of attempts to connect.",
        validator=Range(1, 1000),
        group=_DATABASE,
        order=4,
    )
    found.define(
        "connection.backoff.ms",
        Type.LONG,
        "10000",
        low,
        "The time between two attempts to connect, in milliseconds.",
        validator=Range(0, _MAX_INT),
        group=_DATABASE,
        order=5,
    )
    found.define(
        "dialect.name",
        Type.STRING,
        "",
        low,
        f"The dialect of the database: {_DIALECT}, which is also found by the URL.",
        validator=ValidString(("", _DIALECT)),
        group=_DATABASE,
        order=6,
    )
    found.define(
        "db.timezone",
        Type.STRING,
        "UTC",
        medium,
        "The timezone of columns of the type TIMESTAMP, by its name in the IANA database.",
        validator=_Timezone(),
        group=_MAPPING,
        order=1,
    )
    found.define(
        "quote.sql.identifiers",
        Type.STRING,
        ALWAYS,
        medium,
        "Whether names of tables and columns are quoted: ALWAYS, or NEVER, so that the database folds their case.",
        validator=CaseInsensitiveValidString((ALWAYS, NEVER)),
        group=_MAPPING,
        order=2,
    )


def is_quoted(settings: Mapping[str, Any]) -> bool:
    """Tell whether names are quoted."""
    return str(settings["quote.sql.identifiers"]).upper() == ALWAYS


class _Url:
    def __call__(self, name: str, value: object) -> None:
        if value is not None and not str(value).startswith(URL_PREFIX):
            scheme = ":".join(str(value).split(":")[:2])
            raise ConfigException.of(
                name, f"{scheme}:...", f"Only PostgreSQL is supported, so the URL must begin with {URL_PREFIX}"
            )


class _Timezone:
    def __call__(self, name: str, value: object) -> None:
        if value is not None and str(value) not in available_timezones():
            raise ConfigException.of(name, value, "Invalid time zone identifier")


def timezone(settings: Mapping[str, Any]) -> str:
    """Return the timezone's name."""
    return ZoneInfo(settings["db.timezone"]).key

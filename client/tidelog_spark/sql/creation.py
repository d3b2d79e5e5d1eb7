"""Makes definitions of CREATE statements and their options. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tidelog_spark.sql.definitions import (
    FORMATS,
    KEY_FORMATS,
    OPTIONS,
    SINK_SEMANTICS,
    Column,
    Kind,
    OutputMode,
    Part,
    Relation,
    Start,
    check_choice,
    check_relation,
)
from tidelog_spark.sql.errors import SqlError
from tidelog_spark.sql.plan import WritePlan, casts
from tidelog_spark.sql.statements import CreateAs, CreateQuery, CreateRelation

MAX_PARTITIONS = 100_000
MAX_REPLICAS = 100
_OF_RELATIONS = ("topic", "format", "key.format", "partitions", "replicas")
_OF_QUERIES = ("key", "start")


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of WITH. None stands for the default of the cluster, or of the kind of key."""

    topic: str
    format: str
    key_format: str | None
    partitions: int | None
    replicas: int | None
    keys: tuple[str, ...]
    start: Start
    options: Mapping[str, str]


def relation_settings(statement: CreateRelation) -> Settings:
    """Return the options of a CREATE without a query.

    Raises:
        SqlError: an option is not known, or has a value that is not valid.
    """
    return _settings(statement.name, statement.options, _OF_RELATIONS)


def as_settings(statement: CreateAs) -> Settings:
    """Return the options of a CREATE with a query.

    Raises:
        SqlError: an option is not known, or has a value that is not valid.
    """
    return _settings(statement.name, statement.options, (*_OF_RELATIONS, *_OF_QUERIES))


def query_start(statement: CreateQuery) -> Start:
    """Return the option ``start`` of a CREATE QUERY.

    Raises:
        SqlError: another option is given, or the value is not valid.
    """
    for key in statement.options:
        if key != "start":
            raise SqlError(f"{statement.name}: a query has no option {key}; it has start")
    return _start(statement.name, statement.options)


def mode_of(statement: CreateAs) -> OutputMode:
    """Return the output mode of a query: as EMIT says, or the one that suits the kind."""
    return mode_for(statement.kind, statement.mode)


def mode_for(kind: Kind, mode: OutputMode | None) -> OutputMode:
    """Return the output mode of a query into a relation: a table has changes, a stream has final rows."""
    return mode or (OutputMode.CHANGES if kind is Kind.TABLE else OutputMode.FINAL)


def relation_of(statement: CreateRelation, settings: Settings, columns: tuple[Column, ...]) -> Relation:
    """Return the relation of a CREATE without a query.

    Raises:
        SqlError: it is not valid.
    """
    return check_relation(
        Relation(
            statement.name,
            statement.kind,
            settings.topic,
            columns,
            settings.format,
            settings.key_format or _key_format(columns),
            statement.watermark,
            settings.options,
        )
    )


def relation_of_query(statement: CreateAs, settings: Settings, columns: Sequence[Column]) -> Relation:
    """Return the relation that a query writes, whose columns are those of its rows.

    Raises:
        SqlError: it is not valid, or the option ``key`` names no column.
    """
    if statement.kind is Kind.TABLE and not settings.keys:
        names = ", ".join(column.name for column in columns)
        raise SqlError(f"table {statement.name} needs WITH (key='...'), with one or more of the columns {names}")
    keys = {name.lower() for name in settings.keys}
    missing = keys - {column.name.lower() for column in columns}
    if missing:
        names = ", ".join(column.name for column in columns)
        raise SqlError(f"{statement.name}: the key has {', '.join(sorted(missing))}; the query has {names}")
    made = tuple(replace(column, part=Part.KEY) if column.name.lower() in keys else column for column in columns)
    return check_relation(
        Relation(
            statement.name,
            statement.kind,
            settings.topic,
            made,
            settings.format,
            settings.key_format or _key_format(made),
            None,
            settings.options,
        )
    )


def inferred_columns(statement: CreateRelation, inferred: Relation, format_name: str) -> tuple[Column, ...]:
    """Return the columns of a relation that declares none: those of a sample of its topic.

    Raises:
        SqlError: the sample does not have the format, or a table has no key.
    """
    found = "json" if inferred.format == "json" else "text or bytes"
    if inferred.format != format_name:
        raise SqlError(
            f"{statement.name}: columns are inferred of json, and the latest records of {inferred.topic} are {found}; "
            "declare the columns"
        )
    return inferred.columns


def check_insert(plan: WritePlan, columns: Sequence[Column]) -> None:
    """Check that a query has as many columns as it writes.

    Raises:
        SqlError: it has not.
    """
    casts(plan, [column.name for column in columns])


def _settings(name: str, options: Mapping[str, str], known: Sequence[str]) -> Settings:
    format_name = options.get("format", "json").lower()
    check_choice(f"{name}: format", format_name, FORMATS)
    key_format = options.get("key.format")
    if key_format is not None:
        check_choice(f"{name}: key.format", key_format, KEY_FORMATS)
    rest = {key: value for key, value in options.items() if key not in known}
    for key in rest:
        valid = (*known, *OPTIONS[format_name], SINK_SEMANTICS)
        if key not in valid:
            raise SqlError(f"{name}: there is no option {key}; there are {', '.join(valid)}")
    return Settings(
        options.get("topic", name),
        format_name,
        key_format,
        _number(name, options, "partitions", MAX_PARTITIONS),
        _number(name, options, "replicas", MAX_REPLICAS),
        tuple(key.strip() for key in options.get("key", "").split(",") if key.strip()),
        _start(name, options),
        rest,
    )


def _number(name: str, options: Mapping[str, str], key: str, most: int) -> int | None:
    text = options.get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most):
        raise SqlError(f"{name}: {key} is {text!r}; it is a number from 1 to {most}")
    return int(text)


def _start(name: str, options: Mapping[str, str]) -> Start:
    text = options.get("start", Start.EARLIEST.value).lower()
    check_choice(f"{name}: start", text, tuple(Start))
    return Start(text)


def _key_format(columns: Sequence[Column]) -> str:
    """Return the default format of a key: text for one plain column, else JSON."""
    keys = [column for column in columns if column.part is Part.KEY]
    if len(keys) == 1 and keys[0].type == "BINARY":
        return "raw"
    return "json" if len(keys) > 1 or any("<" in key.type for key in keys) else "text"

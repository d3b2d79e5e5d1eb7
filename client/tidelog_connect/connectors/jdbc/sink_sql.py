"""The SQL that stages the rows of a batch, and the SQL that moves them to their table in one transaction (pure).

Staged rows are in a table of their own, where a task that Spark repeats may leave some of them twice. Topic, partition
and offset tell them apart, so that they move once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidelog_connect.configuration import ConfigException
from tidelog_connect.connectors.jdbc.postgresql import identifier, text_literal
from tidelog_connect.connectors.jdbc.sink_fields import SinkField
from tidelog_connect.connectors.jdbc.sink_settings import INSERT, UPSERT
from tidelog_connect.schemas import TIME, SchemaType

PLACE = ("record_topic", "record_partition", "record_offset")
DELETED = "is_deleted"
_PLACE = ", ".join(PLACE)
_MAX_PARTS = 2


@dataclass(frozen=True, slots=True)
class Target:
    """The table of some topics, as SQL names it, and the types of the columns that it has, by name."""

    relation: str
    columns: Mapping[str, str]


def target_relation(name: str, is_quoted: bool) -> str:
    """Return a table's name, with or without a schema, as SQL has it.

    Raises:
        ConfigException: the name has more parts, or an empty one.
    """
    parts = name.split(".")
    if len(parts) > _MAX_PARTS or not all(parts):
        raise ConfigException.of("table.name.format", name, "The name of a table must be TABLE or SCHEMA.TABLE")
    return ".".join(identifier(part, is_quoted) for part in parts)


def columns_query(relation: str) -> str:
    """Return the query for the names and types of a table's columns, none if there is no such table."""
    return (
        "SELECT a.attname, quote_ident(n.nspname) || '.' || quote_ident(t.typname) FROM pg_catalog.pg_attribute a"
        " JOIN pg_catalog.pg_type t ON t.oid = a.atttypid JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace"
        f" WHERE a.attrelid = to_regclass({text_literal(relation)}) AND a.attnum > 0 AND NOT a.attisdropped"
    )


def create_stage(stage: str, fields: Sequence[SinkField]) -> str:
    """Return the statement that creates a table for staged rows."""
    columns = [f"{PLACE[0]} text NOT NULL", f"{PLACE[1]} integer NOT NULL", f"{PLACE[2]} bigint NOT NULL"]
    columns += [f"{DELETED} boolean NOT NULL", *(f"{each.staged} {each.type.staged}" for each in fields)]
    return f"CREATE UNLOGGED TABLE {stage} ({', '.join(columns)})"


def create_table(relation: str, fields: Sequence[SinkField], is_quoted: bool) -> str:
    """Return the statement that creates the table of the fields."""
    columns = [_defined(each, is_quoted) for each in fields]
    key = ", ".join(identifier(each.name, is_quoted) for each in fields if each.is_key)
    primary = [f"PRIMARY KEY ({key})"] if key else []
    return f"CREATE TABLE {relation} ({', '.join([*columns, *primary])})"


def add_columns(target: Target, missing: Sequence[SinkField], is_quoted: bool) -> str:
    """Return the statement that adds columns.

    Raises:
        ConfigException: a field is required and has no default, so rows that exist could not have it.
    """
    for each in missing:
        if not each.schema.optional and _default(each) is None:
            raise ConfigException(
                f"Cannot add the column {each.name} to {target.relation}: the field is not optional and has no default"
            )
    added = ", ".join(f"ADD COLUMN {_defined(each, is_quoted)}" for each in missing)
    return f"ALTER TABLE {target.relation} {added}"


def missing_fields(target: Target, fields: Sequence[SinkField], is_quoted: bool) -> list[SinkField]:
    """Return the fields that a table has no column for."""
    return [each for each in fields if (each.name if is_quoted else each.name.lower()) not in target.columns]


def moves(
    insert_mode: str,
    target: Target,
    stage: str,
    topics: Sequence[str],
    fields: Sequence[SinkField],
    *,
    deletes: bool,
    is_quoted: bool,
) -> list[str]:
    """Return the statements that move the staged rows of some topics to their table.

    The result is as if the records came one by one: of several with the same key, the last one counts.
    """
    move = _Move(target, stage, topics, fields, is_quoted)
    if insert_mode == INSERT:
        return [*([move.delete_any()] if deletes else []), move.insert(deletes)]
    if insert_mode == UPSERT:
        return [*([move.delete_last()] if deletes else []), move.upsert()]
    return [move.update(), *([move.delete_any()] if deletes else [])]


@dataclass(frozen=True, slots=True)
class _Move:
    target: Target
    stage: str
    topics: Sequence[str]
    fields: Sequence[SinkField]
    is_quoted: bool

    def insert(self, deletes: bool) -> str:
        """Return the statement for rows that no later record of the batch deletes."""
        later = ""
        if deletes:
            same = " AND ".join(f"d.{each.staged} = s.{each.staged}" for each in self._keys)
            later = (
                f" AND NOT EXISTS (SELECT FROM {self.stage} d WHERE d.{DELETED} AND {same} AND d.{PLACE[0]} ="
                f" s.{PLACE[0]} AND d.{PLACE[1]} = s.{PLACE[1]} AND d.{PLACE[2]} > s.{PLACE[2]})"
            )
        rows = (
            f"SELECT DISTINCT ON ({_PLACE}) * FROM {self.stage} s WHERE {self._of_topics} AND NOT {DELETED}{later}"
            f" ORDER BY {_PLACE}"
        )
        return (
            f"INSERT INTO {self.target.relation} ({self._names(self.fields)}) SELECT {self._values} FROM ({rows}) AS r"
        )

    def upsert(self) -> str:
        others = [each for each in self.fields if not each.is_key]
        changes = ", ".join(f"{self._name(each)} = EXCLUDED.{self._name(each)}" for each in others)
        action = f"UPDATE SET {changes}" if others else "NOTHING"
        return (
            f"INSERT INTO {self.target.relation} ({self._names(self.fields)}) SELECT {self._values}"
            f" FROM ({self._last()}) AS r WHERE NOT {DELETED} ON CONFLICT ({self._names(self._keys)}) DO {action}"
        )

    def update(self) -> str:
        others = [each for each in self.fields if not each.is_key]
        changes = ", ".join(f"{self._name(each)} = {self._value(each)}" for each in others)
        if not others:
            # Without other columns, there is nothing to change.
            return f"UPDATE {self.target.relation} SET {self._name(self._keys[0])} = NULL WHERE false"
        return (
            f"UPDATE {self.target.relation} AS t SET {changes} FROM ({self._last(f' AND NOT {DELETED}')}) AS r"
            f" WHERE {self._same_key}"
        )

    def delete_any(self) -> str:
        """Return the statement that deletes the rows of keys that any record of the batch deletes."""
        keys = ", ".join(each.staged for each in self._keys)
        rows = f"SELECT DISTINCT {keys} FROM {self.stage} WHERE {self._of_topics} AND {DELETED}"
        return f"DELETE FROM {self.target.relation} AS t USING ({rows}) AS r WHERE {self._same_key}"

    def delete_last(self) -> str:
        """Return the statement that deletes the rows of keys whose last record deletes them."""
        return (
            f"DELETE FROM {self.target.relation} AS t USING ({self._last()}) AS r WHERE {DELETED} AND {self._same_key}"
        )

    def _last(self, condition: str = "") -> str:
        keys = ", ".join(each.staged for each in self._keys)
        return (
            f"SELECT DISTINCT ON ({keys}) * FROM {self.stage} WHERE {self._of_topics}{condition}"
            f" ORDER BY {keys}, {PLACE[2]} DESC, {PLACE[0]}, {PLACE[1]}"
        )

    @property
    def _of_topics(self) -> str:
        return f"{PLACE[0]} IN ({', '.join(map(text_literal, self.topics))})"

    @property
    def _keys(self) -> list[SinkField]:
        return [each for each in self.fields if each.is_key]

    @property
    def _same_key(self) -> str:
        return " AND ".join(f"t.{self._name(each)} = {self._value(each)}" for each in self._keys)

    @property
    def _values(self) -> str:
        return ", ".join(map(self._value, self.fields))

    def _name(self, field: SinkField) -> str:
        return identifier(field.name, self.is_quoted)

    def _names(self, fields: Sequence[SinkField]) -> str:
        return ", ".join(map(self._name, fields))

    def _value(self, field: SinkField) -> str:
        """Return the staged value as one of the column.

        Texts are cast, so that they fit columns such as jsonb or uuid; for others PostgreSQL's own rules of assignment
        apply. The type has no length: a text that is too long is an error.
        """
        value = f"r.{field.staged}"
        if field.schema.name == TIME:
            return f"(TIME '00:00' + {value} * INTERVAL '1 millisecond')"
        if field.schema.type is SchemaType.STRING and field.schema.name is None:
            name = field.name if self.is_quoted else field.name.lower()
            return f"CAST({value} AS {self.target.columns[name]})"
        return value


def _defined(field: SinkField, is_quoted: bool) -> str:
    default = _default(field)
    required = " NOT NULL" if field.is_key or not field.schema.optional else ""
    given = "" if default is None else f" DEFAULT {default}"
    return f"{identifier(field.name, is_quoted)} {field.type.created}{given}{required}"


def _default(field: SinkField) -> str | None:
    """Return the default of a field as SQL has it. Those of logical types and bytes are left out."""
    value = field.schema.default
    if value is None or field.schema.name is not None or field.schema.type is SchemaType.BYTES:
        return None
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return text_literal(str(value))

"""Definitions of streams, tables and persistent queries, and the rules that they keep. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tidelog_foundation.errors import ConfigError
from tidelog_spark.descriptors import check_message
from tidelog_spark.sql.errors import SqlError
from tidelog_spark.sql.types import normal_type

MAX_COLUMNS = 1_000
FORMATS = ("json", "csv", "text", "raw", "avro", "protobuf")
SPARK_PACKAGES = ("avro", "protobuf")
"""The formats whose functions are in packages of Spark."""
AVRO_SCHEMA = "avro.schema"
PROTOBUF_MESSAGE = "protobuf.message"
PROTOBUF_DESCRIPTOR = "protobuf.descriptor"
KEY_FORMATS = ("text", "raw", "json")
METADATA_TYPES: Mapping[str, str] = {
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
"""The parts of a record other than key and value, with their types."""
READ_ONLY_METADATA = ("topic", "offset")
"""The parts of a record that a query cannot write."""
OPTIONS: Mapping[str, Sequence[str]] = {
    "json": ("on.error",),
    "csv": ("on.error", "csv.delimiter"),
    "text": (),
    "raw": (),
    "avro": ("on.error", AVRO_SCHEMA),
    "protobuf": ("on.error", PROTOBUF_MESSAGE, PROTOBUF_DESCRIPTOR),
}
"""The options of each format of values."""
_REQUIRED = (AVRO_SCHEMA, PROTOBUF_MESSAGE, PROTOBUF_DESCRIPTOR)
SINK_SEMANTICS = "sink.semantics"
_CHOICES: Mapping[str, Sequence[str]] = {
    "on.error": ("null", "fail"),
    SINK_SEMANTICS: ("exactly-once", "at-least-once"),
}
_SINGLE = ("text", "raw")
"""The formats that hold a single column."""


class Kind(StrEnum):
    """The meaning of a topic's records: each a fact of its own, or each the new value of its key."""

    STREAM = "stream"
    TABLE = "table"


class Part(StrEnum):
    """The part of a record that holds a column."""

    VALUE = "value"
    KEY = "key"
    METADATA = "metadata"


class OutputMode(StrEnum):
    """The rows that a query emits: each row once when it is final, or rows whenever they change."""

    FINAL = "final"
    CHANGES = "changes"


class Start(StrEnum):
    """The records with which a new query over streams begins."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Column:
    """A column with a Spark type; ``metadata`` is a key of `METADATA_TYPES` if, and only if, its part is METADATA."""

    name: str
    type: str
    part: Part = Part.VALUE
    metadata: str | None = None


@dataclass(frozen=True, slots=True)
class Watermark:
    """The event time of a stream, and the time for which late rows are awaited, such as ``10 SECONDS``."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True)
class Relation:
    """A stream or a table over one topic."""

    name: str
    kind: Kind
    topic: str
    columns: tuple[Column, ...]
    format: str = "json"
    key_format: str = "text"
    watermark: Watermark | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def of(self, part: Part) -> tuple[Column, ...]:
        """Return the columns in one part of the record."""
        return tuple(column for column in self.columns if column.part is part)

    @property
    def writable(self) -> tuple[Column, ...]:
        """The columns that a query writes, in order."""
        return tuple(column for column in self.columns if column.metadata not in READ_ONLY_METADATA)


@dataclass(frozen=True, slots=True)
class Query:
    """A persistent query: a SELECT over streams and tables whose rows are written to ``sink``.

    ``id`` names its checkpoint. A query that is dropped and created again has another id, and starts anew.
    """

    name: str
    id: str
    sink: str
    select: str
    reads: tuple[str, ...] = ()
    mode: OutputMode = OutputMode.FINAL
    start: Start = Start.EARLIEST
    is_paused: bool = False
    columns: tuple[str, ...] = ()


Definition = Relation | Query


def check_relation(relation: Relation) -> Relation:
    """Return the relation, which is valid, with its types in the notation of definitions.

    Raises:
        SqlError: it is not; the message names the rule.
    """
    place = f"{relation.kind} {relation.name}"
    relation = replace(relation, columns=tuple(_typed(place, column) for column in relation.columns))
    _check_columns(place, relation.columns)
    _check_format(place, relation.format, FORMATS, relation.of(Part.VALUE))
    _check_format(f"the key of {place}", relation.key_format, KEY_FORMATS, relation.of(Part.KEY))
    if relation.kind is Kind.TABLE and not relation.of(Part.KEY):
        raise SqlError(f"{place} needs a key: mark its columns with PRIMARY KEY")
    _check_watermark(place, relation)
    check_options(place, relation.format, relation.options)
    return relation


def check_options(place: str, format_name: str, options: Mapping[str, str]) -> None:
    """Check the options of a relation.

    Raises:
        SqlError: the format does not have the option, or the option not this value.
    """
    known = (*OPTIONS[format_name], SINK_SEMANTICS)
    for key, value in options.items():
        if key not in known:
            raise SqlError(f"{place}: the format {format_name} has no option {key}; it has {', '.join(known)}")
        check_choice(f"{place}: {key}", value, _CHOICES.get(key, (value,)))
    for key in known:
        if key in _REQUIRED and key not in options:
            raise SqlError(f"{place}: the format {format_name} needs the option {key}")
    if format_name == "avro":
        _check_avro(f"{place}: {AVRO_SCHEMA}", options[AVRO_SCHEMA])
    if format_name == "protobuf":
        _check_protobuf(place, options)


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Check that a value is one of the choices.

    Raises:
        SqlError: it is not.
    """
    if value not in choices:
        raise SqlError(f"{name} is {value!r}; it must be one of {', '.join(choices)}")


def _check_avro(place: str, schema: str) -> None:
    try:
        found = json.loads(schema)
    except ValueError as error:
        raise SqlError(f"{place} is not JSON: {error}") from error
    if not isinstance(found, dict) or found.get("type") != "record":
        raise SqlError(f"{place} is {schema[:60]!r}; the values of a stream or table are records, of type record")


def _check_protobuf(place: str, options: Mapping[str, str]) -> None:
    source = f"{place}: {PROTOBUF_DESCRIPTOR}"
    try:
        data = base64.b64decode(options[PROTOBUF_DESCRIPTOR], validate=True)
        check_message(source, data, options[PROTOBUF_MESSAGE])
    except ValueError as error:
        raise SqlError(f"{source} is not base64: {error}") from error
    except ConfigError as error:
        raise SqlError(error.message) from error


def _typed(place: str, column: Column) -> Column:
    try:
        return replace(column, type=normal_type(column.type))
    except SqlError as error:
        raise SqlError(f"{place}: column {column.name}: {error.message}") from error


def _check_columns(place: str, columns: Sequence[Column]) -> None:
    if not columns:
        raise SqlError(f"{place} has no columns")
    if len(columns) > MAX_COLUMNS:
        raise SqlError(f"{place} has {len(columns)} columns; at most {MAX_COLUMNS} are possible")
    seen: set[str] = set()
    for column in columns:
        if column.name.lower() in seen:
            raise SqlError(f"{place} has the column {column.name} twice")
        seen.add(column.name.lower())
        if (column.part is Part.METADATA) != (column.metadata is not None):
            raise SqlError(f"{place}: column {column.name} needs both METADATA and its name, or neither")
        if column.metadata is not None:
            check_choice(f"{place}: the metadata of column {column.name}", column.metadata, tuple(METADATA_TYPES))
            if column.type != METADATA_TYPES[column.metadata]:
                wanted = METADATA_TYPES[column.metadata]
                raise SqlError(f"{place}: column {column.name} is {column.type}; {column.metadata} is {wanted}")


def _check_format(place: str, name: str, known: Sequence[str], columns: Sequence[Column]) -> None:
    check_choice(f"the format of {place}", name, known)
    if name in _SINGLE and len(columns) > 1:
        names = ", ".join(column.name for column in columns)
        raise SqlError(f"{place}: the format {name} holds one column, and there are {len(columns)}: {names}")
    if name == "raw" and columns and columns[0].type not in ("BINARY", "STRING"):
        raise SqlError(f"{place}: column {columns[0].name} is {columns[0].type}; the format raw is BINARY or STRING")


def _check_watermark(place: str, relation: Relation) -> None:
    if relation.watermark is None:
        return
    if relation.kind is Kind.TABLE:
        raise SqlError(f"{place}: only streams have a WATERMARK")
    wanted = relation.watermark.column.lower()
    found = next((column for column in relation.columns if column.name.lower() == wanted), None)
    if found is None or found.type != "TIMESTAMP":
        what = "is not a column" if found is None else f"is {found.type}"
        raise SqlError(f"{place}: WATERMARK FOR needs a column of type TIMESTAMP; {relation.watermark.column} {what}")

"""Plans how Spark reads and writes relations: its expressions of SQL that decode and encode records. Pure."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidelog_spark.sql.definitions import (
    AVRO_SCHEMA,
    PROTOBUF_DESCRIPTOR,
    PROTOBUF_MESSAGE,
    SINK_SEMANTICS,
    SPARK_PACKAGES,
    Column,
    Kind,
    Part,
    Relation,
)
from tidelog_spark.sql.errors import SqlError
from tidelog_spark.sql.inference import KEY
from tidelog_spark.sql.types import quoted, string_literal

_KEY, _VALUE = "__key", "__value"
_WRITTEN_METADATA = ("partition", "timestamp", "headers")


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The steps from the source's columns to those of a relation.

    ``decoded`` are added to the source's columns; ``projected`` replace them all. With ``keeps_latest``, only the
    latest record of each key is read, unless it is a deletion.
    """

    relation: Relation
    options: Mapping[str, str]
    decoded: tuple[str, ...]
    projected: tuple[str, ...]

    @property
    def keeps_latest(self) -> bool:
        """Whether the relation is a table."""
        return self.relation.kind is Kind.TABLE


@dataclass(frozen=True, slots=True)
class WritePlan:
    """The steps from rows to the sink's columns.

    The columns of the rows, in order, become ``columns`` with their types; then ``encoded`` replace them.
    """

    relation: Relation
    columns: tuple[Column, ...]
    options: Mapping[str, str]
    encoded: tuple[str, ...]


def read_plan(relation: Relation) -> ReadPlan:
    """Return the steps that read a relation."""
    options = {"subscribe": relation.topic}
    if any(column.metadata == "headers" for column in relation.columns):
        options["includeHeaders"] = "true"
    decoded: list[str] = []
    values, keys = relation.of(Part.VALUE), relation.of(Part.KEY)
    if values:
        decoded.append(f"{_decode('value', relation.format, values, relation.options)} AS {_VALUE}")
    if keys:
        decoded.append(f"{_decode('key', relation.key_format, keys, {})} AS {_KEY}")
    return ReadPlan(relation, options, tuple(decoded), tuple(_projection(relation, c) for c in relation.columns))


def write_plan(relation: Relation, columns: Sequence[str] = ()) -> WritePlan:
    """Return the steps that write rows to a relation, into the named columns of it, or all that can be written.

    Raises:
        SqlError: there is no such column, or a query cannot write it.
    """
    chosen = tuple(_writable(relation, name) for name in columns) if columns else relation.writable
    taken = {column.name for column in chosen}
    if len(taken) < len(chosen):
        raise SqlError(f"{relation.name}: a column is named twice in ({', '.join(columns)})")
    if relation.kind is Kind.TABLE and not taken.issuperset(column.name for column in relation.of(Part.KEY)):
        raise SqlError(f"{relation.name} is a table: its rows need all columns of the key")
    encoded = []
    for name, format_name, part in (("key", relation.key_format, Part.KEY), ("value", relation.format, Part.VALUE)):
        found = relation.of(part)
        if found:
            encoded.append(f"{_encode(format_name, found, relation.options, taken)} AS {name}")
    if not relation.of(Part.VALUE):
        encoded.append("CAST(NULL AS BINARY) AS value")
    encoded += [
        f"{quoted(column.name)} AS {column.metadata}" for column in chosen if column.metadata in _WRITTEN_METADATA
    ]
    semantics = {key: value for key, value in relation.options.items() if key == SINK_SEMANTICS}
    return WritePlan(relation, chosen, {"topic": relation.topic, **semantics}, tuple(encoded))


def casts(plan: WritePlan, names: Sequence[str]) -> list[str]:
    """Return the expressions that make the columns of rows those of the plan, by their position.

    The columns, with these names for errors, are `numbered`, as two of them may have the same name.

    Raises:
        SqlError: the numbers of columns differ.
    """
    if len(names) != len(plan.columns):
        expected = ", ".join(column.name for column in plan.columns)
        raise SqlError(
            f"{plan.relation.name} takes {len(plan.columns)} columns ({expected}), and the query has {len(names)}: "
            f"{', '.join(names)}"
        )
    return [
        f"CAST({number} AS {column.type}) AS {quoted(column.name)}"
        for number, column in zip(numbered(len(names)), plan.columns, strict=True)
    ]


def numbered(count: int) -> list[str]:
    """Return distinct names of columns."""
    return [f"c{index}" for index in range(count)]


def free_relation(topic: str, columns: Sequence[Column]) -> Relation:
    """Return a relation that writes a query's columns to a topic without a definition.

    ``_key``, ``_partition``, ``_timestamp`` and ``_headers`` are these parts of the record. Other columns are the
    fields of a JSON object, but a single one named ``value`` of text or bytes is the value itself.
    """
    found = []
    for column in columns:
        metadata = column.name[1:] if column.name[:1] == "_" and column.name[1:] in _WRITTEN_METADATA else None
        part = Part.KEY if column.name == KEY else Part.METADATA if metadata else Part.VALUE
        found.append(Column(column.name, column.type, part, metadata))
    values = [column for column in found if column.part is Part.VALUE]
    is_plain = len(values) == 1 and values[0].name == "value" and values[0].type in ("STRING", "BINARY")
    key_format = "raw" if any(c.part is Part.KEY and c.type == "BINARY" for c in found) else "text"
    return Relation(topic, Kind.STREAM, topic, tuple(found), "raw" if is_plain else "json", key_format)


def _writable(relation: Relation, name: str) -> Column:
    found = next((column for column in relation.columns if column.name.lower() == name.lower()), None)
    if found is None:
        raise SqlError(f"{relation.name} has no column {name}; it has {', '.join(c.name for c in relation.columns)}")
    if found not in relation.writable:
        raise SqlError(f"{relation.name}: column {name} is the {found.metadata} of a record, which a query cannot set")
    return found


def _projection(relation: Relation, column: Column) -> str:
    if column.part is Part.METADATA:
        return f"{column.metadata} AS {quoted(column.name)}"
    whole, is_single = (_KEY, _is_single(relation.key_format))
    if column.part is Part.VALUE:
        whole, is_single = _VALUE, _is_single(relation.format)
    source = whole if is_single else f"{whole}.{quoted(column.name)}"
    if column.part is Part.VALUE and relation.format in SPARK_PACKAGES:
        source = f"CAST({source} AS {column.type})"  # the schema has types of its own
    return f"{source} AS {quoted(column.name)}"


def _is_single(format_name: str) -> bool:
    return format_name in ("text", "raw")


_Decoder = Callable[[str, Sequence[Column], Mapping[str, str]], str]
_Encoder = Callable[[str, Mapping[str, str]], str]


def _decode(source: str, format_name: str, columns: Sequence[Column], options: Mapping[str, str]) -> str:
    return _DECODERS[format_name](source, columns, options)


def _encode(format_name: str, columns: Sequence[Column], options: Mapping[str, str], taken: set[str]) -> str:
    """Return the expression of the columns' bytes; those that are not ``taken`` are null."""
    values = [
        quoted(column.name) if column.name in taken else f"CAST(NULL AS {column.type}) AS {quoted(column.name)}"
        for column in columns
    ]
    if _is_single(format_name):
        return f"CAST({values[0].partition(' AS `')[0]} AS {'BINARY' if format_name == 'raw' else 'STRING'})"
    return _ENCODERS[format_name](f"struct({', '.join(values)})", options)


def _schema_text(columns: Sequence[Column]) -> str:
    return string_literal(", ".join(f"{quoted(column.name)} {column.type}" for column in columns))


def _map(options: Mapping[str, str]) -> str:
    return f"map({', '.join(f'{string_literal(k)}, {string_literal(v)}' for k, v in options.items())})"


def _mode(options: Mapping[str, str]) -> dict[str, str]:
    return {"mode": "FAILFAST" if options.get("on.error") == "fail" else "PERMISSIVE"}


def _separator(options: Mapping[str, str]) -> dict[str, str]:
    return {"sep": options.get("csv.delimiter", ",")}


def _message(options: Mapping[str, str]) -> str:
    descriptor = base64.b64decode(options[PROTOBUF_DESCRIPTOR]).hex()
    return f"{string_literal(options[PROTOBUF_MESSAGE])}, X'{descriptor}'"


_TIMESTAMPS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
"""Spark writes milliseconds by default, and reads what is there."""
_DECODERS: Mapping[str, _Decoder] = {
    "json": lambda source, columns, options: (
        f"from_json(CAST({source} AS STRING), {_schema_text(columns)}, {_map(_mode(options))})"
    ),
    "csv": lambda source, columns, options: (
        f"from_csv(CAST({source} AS STRING), {_schema_text(columns)}, {_map(_mode(options) | _separator(options))})"
    ),
    "text": lambda source, columns, options: f"try_cast(CAST({source} AS STRING) AS {columns[0].type})",
    "raw": lambda source, columns, options: f"CAST({source} AS {columns[0].type})",
    "avro": lambda source, columns, options: (
        f"from_avro({source}, {string_literal(options[AVRO_SCHEMA])}, {_map(_mode(options))})"
    ),
    "protobuf": lambda source, columns, options: (
        f"from_protobuf({source}, {_message(options)}, {_map(_mode(options))})"
    ),
}
_ENCODERS: Mapping[str, _Encoder] = {
    "json": lambda row, options: f"to_json({row}, {_map(_TIMESTAMPS)})",
    "csv": lambda row, options: f"to_csv({row}, {_map(_TIMESTAMPS | _separator(options))})",
    "avro": lambda row, options: f"to_avro({row}, {string_literal(options[AVRO_SCHEMA])})",
    "protobuf": lambda row, options: f"to_protobuf({row}, {_message(options)}, map())",
}

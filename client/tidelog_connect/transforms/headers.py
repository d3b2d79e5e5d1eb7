"""`InsertHeader`, `DropHeaders` and `HeaderFrom`: the headers of records, as the bytes of SimpleHeaderConverter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from pyspark.sql import Column
from pyspark.sql import functions as sql

from tidelog_connect.configuration import (
    NO_DEFAULT_VALUE,
    ConfigDef,
    ConfigException,
    Importance,
    NonNull,
    Type,
    ValidString,
    value_text,
)
from tidelog_connect.records import HEADERS_TYPE, NULL_POINTER, Failure, Records, Side
from tidelog_connect.schemas import SchemaType
from tidelog_connect.transforms import structs, variants
from tidelog_connect.transforms.settings import REPLACE_NULL, NonEmptyList, strings, text, with_replace_null
from tidelog_connect.transforms.side import Subject

_LONG = range(-(1 << 63), 1 << 63)

INSERT_CONFIG = (
    ConfigDef()
    .define("header", Type.STRING, NO_DEFAULT_VALUE, Importance.HIGH, "The name of the header.", validator=NonNull())
    .define(
        "value.literal",
        Type.STRING,
        NO_DEFAULT_VALUE,
        Importance.HIGH,
        "The value of the header, the same for all records.",
        validator=NonNull(),
    )
)
DROP_CONFIG = ConfigDef().define(
    "headers", Type.LIST, NO_DEFAULT_VALUE, Importance.HIGH, "The names of the headers.", validator=NonEmptyList()
)
FROM_CONFIG = with_replace_null(
    ConfigDef()
    .define("fields", Type.LIST, NO_DEFAULT_VALUE, Importance.HIGH, "Fields for headers.", validator=NonEmptyList())
    .define(
        "headers",
        Type.LIST,
        NO_DEFAULT_VALUE,
        Importance.HIGH,
        "The names of the headers, in the order of the fields.",
        validator=NonEmptyList(),
    )
    .define(
        "operation",
        Type.STRING,
        NO_DEFAULT_VALUE,
        Importance.HIGH,
        "move takes the fields out of the data, copy leaves them there.",
        validator=ValidString(["move", "copy"]),
    )
)


def header_text(literal: str) -> str | None:
    """Return a literal as SimpleHeaderConverter writes it: numbers in their shortest form, and null for ``null``.

    Raises:
        ConfigException: the literal is a list, a map, or text in quotes, which Kafka would parse.
    """
    if literal[:1] in ("[", "{", '"'):
        raise ConfigException.of("value.literal", literal, "Lists, maps and quoted strings are not supported")
    if literal == "null":
        return None
    try:
        number = Decimal(literal)
    except InvalidOperation:
        return literal
    if not number.is_finite() or "_" in literal:
        return literal
    if number == number.to_integral_value():
        return str(int(number)) if int(number) in _LONG else literal
    return value_text(float(number))


@dataclass(frozen=True, slots=True)
class InsertHeader:
    """Adds a header, also to records that have one of this name."""

    header: str
    literal: str | None

    @classmethod
    def of(cls, values: Mapping[str, object]) -> InsertHeader:
        """Return the transform of parsed settings."""
        return cls(text(values["header"]), header_text(text(values["value.literal"])))

    def __call__(self, records: Records) -> Records:
        """Return the records with the header."""
        return records.changed({"headers": _with(sql.col("headers"), [(self.header, sql.lit(self.literal))])})


@dataclass(frozen=True, slots=True)
class DropHeaders:
    """Removes all headers of some names."""

    headers: Sequence[str]

    @classmethod
    def of(cls, values: Mapping[str, object]) -> DropHeaders:
        """Return the transform of parsed settings."""
        return cls(tuple(strings(values["headers"])))

    def __call__(self, records: Records) -> Records:
        """Return the records without the headers."""
        kept = sql.filter("headers", lambda header: ~header.getField("key").isin(*self.headers))
        return records.changed({"headers": kept})


@dataclass(frozen=True, slots=True)
class HeaderFrom:
    """Copies or moves fields to headers."""

    side: Side
    fields: Sequence[str]
    headers: Sequence[str]
    operation: str
    replace_null: bool

    @classmethod
    def of(cls, side: Side, values: Mapping[str, object]) -> HeaderFrom:
        """Return the transform of parsed settings.

        Raises:
            ConfigException: there are not as many headers as fields.
        """
        fields, headers = strings(values["fields"]), strings(values["headers"])
        if len(fields) != len(headers):
            raise ConfigException("'fields' config must have the same number of elements as 'headers' config.")
        return cls(side, tuple(fields), tuple(headers), text(values["operation"]), bool(values[REPLACE_NULL]))

    def __call__(self, records: Records) -> Records:
        """Return the records with the headers."""
        subject = Subject(records, self.side)
        failures = subject.failures(f"header {self.operation}", allows_null=False)
        moves, schema = self.operation == "move", subject.schema
        if schema is None:
            found = variants.fields(subject.column)
            new = [
                (header, variants.text(variants.field(found, name)))
                for header, name in zip(self.headers, self.fields, strict=True)
            ]
            columns = {"headers": _with(sql.col("headers"), new)}
            if moves:
                columns[self.side] = variants.from_fields(variants.without(found, *self.fields))
            return records.changed(columns, failures)
        if schema.type is not SchemaType.STRUCT:
            return subject.failed(failures)
        new = []
        for header, name in zip(self.headers, self.fields, strict=True):
            field = schema.field(name)
            if field is None:
                problem = Failure(sql.lit(True), NULL_POINTER, f"Field does not exist: {name}")
                return subject.failed([*failures, problem])
            value = structs.field(subject.column, name, field, self.replace_null)
            new.append((header, structs.text(value, field)))
        columns = {"headers": _with(sql.col("headers"), new)}
        if not moves:
            return records.changed(columns, failures)
        rest = tuple(each for each in schema.fields if each.name not in self.fields)
        columns[self.side] = structs.struct(
            (each.name, structs.field(subject.column, each.name, each.schema, self.replace_null)) for each in rest
        )
        return records.changed(columns, failures, {self.side: schema.with_fields(rest)})


def _with(headers: Column, new: Sequence[tuple[str, Column]]) -> Column:
    added = [sql.struct(sql.lit(name).alias("key"), value.cast("binary").alias("value")) for name, value in new]
    return sql.concat(headers, sql.array(*added).cast(HEADERS_TYPE))

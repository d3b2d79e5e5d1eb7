"""`HoistField`, `ExtractField` and `ValueToKey`: data wrapped into a field, and fields taken out of data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as sql

from tidelog_connect.configuration import NO_DEFAULT_VALUE, ConfigDef, Importance, Type
from tidelog_connect.records import DATA_EXCEPTION, ILLEGAL_ARGUMENT, Failure, Records, Side
from tidelog_connect.schemas import ConnectSchema, Field, SchemaType
from tidelog_connect.transforms import structs, variants
from tidelog_connect.transforms.field_path import SYNTAX_VERSION, steps_of, with_syntax_version
from tidelog_connect.transforms.settings import REPLACE_NULL, NonEmptyList, strings, text, with_replace_null
from tidelog_connect.transforms.side import Subject

HOIST_CONFIG = ConfigDef().define(
    "field", Type.STRING, NO_DEFAULT_VALUE, Importance.MEDIUM, "The name of the only field of the new struct or map."
)
EXTRACT_CONFIG = with_syntax_version(
    with_replace_null(
        ConfigDef().define("field", Type.STRING, NO_DEFAULT_VALUE, Importance.MEDIUM, "The field to extract.")
    )
)
VALUE_TO_KEY_CONFIG = with_replace_null(
    ConfigDef().define(
        "fields",
        Type.LIST,
        NO_DEFAULT_VALUE,
        Importance.HIGH,
        "Fields of the value that make the key.",
        validator=NonEmptyList(),
    )
)


@dataclass(frozen=True, slots=True)
class HoistField:
    """Wraps data into a struct or map with one field. Null is wrapped too."""

    side: Side
    field: str

    @classmethod
    def of(cls, side: Side, values: Mapping[str, object]) -> HoistField:
        """Return the transform of parsed settings."""
        return cls(side, text(values["field"]))

    def __call__(self, records: Records) -> Records:
        """Return the records with wrapped data."""
        schema, column = records.schema(self.side), sql.col(self.side)
        if schema is None:
            return records.changed({self.side: variants.from_fields(sql.create_map(sql.lit(self.field), column))})
        struct = ConnectSchema(SchemaType.STRUCT, fields=(Field(self.field, schema),))
        return records.changed({self.side: structs.struct([(self.field, column)])}, schemas={self.side: struct})


@dataclass(frozen=True, slots=True)
class ExtractField:
    """Replaces data by one of its fields. Null stays null."""

    side: Side
    path: str
    steps: Sequence[str]
    replace_null: bool

    @classmethod
    def of(cls, side: Side, values: Mapping[str, object]) -> ExtractField:
        """Return the transform of parsed settings.

        Raises:
            ConfigException: the path of the field is not valid.
        """
        path = text(values["field"])
        steps = tuple(steps_of(path, text(values[SYNTAX_VERSION])))
        return cls(side, path, steps, bool(values[REPLACE_NULL]))

    def __call__(self, records: Records) -> Records:
        """Return the records with the field instead of the data."""
        subject = Subject(records, self.side)
        purpose = "field extraction"
        failures = subject.failures(purpose, allows_null=True)
        if subject.schema is None:
            return subject.changed(self._variant(subject, failures), failures, None)
        if subject.schema.type is not SchemaType.STRUCT:
            return subject.failed(failures)
        found, column = subject.schema, subject.column
        for step in self.steps:
            inner = found.field(step)
            if inner is None:
                message = f"Unknown field: {self.path}"
                return subject.failed([*failures, Failure(sql.lit(True), ILLEGAL_ARGUMENT, message)])
            # The default of a field is not that of a struct that is null.
            column = sql.when(column.isNotNull(), structs.field(column, step, inner, self.replace_null))
            found = inner
        return subject.changed(column, failures, found)

    def _variant(self, subject: Subject, failures: list[Failure]) -> Column:
        current = subject.column
        for step in self.steps[:-1]:
            current = variants.field(variants.fields(current), step)
            wrong = current.isNotNull() & ~variants.is_object(current)
            message = "Only Map objects supported in absence of schema for [nested field access], found: "
            found = sql.concat(sql.lit(message), variants.class_name(current))
            failures.append(Failure(wrong, DATA_EXCEPTION, found))
        return variants.field(variants.fields(current), self.steps[-1])


@dataclass(frozen=True, slots=True)
class ValueToKey:
    """Replaces the key by fields of the value."""

    fields: Sequence[str]
    replace_null: bool

    @classmethod
    def of(cls, values: Mapping[str, object]) -> ValueToKey:
        """Return the transform of parsed settings."""
        return cls(tuple(strings(values["fields"])), bool(values[REPLACE_NULL]))

    def __call__(self, records: Records) -> Records:
        """Return the records with new keys."""
        subject = Subject(records, "value")
        failures = subject.failures("copying fields from value to key", allows_null=False)
        schema = subject.schema
        if schema is None:
            found = variants.fields(subject.column)
            pairs = [
                part for name in dict.fromkeys(self.fields) for part in (sql.lit(name), variants.field(found, name))
            ]
            return records.changed({"key": variants.from_fields(sql.create_map(*pairs))}, failures, {"key": None})
        if schema.type is not SchemaType.STRUCT:
            return subject.failed(failures)
        chosen = []
        for name in self.fields:
            field = schema.field(name)
            if field is None:
                problem = Failure(sql.lit(True), DATA_EXCEPTION, f"Field does not exist: {name}")
                return subject.failed([*failures, problem])
            chosen.append(Field(name, field))
        columns = [
            (each.name, structs.field(subject.column, each.name, each.schema, self.replace_null)) for each in chosen
        ]
        key = ConnectSchema(SchemaType.STRUCT, fields=tuple(chosen))
        return records.changed({"key": structs.struct(columns)}, failures, {"key": key})

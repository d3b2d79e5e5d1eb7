"""`TimestampConverter`: timestamps as text, Unix time, or Connect's Date, Time and Timestamp."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import Column
from pyspark.sql import functions as sql

from tidelog_connect.configuration import NO_DEFAULT_VALUE, ConfigDef, ConfigException, Importance, Type, ValidString
from tidelog_connect.records import CONNECT_EXCEPTION, DATA_EXCEPTION, NULL_POINTER, Failure, Records, Side
from tidelog_connect.schemas import DATE, TIME, TIMESTAMP, ConnectSchema, Field, SchemaType
from tidelog_connect.transforms import java, structs, variants
from tidelog_connect.transforms.date_patterns import has_zone, unknown_letter, unparsed_letter
from tidelog_connect.transforms.settings import REPLACE_NULL, text, with_replace_null
from tidelog_connect.transforms.side import Subject

_PURPOSE = "converting timestamp formats"
_NO_PARSER = "TimestampConverter needs the setting format to parse a string timestamp"
_TARGETS = {
    "string": ConnectSchema(SchemaType.STRING),
    "unix": ConnectSchema(SchemaType.INT64),
    "Date": ConnectSchema(SchemaType.INT32, name=DATE, version=1),
    "Time": ConnectSchema(SchemaType.INT32, name=TIME, version=1),
    "Timestamp": ConnectSchema(SchemaType.INT64, name=TIMESTAMP, version=1),
}
_FACTORS = {"seconds": (1000, 1), "milliseconds": (1, 1), "microseconds": (1, 1000), "nanoseconds": (1, 1_000_000)}
"""Milliseconds are the precision's unit times the first number, divided by the second."""

CONFIG = with_replace_null(
    ConfigDef()
    .define("field", Type.STRING, "", Importance.HIGH, "The field with the timestamp; empty: the whole key or value.")
    .define(
        "target.type",
        Type.STRING,
        NO_DEFAULT_VALUE,
        Importance.HIGH,
        "The form to convert to: string, unix, Date, Time or Timestamp.",
        validator=ValidString([*_TARGETS]),
    )
    .define(
        "format",
        Type.STRING,
        "",
        Importance.MEDIUM,
        "The format of text, a pattern of Java's SimpleDateFormat: of the result when target.type is string, else of"
        " the data when it is text.",
    )
    .define(
        "unix.precision",
        Type.STRING,
        "milliseconds",
        Importance.LOW,
        "The unit of Unix time: seconds, milliseconds, microseconds or nanoseconds. Less than a millisecond is lost.",
        validator=ValidString(["nanoseconds", "microseconds", "milliseconds", "seconds"]),
    )
)


@dataclass(frozen=True, slots=True)
class TimestampConverter:
    """Converts a field, or whole data."""

    side: Side
    field: str
    target: str
    pattern: str
    precision: str
    replace_null: bool

    @classmethod
    def of(cls, side: Side, values: Mapping[str, object]) -> TimestampConverter:
        """Return the transform of parsed settings.

        Raises:
            ConfigException: the format is missing, or not one of SimpleDateFormat.
        """
        target, pattern = text(values["target.type"]), text(values["format"])
        if target == "string" and not pattern.strip():
            raise ConfigException(
                "TimestampConverter requires format option to be specified when using string timestamps"
            )
        letter = unknown_letter(pattern)
        if letter is not None:
            raise ConfigException(
                "TimestampConverter requires a SimpleDateFormat-compatible pattern for string timestamps:"
                f" {pattern}: Illegal pattern character '{letter}'"
            )
        precision = text(values["unix.precision"])
        return cls(side, text(values["field"]), target, pattern, precision, bool(values[REPLACE_NULL]))

    def __call__(self, records: Records) -> Records:
        """Return the records with converted timestamps."""
        subject = Subject(records, self.side)
        schema = subject.schema
        if schema is None:
            return self._schemaless(subject)
        if not self.field:
            column, failures = self._converted(subject.column, schema, sql.lit(True))
            return subject.changed(column, failures, _TARGETS[self.target].as_optional(schema.optional))
        failures = subject.failures(_PURPOSE, allows_null=True)
        if schema.type is not SchemaType.STRUCT:
            return subject.failed(failures)
        columns, fields = [], []
        for each in schema.fields:
            column = structs.field(subject.column, each.name, each.schema, self.replace_null)
            field = each.schema
            if each.name == self.field:
                column, problems = self._converted(column, each.schema, subject.column.isNotNull())
                failures += problems
                field = _TARGETS[self.target].as_optional(each.schema.optional)
            columns.append((each.name, column))
            fields.append(Field(each.name, field))
        return subject.changed(structs.struct(columns), failures, replace(schema, fields=tuple(fields)))

    def _converted(self, value: Column, schema: ConnectSchema, present: Column) -> tuple[Column, list[Failure]]:
        """Return a timestamp with a schema in the target's form, and the failures."""
        if schema.name in (TIMESTAMP, DATE, TIME):
            return self._target(structs.millis(value, schema)), []
        if schema.type is SchemaType.STRING:
            millis, failures = self._parsed(value)
            return self._target(millis), failures
        if schema.type is SchemaType.INT64:
            return self._target(self._from_unix(value)), []
        shown = f"{schema.name}:{schema.type.name}" if schema.name else schema.type.name
        message = f"Schema Schema{{{shown}}} does not correspond to a known timestamp type format"
        return self._target(sql.lit(None).cast("bigint")), [Failure(present, CONNECT_EXCEPTION, message)]

    def _schemaless(self, subject: Subject) -> Records:
        if not self.field:
            column, failures = self._variant(subject.column)
            return subject.changed(column, failures, None)
        failures = subject.failures(_PURPOSE, allows_null=True)
        found = variants.fields(subject.column)
        column, problems = self._variant(variants.field(found, self.field))
        return subject.changed(variants.from_fields(variants.put(found, self.field, column)), failures + problems, None)

    def _variant(self, value: Column) -> tuple[Column, list[Failure]]:
        kind = variants.kind(value)
        string = sql.when(kind == "STRING", sql.try_variant_get(value, "$", "string"))
        unix = sql.when(kind == "BIGINT", sql.try_variant_get(value, "$", "bigint"))
        date = sql.when(kind == "TIMESTAMP", sql.try_variant_get(value, "$", "timestamp"))
        parsed, failures = self._parsed(string)
        millis = sql.coalesce(parsed, self._from_unix(unix), sql.unix_millis(date))
        start, end = "TimestampConverter does not support class ", " objects as timestamps"
        message = sql.concat(sql.lit(start), variants.class_name(value), sql.lit(end))
        failures.append(Failure(~kind.isin("STRING", "BIGINT", "TIMESTAMP"), DATA_EXCEPTION, message))
        return self._target(millis).cast("variant"), failures

    def _parsed(self, value: Column) -> tuple[Column, list[Failure]]:
        """Return text as milliseconds, and the failures."""
        present, pattern = value.isNotNull(), self.pattern
        if not pattern.strip():
            return sql.lit(None).cast("bigint"), [Failure(present, NULL_POINTER, _NO_PARSER)]
        letter = unparsed_letter(pattern)
        if letter is not None:
            message = f"Could not parse timestamps by pattern ({pattern}): {letter} is not supported"
            return sql.lit(None).cast("bigint"), [Failure(present, DATA_EXCEPTION, message)]
        if has_zone(pattern):
            found = sql.try_to_timestamp(value, sql.lit(pattern))
        else:
            found = sql.try_to_timestamp(sql.concat(value, sql.lit(" UTC")), sql.lit(f"{pattern} VV"))
        start, end = sql.lit("Could not parse timestamp: value ("), sql.lit(f") does not match pattern ({pattern})")
        wrong = present & found.isNull()
        return sql.unix_millis(found), [Failure(wrong, DATA_EXCEPTION, sql.concat(start, value, end))]

    def _from_unix(self, value: Column) -> Column:
        factor, divisor = _FACTORS[self.precision]
        return _quotient(sql.try_multiply(value, sql.lit(factor).cast("bigint")), divisor)

    def _target(self, millis: Column) -> Column:
        """Return milliseconds in the target's form; null stays null."""
        day = sql.lit(structs.MILLIS_PER_DAY).cast("bigint")
        if self.target == "string":
            return sql.when(millis.isNotNull(), java.formatted_utc(millis, self.pattern))
        if self.target == "unix":
            factor, divisor = _FACTORS[self.precision]
            return _quotient(sql.try_multiply(millis, sql.lit(divisor).cast("bigint")), factor)
        if self.target == "Date":
            return sql.date_from_unix_date(sql.floor(millis / day).cast("int"))
        if self.target == "Time":
            return sql.pmod(millis, day).cast("int")
        return sql.timestamp_millis(millis)


def _quotient(value: Column, divisor: int) -> Column:
    """Return an integer division, which rounds towards zero."""
    return value if divisor == 1 else sql.call_function("div", value, sql.lit(divisor).cast("bigint"))

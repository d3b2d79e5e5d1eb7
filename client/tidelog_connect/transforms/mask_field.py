"""`MaskField`: fields replaced by an empty value of their type, or by a given one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from pyspark.sql import Column
from pyspark.sql import functions as sql

from tidelog_connect.configuration import NO_DEFAULT_VALUE, ConfigDef, Importance, NonEmptyString, Type
from tidelog_connect.records import DATA_EXCEPTION, Failure, Records, Side
from tidelog_connect.schemas import DATE, DECIMAL, TIME, TIMESTAMP, ConnectSchema, SchemaType, spark_type
from tidelog_connect.transforms import structs, variants
from tidelog_connect.transforms.settings import REPLACE_NULL, NonEmptyList, strings, text_or_none, with_replace_null
from tidelog_connect.transforms.side import Subject

_PURPOSE = "mask fields"
_BITS = {SchemaType.INT8: 8, SchemaType.INT16: 16, SchemaType.INT32: 32, SchemaType.INT64: 64}
_FLOATS = (SchemaType.FLOAT32, SchemaType.FLOAT64)

CONFIG = with_replace_null(
    ConfigDef()
    .define("fields", Type.LIST, NO_DEFAULT_VALUE, Importance.HIGH, "Fields to mask.", validator=NonEmptyList())
    .define(
        "replacement",
        Type.STRING,
        None,
        Importance.LOW,
        "The new value of all these fields, which are numbers or texts. When null, they become 0, false or empty.",
        validator=NonEmptyString(),
    )
)


@dataclass(frozen=True, slots=True)
class MaskField:
    """Masks fields that are not null."""

    side: Side
    fields: frozenset[str]
    replacement: str | None
    replace_null: bool

    @classmethod
    def of(cls, side: Side, values: Mapping[str, object]) -> MaskField:
        """Return the transform of parsed settings."""
        fields = frozenset(strings(values["fields"]))
        return cls(side, fields, text_or_none(values["replacement"]), bool(values[REPLACE_NULL]))

    def __call__(self, records: Records) -> Records:
        """Return the records with masked fields."""
        subject = Subject(records, self.side)
        failures = subject.failures(_PURPOSE, allows_null=False)
        schema = subject.schema
        if schema is None:
            return self._objects(subject, failures)
        if schema.type is not SchemaType.STRUCT:
            return subject.failed(failures)
        columns = []
        for each in schema.fields:
            old = structs.field(subject.column, each.name, each.schema, self.replace_null)
            if each.name in self.fields:
                masked, problem = self._mask(each.schema)
                if problem is not None:
                    failures.append(Failure(old.isNotNull(), DATA_EXCEPTION, problem))
                old = sql.when(old.isNotNull(), masked)
            columns.append((each.name, old))
        return subject.changed(structs.struct(columns), failures, schema)

    def _mask(self, schema: ConnectSchema) -> tuple[Column, str | None]:
        """Return the new value of a field, and the reason why there is none."""
        kind, none = spark_type(schema), sql.lit(None).cast(spark_type(schema))
        class_name = structs.class_name(schema)
        if self.replacement is None:
            empty = _empty(schema)
            return (none, f"Cannot mask value of type: class {class_name}") if empty is None else (empty, None)
        is_number = schema.type in (*_BITS, *_FLOATS) and schema.name not in (DATE, TIME, TIMESTAMP)
        if schema.type is SchemaType.STRING:
            return sql.lit(self.replacement), None
        if not is_number and schema.name != DECIMAL:
            return none, f"Cannot mask value of type class {class_name} with custom replacement."
        number = _number(self.replacement)
        if number is None:
            return none, _not_a_number(self.replacement)
        if schema.type in _BITS:
            return sql.lit(_wrapped(number, _BITS[schema.type])).cast(kind), None
        return sql.lit(self.replacement).cast(kind) if schema.name == DECIMAL else sql.lit(float(number)).cast(
            kind
        ), None

    def _objects(self, subject: Subject, failures: list[Failure]) -> Records:
        fields = variants.fields(subject.column)
        found = fields
        for name in sorted(self.fields):
            old = variants.field(fields, name)
            if self.replacement is not None:
                failures += self._object_failures(old)
            found = variants.put(found, name, sql.when(old.isNotNull(), self._variant(old)))
        return subject.changed(variants.from_fields(found), failures, None)

    def _variant(self, old: Column) -> Column:
        kind = variants.kind(old)
        integer, fraction = sql.lit(0).cast("bigint"), sql.lit(0.0)
        if self.replacement is not None:
            number = _number(self.replacement) or Decimal(0)
            integer, fraction = sql.lit(_wrapped(number, 64)).cast("bigint"), sql.lit(float(number))
        return (
            sql.when(kind == "BIGINT", integer.cast("variant"))
            .when(variants.is_fraction(old), fraction.cast("variant"))
            .when(kind == "STRING", sql.lit(self.replacement or "").cast("variant"))
            .when(kind == "BOOLEAN", sql.lit(False).cast("variant"))
            .when(kind == "ARRAY", sql.parse_json(sql.lit("[]")))
            .otherwise(sql.parse_json(sql.lit("{}")))
        )

    def _object_failures(self, old: Column) -> list[Failure]:
        kind = variants.kind(old)
        start, end = "Cannot mask value of type class ", " with custom replacement."
        message = sql.concat(sql.lit(start), variants.class_name(old), sql.lit(end))
        failures = [Failure(kind.isin("BOOLEAN", "ARRAY", "OBJECT"), DATA_EXCEPTION, message)]
        if self.replacement is not None and _number(self.replacement) is None:
            is_number = (kind == "BIGINT") | variants.is_fraction(old)
            failures.append(Failure(is_number, DATA_EXCEPTION, _not_a_number(self.replacement)))
        return failures


def _empty(schema: ConnectSchema) -> Column | None:
    kind = spark_type(schema)
    if schema.name == TIMESTAMP:
        return sql.timestamp_millis(sql.lit(0).cast("bigint"))
    if schema.name == DATE:
        return sql.date_from_unix_date(sql.lit(0))
    if schema.type is SchemaType.ARRAY:
        return sql.array().cast(kind)
    if schema.type is SchemaType.MAP:
        return sql.map_from_arrays(sql.array(), sql.array()).cast(kind)
    if schema.type is SchemaType.BOOLEAN:
        return sql.lit(False)
    if schema.type is SchemaType.STRING:
        return sql.lit("")
    if schema.type in (*_BITS, *_FLOATS) or schema.name == DECIMAL:
        return sql.lit(0).cast(kind)
    return None


def _number(text: str) -> Decimal | None:
    try:
        return Decimal(text) if Decimal(text).is_finite() else None
    except InvalidOperation:
        return None


def _not_a_number(text: str) -> str:
    return f"Unable to convert {text} (class java.lang.String) to a number"


def _wrapped(number: Decimal, bits: int) -> int:
    """Return the low bits of a number without its fraction, as Java narrows it."""
    low = int(number) & ((1 << bits) - 1)
    return low - (1 << bits) if low >> (bits - 1) else low

"""`Cast`: fields, or whole keys and values, of another type, by Java's conversions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from pyspark.sql import Column
from pyspark.sql import functions as sql

from tidelog_connect.configuration import (
    NO_DEFAULT_VALUE,
    ConfigDef,
    ConfigException,
    Importance,
    Type,
    parse_value,
    value_text,
)
from tidelog_connect.records import DATA_EXCEPTION, Failure, Records, Side
from tidelog_connect.schemas import DATE, DECIMAL, TIME, TIMESTAMP, ConnectSchema, Field, SchemaType, spark_type
from tidelog_connect.transforms import java, structs, variants
from tidelog_connect.transforms.settings import REPLACE_NULL, strings, with_replace_null
from tidelog_connect.transforms.side import Subject

_PURPOSE = "cast types"
_TYPES = MappingProxyType(
    {
        "INT8": SchemaType.INT8,
        "INT16": SchemaType.INT16,
        "INT32": SchemaType.INT32,
        "INT64": SchemaType.INT64,
        "FLOAT32": SchemaType.FLOAT32,
        "FLOAT64": SchemaType.FLOAT64,
        "BOOLEAN": SchemaType.BOOLEAN,
        "STRING": SchemaType.STRING,
    }
)
_OTHER_TYPES = ("ARRAY", "MAP", "STRUCT", "BYTES")
_NAMES = {schema_type: name for name, schema_type in _TYPES.items()}
_BITS = {SchemaType.INT8: 8, SchemaType.INT16: 16, SchemaType.INT32: 32}
_FLOATS = (SchemaType.FLOAT32, SchemaType.FLOAT64)
_DATES = (DATE, TIME, TIMESTAMP)


def cast_spec(mappings: object) -> dict[str | None, SchemaType]:
    """Return the types by fields, of texts such as ``field:int32``; None is the whole key or value.

    Raises:
        ConfigException: a text has another form, or a type cannot be the result of a cast.
    """
    found: dict[str | None, SchemaType] = {}
    for mapping in strings(mappings):
        parts = mapping.rstrip(":").split(":")
        if len(parts) > 2:
            raise ConfigException.of("spec", mappings, f"Invalid casting spec: {mapping}")
        name = parts[-1].strip()
        if name.upper() in _OTHER_TYPES:
            raise ConfigException(
                f"Cast transformation does not support casting to {name.upper()};"
                f" supported types are [{', '.join(_TYPES)}]"
            )
        if name.upper() not in _TYPES:
            raise ConfigException(f"Invalid type found in casting spec: {name}")
        found[parts[0].strip() if len(parts) == 2 else None] = _TYPES[name.upper()]
    if None in found and len(strings(mappings)) > 1:
        raise ConfigException(
            "Cast transformations that specify a type to cast the entire value to may only specify a single cast in"
            " their spec"
        )
    return found


@dataclass(frozen=True, slots=True)
class _Spec:
    def __call__(self, name: str, value: object) -> None:
        if not value:
            raise ConfigException("Must specify at least one field to cast.")
        cast_spec(value)


CONFIG = with_replace_null(
    ConfigDef().define(
        "spec",
        Type.LIST,
        NO_DEFAULT_VALUE,
        Importance.HIGH,
        "Fields and their new types, as field:type,..., or one type for the whole data. The types are int8, int16,"
        " int32, int64, float32, float64, boolean and string. Bytes become a string in base64 only.",
        validator=_Spec(),
    )
)


@dataclass(frozen=True, slots=True)
class Cast:
    """Casts fields or whole data."""

    side: Side
    spec: Mapping[str | None, SchemaType]
    replace_null: bool

    @classmethod
    def of(cls, side: Side, values: Mapping[str, object]) -> Cast:
        """Return the transform of parsed settings."""
        return cls(side, cast_spec(values["spec"]), bool(values[REPLACE_NULL]))

    def __call__(self, records: Records) -> Records:
        """Return the records with data of other types."""
        subject = Subject(records, self.side)
        whole = self.spec.get(None)
        if whole is not None:
            return self._whole(subject, whole)
        failures = subject.failures(_PURPOSE, allows_null=True)
        schema = subject.schema
        if schema is None:
            found = fields = variants.fields(subject.column)
            for name, target in self.spec.items():
                assert name is not None
                value, problems = _cast_variant(variants.field(fields, name), target)
                failures += problems
                found = variants.put(found, name, value)
            return subject.changed(variants.from_fields(found), failures, None)
        if schema.type is not SchemaType.STRUCT:
            return subject.failed(failures)
        columns, new = [], []
        for each in schema.fields:
            column, field_schema = structs.field(subject.column, each.name, each.schema, self.replace_null), each.schema
            if each.name in self.spec:
                column, problems = _cast(column, each.schema, self.spec[each.name])
                failures += problems
                field_schema = _cast_schema(each.schema, self.spec[each.name])
            columns.append((each.name, column))
            new.append(Field(each.name, field_schema))
        return subject.changed(structs.struct(columns), failures, replace(schema, fields=tuple(new)))

    def _whole(self, subject: Subject, target: SchemaType) -> Records:
        if subject.schema is None:
            column, failures = _cast_variant(subject.column, target)
            return subject.changed(column.cast("variant"), failures, None)
        column, failures = _cast(subject.column, subject.schema, target)
        if subject.schema.type in (SchemaType.STRUCT, SchemaType.ARRAY, SchemaType.MAP):
            return subject.failed(failures)
        return subject.changed(column, failures, _cast_schema(subject.schema, target))


def _cast_schema(schema: ConnectSchema, target: SchemaType) -> ConnectSchema:
    """Return the schema of cast data: the type, whether it is optional, and the default."""
    return ConnectSchema(target, optional=schema.optional, default=_cast_default(schema, target))


def _cast_default(schema: ConnectSchema, target: SchemaType) -> object:
    value = schema.default
    if value is None or schema.type is SchemaType.BYTES:
        return value if target is SchemaType.STRING else None
    if target is SchemaType.STRING:
        return value_text(float(str(value)) if schema.type in _FLOATS else value)
    if target is SchemaType.BOOLEAN:
        return value.lower() == "true" if isinstance(value, str) else int(float(str(value))) != 0
    if target in _FLOATS:
        return float(str(value)) if not isinstance(value, bool) else float(value)
    if isinstance(value, str):
        return parse_value("default", value, Type.LONG)
    number, bits = (
        int(float(str(value)))
        if isinstance(value, float)
        else int(str(int(bool(value))) if isinstance(value, bool) else str(value)),
        _BITS.get(target, 64),
    )
    low = number & ((1 << bits) - 1)
    return low - (1 << bits) if low >> (bits - 1) else low


def _cast(value: Column, schema: ConnectSchema, target: SchemaType) -> tuple[Column, list[Failure]]:
    """Return data with a schema as another type, and the failures."""
    none = sql.lit(None).cast(spark_type(ConnectSchema(target)))
    if schema.type in (SchemaType.STRUCT, SchemaType.ARRAY, SchemaType.MAP):
        return none, [Failure(value.isNotNull(), DATA_EXCEPTION, _unsupported(schema.type.name))]
    if schema.type is SchemaType.BYTES and schema.name != DECIMAL and target is not SchemaType.STRING:
        return none, [Failure(value.isNotNull(), DATA_EXCEPTION, "Unexpected type in Cast transformation: class [B")]
    if target is SchemaType.STRING:
        return structs.text(value, schema), []
    if schema.type is SchemaType.STRING:
        return _cast_text(value, target)
    if schema.name == TIMESTAMP:
        return _cast_number(sql.unix_millis(value), SchemaType.INT64, target), []
    if schema.name == DATE:
        return _cast_number(sql.unix_date(value), SchemaType.INT32, target), []
    if schema.name == DECIMAL:
        return _cast_number(value, SchemaType.BYTES, target), []
    return _cast_number(value, schema.type, target), []


def _cast_text(text: Column, target: SchemaType) -> tuple[Column, list[Failure]]:
    found = java.parsed(text, target.value)
    value = found.cast(spark_type(ConnectSchema(target)))
    if target is SchemaType.BOOLEAN:
        return sql.when(text.isNotNull(), value), []
    message = sql.concat(sql.lit("Value ("), text, sql.lit(") was out of range for requested data type"))
    return value, [Failure(text.isNotNull() & found.isNull(), DATA_EXCEPTION, message)]


def _cast_number(value: Column, source: SchemaType, target: SchemaType) -> Column:
    """Return a number or boolean as another type, by Java's conversions of primitives."""
    kind = spark_type(ConnectSchema(target))
    if source is SchemaType.BOOLEAN:
        return value.cast("int").cast(kind) if target is not SchemaType.BOOLEAN else value
    if target in _FLOATS:
        return value.cast(kind)
    bits = _BITS.get(target, 64)
    if source in _FLOATS:
        # A floating-point number saturates at the limits of int before it loses its high bits.
        whole = _saturated(value, 64 if target in (SchemaType.INT64, SchemaType.BOOLEAN) else 32)
    elif source is SchemaType.BYTES:
        whole = value.try_cast("bigint")
    else:
        whole = value.cast("bigint")
    if target is SchemaType.BOOLEAN:
        return whole != 0
    if bits == 64:
        return whole
    half = 1 << (bits - 1)
    low = whole.bitwiseAND(sql.lit((1 << bits) - 1).cast("bigint"))
    return (low.bitwiseXOR(sql.lit(half).cast("bigint")) - sql.lit(half)).cast(kind)


def _saturated(value: Column, bits: int) -> Column:
    limit = 1 << (bits - 1)
    number = value.cast("double")
    return (
        sql.when(value.isNull(), None)
        .when(sql.isnan(number), sql.lit(0).cast("bigint"))
        .when(number >= float(limit), sql.lit(limit - 1).cast("bigint"))
        .when(number < float(-limit), sql.lit(-limit).cast("bigint"))
        .otherwise(number.cast("bigint"))
    )


def _cast_variant(value: Column, target: SchemaType) -> tuple[Column, list[Failure]]:
    """Return a variant as a variant of another type, and the failures."""
    kind = variants.kind(value)
    nested = kind.isin("OBJECT", "ARRAY")
    name = sql.when(kind == "OBJECT", "MAP").otherwise(kind)
    failures = [Failure(nested, DATA_EXCEPTION, _unsupported_of(name))]
    if target is SchemaType.STRING:
        return sql.when(~nested, variants.number_text(value)).cast("variant"), failures
    text = sql.when(kind == "STRING", value.cast("string"))
    parsed, problems = _cast_text(text, target)
    integer = sql.try_variant_get(value, "$", "bigint")
    fraction = sql.try_variant_get(value, "$", "double")
    truth = sql.try_variant_get(value, "$", "boolean")
    found = (
        sql.when(kind == "STRING", parsed)
        .when(kind == "BOOLEAN", _cast_number(truth, SchemaType.BOOLEAN, target))
        .when(variants.is_fraction(value), _cast_number(fraction, SchemaType.FLOAT64, target))
        .when(~nested, _cast_number(integer, SchemaType.INT64, target))
    )
    return found.cast("variant"), [*failures, *problems]


def _unsupported(name: str) -> str:
    return f"Cast transformation does not support casting from {name}; supported types are {_inputs()}"


def _unsupported_of(name: Column) -> Column:
    start, end = "Cast transformation does not support casting from ", f"; supported types are {_inputs()}"
    return sql.concat(sql.lit(start), name, sql.lit(end))


def _inputs() -> str:
    return f"[{', '.join((*_TYPES, 'BYTES'))}]"

"""Connect's schemas of PostgreSQL's columns, and the columns that hold values of Connect's schemas (pure).

Types without a counterpart, such as uuid, jsonb and enums, are texts on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from tidelog_connect.configuration import ConfigException
from tidelog_connect.connectors.jdbc.tables import SourceColumn
from tidelog_connect.schemas import DATE, DECIMAL, TIME, TIMESTAMP, ConnectSchema, SchemaType

UNBOUNDED_SCALE = 18
"""The scale of decimals that come from columns without precision and scale."""
_MAX_PRECISION = 38
_MAX_LONG_DIGITS = 18
_SCALARS = {
    "int2": SchemaType.INT16,
    "smallserial": SchemaType.INT16,
    "int4": SchemaType.INT32,
    "serial": SchemaType.INT32,
    "int8": SchemaType.INT64,
    "bigserial": SchemaType.INT64,
    "oid": SchemaType.INT64,
    "float4": SchemaType.FLOAT32,
    "float8": SchemaType.FLOAT64,
    "bool": SchemaType.BOOLEAN,
    "text": SchemaType.STRING,
    "varchar": SchemaType.STRING,
    "bpchar": SchemaType.STRING,
    "bytea": SchemaType.BYTES,
}
_LOGICAL = {
    "date": (SchemaType.INT32, DATE),
    "time": (SchemaType.INT32, TIME),
    "timestamp": (SchemaType.INT64, TIMESTAMP),
    "timestamptz": (SchemaType.INT64, TIMESTAMP),
}
_ARRAYS = {
    f"_{name}": _SCALARS[name] for name in ("int2", "int4", "int8", "float4", "float8", "bool", "text", "varchar")
}
INTEGERS = frozenset({"int2", "smallserial", "int4", "serial", "int8", "bigserial"})
"""The types of an incrementing column, besides numeric with scale 0."""
TIMESTAMPS = frozenset({"timestamp", "timestamptz"})
"""The types of a timestamp column."""


def source_schema(column: SourceColumn, numeric_mapping: str) -> ConnectSchema:
    """Return the schema of a column's values.

    Raises:
        ConfigException: the column is a numeric of more than 38 digits.
    """
    optional = column.is_nullable
    if column.type_name == "numeric":
        return _numeric(column, numeric_mapping)
    if column.type_name in _LOGICAL:
        kind, name = _LOGICAL[column.type_name]
        return ConnectSchema(kind, optional, name=name, version=1)
    if column.type_name in _ARRAYS:
        # The elements of PostgreSQL's arrays can be null.
        element = ConnectSchema(_ARRAYS[column.type_name], optional=True)
        return ConnectSchema(SchemaType.ARRAY, optional, value_schema=element)
    return ConnectSchema(_SCALARS.get(column.type_name, SchemaType.STRING), optional)


def is_text_cast(column: SourceColumn) -> bool:
    """Tell whether the column is read as its text, because no type of Connect fits."""
    return not (
        column.type_name in _SCALARS
        or column.type_name in _LOGICAL
        or column.type_name in _ARRAYS
        or column.type_name == "numeric"
    )


def is_unbounded(column: SourceColumn) -> bool:
    """Tell whether the column is a numeric without precision and scale."""
    return column.type_name == "numeric" and column.precision == 0


def _numeric(column: SourceColumn, mapping: str) -> ConnectSchema:
    optional, precision, scale = column.is_nullable, column.precision, column.scale
    if is_unbounded(column):
        return _decimal(UNBOUNDED_SCALE, optional)
    digits = precision - min(scale, 0)
    is_whole = scale == 0 if mapping == "precision_only" else scale <= 0
    if mapping != "none" and is_whole and digits <= _MAX_LONG_DIGITS:
        return ConnectSchema(_whole_number(digits), optional)
    if mapping == "best_fit" and scale > 0 and precision <= _MAX_LONG_DIGITS:
        return ConnectSchema(SchemaType.FLOAT64, optional)
    if mapping == "best_fit_eager_double" and scale > 0:
        return ConnectSchema(SchemaType.FLOAT64, optional)
    if max(digits, scale) > _MAX_PRECISION:
        raise ConfigException(
            f"Column {column.name} is numeric({precision},{scale}), but decimals have at most {_MAX_PRECISION} digits; "
            "choose the columns and cast this one in the setting query"
        )
    return _decimal(max(scale, 0), optional)


def _whole_number(digits: int) -> SchemaType:
    if digits > 9:
        return SchemaType.INT64
    if digits > 4:
        return SchemaType.INT32
    return SchemaType.INT16 if digits > 2 else SchemaType.INT8


def _decimal(scale: int, optional: bool) -> ConnectSchema:
    parameters = MappingProxyType({"scale": str(scale)})
    return ConnectSchema(SchemaType.BYTES, optional, name=DECIMAL, version=1, parameters=parameters)


@dataclass(frozen=True, slots=True)
class TargetType:
    """The types of a sink's column: that of a table which the sink creates, and that of a staged value."""

    created: str
    staged: str


_TARGETS = {
    SchemaType.INT8: TargetType("SMALLINT", "smallint"),
    SchemaType.INT16: TargetType("SMALLINT", "smallint"),
    SchemaType.INT32: TargetType("INT", "integer"),
    SchemaType.INT64: TargetType("BIGINT", "bigint"),
    SchemaType.FLOAT32: TargetType("REAL", "real"),
    SchemaType.FLOAT64: TargetType("DOUBLE PRECISION", "double precision"),
    SchemaType.BOOLEAN: TargetType("BOOLEAN", "boolean"),
    SchemaType.STRING: TargetType("TEXT", "text"),
    SchemaType.BYTES: TargetType("BYTEA", "bytea"),
}
_LOGICAL_TARGETS = {
    DECIMAL: TargetType("DECIMAL", "numeric"),
    DATE: TargetType("DATE", "date"),
    TIME: TargetType("TIME", "integer"),
    TIMESTAMP: TargetType("TIMESTAMP", "timestamp with time zone"),
}


def target_type(field: str, schema: ConnectSchema) -> TargetType:
    """Return the types of a column for a field.

    Raises:
        ConfigException: the field is a struct, a map, or an array of something else than scalars.
    """
    if schema.name in _LOGICAL_TARGETS:
        return _LOGICAL_TARGETS[schema.name]
    if schema.type in _TARGETS:
        return _TARGETS[schema.type]
    element = schema.value_schema
    if schema.type is SchemaType.ARRAY and element is not None and element.type in _TARGETS and element.name is None:
        inner = _TARGETS[element.type]
        return TargetType(f"{inner.created}[]", f"{inner.staged}[]")
    raise ConfigException(
        f"Field {field} is a {schema.type.value}, for which a table has no column; the transform Flatten or "
        "fields.whitelist can remove it"
    )

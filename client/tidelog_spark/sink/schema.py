"""The columns that the sink takes."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidelog_foundation.errors import ConfigError

_BYTES = (BinaryType, StringType)
_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "key": _BYTES,
    "value": _BYTES,
    "topic": (StringType,),
    "partition": (IntegerType,),
    "headers": (ArrayType,),
    "timestamp": (TimestampType, TimestampNTZType),
}


def check_schema(schema: StructType, topic: str | None) -> None:
    """Check the columns of the rows.

    Raises:
        ConfigError: a column is missing, unknown or of another type, or nothing names the topic.
    """
    found = {field.name: field.dataType for field in schema.fields}
    unknown = [name for name in found if name not in _TYPES]
    if unknown:
        raise ConfigError(f"unknown column {', '.join(unknown)}: the tidelog sink takes {', '.join(_TYPES)}")
    if "value" not in found:
        raise ConfigError(f"the column value is missing; the columns are {', '.join(found) or 'none'}")
    if topic is None and "topic" not in found:
        raise ConfigError('nothing names the topic: set the option "topic", or add a column topic')
    for name, data_type in found.items():
        if not isinstance(data_type, _TYPES[name]) or (name == "headers" and not _is_headers(data_type)):
            raise ConfigError(f"column {name} is {data_type.simpleString()}, but must be {_expected(name)}")


def _is_headers(data_type: DataType) -> bool:
    assert isinstance(data_type, ArrayType)
    element = data_type.elementType
    if not isinstance(element, StructType) or element.fieldNames() != ["key", "value"]:
        return False
    return isinstance(element["key"].dataType, StringType) and isinstance(element["value"].dataType, BinaryType)


def _expected(name: str) -> str:
    if name == "headers":
        return "array<struct<key:string,value:binary>>"
    return " or ".join(each().simpleString() for each in _TYPES[name])

"""`ConnectSchema`: the type of a key, a value or a field, with Connect's names, versions, defaults and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from tidelog_connect.schemas.errors import DataException

DECIMAL = "org.apache.kafka.connect.data.Decimal"
DATE = "org.apache.kafka.connect.data.Date"
TIME = "org.apache.kafka.connect.data.Time"
TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"


class SchemaType(StrEnum):
    """Connect's types, by their names in JSON."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float"
    FLOAT64 = "double"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct."""

    name: str
    schema: ConnectSchema


@dataclass(frozen=True, slots=True)
class ConnectSchema:
    """The type of a value. ``default`` is a value as JSON has it; ``fields`` are a struct's, in order.

    ``key_schema`` belongs to maps, ``value_schema`` to maps and arrays.
    """

    type: SchemaType
    optional: bool = False
    default: object = None
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    parameters: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    fields: tuple[Field, ...] = ()
    key_schema: ConnectSchema | None = None
    value_schema: ConnectSchema | None = None

    def __post_init__(self) -> None:
        names = [field.name for field in self.fields]
        for name in names:
            if names.count(name) > 1:
                raise DataException(f"Cannot create field because of field name duplication {name}")
        if self.default is not None and self.type in (SchemaType.ARRAY, SchemaType.MAP, SchemaType.STRUCT):
            raise DataException(f"Defaults of {self.type.value} schemas are not supported: {self.default!r:.100}")

    def field(self, name: str) -> ConnectSchema | None:
        """Return the schema of a struct's field, or None."""
        return next((field.schema for field in self.fields if field.name == name), None)

    def as_optional(self, optional: bool = True) -> ConnectSchema:
        """Return this schema as an optional or a required one."""
        return replace(self, optional=optional)

    def with_fields(self, fields: tuple[Field, ...]) -> ConnectSchema:
        """Return a required struct with these fields and this schema's metadata (``SchemaUtil.copySchemaBasics``)."""
        return replace(self, fields=fields, optional=False, default=None)

    @property
    def scale(self) -> int:
        """The scale of a decimal.

        Raises:
            DataException: the schema has no scale that Spark can hold.
        """
        text = self.parameters.get("scale", "")
        if not text.isdigit() or int(text) > 38:
            raise DataException(f"Invalid scale {text!r} of {DECIMAL}: must be a number from 0 to 38")
        return int(text)

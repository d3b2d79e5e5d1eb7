"""The converters of single values: text, bytes, numbers and booleans, in the formats of Kafka's serializers."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as sql

from tidelog_connect.configuration import ConfigException
from tidelog_connect.converters.converter import Converted
from tidelog_connect.records import DATA_EXCEPTION, Failure
from tidelog_connect.schemas import ConnectSchema, SchemaType, spark_type
from tidelog_connect.transforms import structs, variants

_BYTES = {
    SchemaType.INT16: 2,
    SchemaType.INT32: 4,
    SchemaType.INT64: 8,
    SchemaType.FLOAT32: 4,
    SchemaType.FLOAT64: 8,
    SchemaType.BOOLEAN: 1,
}
_NAMES = {
    SchemaType.INT16: "ShortDeserializer",
    SchemaType.INT32: "IntegerDeserializer",
    SchemaType.INT64: "LongDeserializer",
    SchemaType.FLOAT32: "FloatDeserializer",
    SchemaType.FLOAT64: "DoubleDeserializer",
    SchemaType.BOOLEAN: "BooleanDeserializer",
}
_SCALARS = (*_BYTES, SchemaType.INT8, SchemaType.STRING)


@dataclass(frozen=True, slots=True)
class StringConverter:
    """Text in UTF-8. Data of other scalar types is written as Java prints it."""

    def decode(self, column: Column) -> Converted:
        """Return the text; bytes that are no UTF-8 become the replacement character, as in Java."""
        return Converted(sql.make_valid_utf8(column.cast("string")), ConnectSchema(SchemaType.STRING, optional=True))

    def encode(self, column: Column, schema: ConnectSchema | None) -> Converted:
        """Return the bytes of text.

        Raises:
            ConfigException: the data is a struct, list, map or bytes.
        """
        if schema is None:
            return Converted(variants.text(column).cast("binary"), None)
        if schema.type not in _SCALARS:
            raise ConfigException(f"StringConverter writes no data of type {schema.type.name}: use JsonConverter")
        return Converted(structs.text(column, schema).cast("binary"), None)


@dataclass(frozen=True, slots=True)
class ByteArrayConverter:
    """Bytes as they are."""

    def decode(self, column: Column) -> Converted:
        """Return the bytes."""
        return Converted(column, ConnectSchema(SchemaType.BYTES, optional=True))

    def encode(self, column: Column, schema: ConnectSchema | None) -> Converted:
        """Return the bytes.

        Raises:
            ConfigException: the data has another type.
        """
        if schema is None or schema.type is not SchemaType.BYTES or schema.name is not None:
            found = "none" if schema is None else schema.type.name
            raise ConfigException(f"Invalid schema type for ByteArrayConverter: {found}")
        return Converted(column, None)


@dataclass(frozen=True, slots=True)
class NumberConverter:
    """A number or boolean, of big-endian bytes."""

    type: SchemaType

    def decode(self, column: Column) -> Converted:
        """Return the numbers; other sizes than the type's are failures."""
        size, kind = _BYTES[self.type], spark_type(ConnectSchema(self.type))
        message = "Failed to deserialize to a number: "
        reason = f"Size of data received by {_NAMES[self.type]} is not {size}"
        failures = [Failure(sql.octet_length(column) != size, DATA_EXCEPTION, message + reason)]
        digits = sql.hex(column)
        if self.type is SchemaType.BOOLEAN:
            failures.append(
                Failure(~digits.isin("00", "01"), DATA_EXCEPTION, message + "Unexpected byte of BooleanDeserializer")
            )
            return Converted(digits == "01", ConnectSchema(self.type, optional=True), failures)
        bits = sql.conv(digits, 16, -10).cast("bigint")
        half = sql.lit(1 << (8 * size - 1)).cast("bigint") if size < 8 else None
        signed = bits if half is None else bits.bitwiseXOR(half) - half
        if self.type is SchemaType.FLOAT32:
            signed = _reflected("java.lang.Float", "intBitsToFloat", signed.cast("int"))
        if self.type is SchemaType.FLOAT64:
            signed = _reflected("java.lang.Double", "longBitsToDouble", signed)
        return Converted(signed.cast(kind), ConnectSchema(self.type, optional=True), failures)

    def encode(self, column: Column, schema: ConnectSchema | None) -> Converted:
        """Return the bytes of numbers.

        Raises:
            ConfigException: the data has another type.
        """
        if schema is None or schema.type is not self.type:
            found = "none" if schema is None else schema.type.name
            raise ConfigException(f"Invalid schema type for a converter of {self.type.name}: {found}")
        if self.type is SchemaType.BOOLEAN:
            return Converted(sql.when(column, sql.unhex(sql.lit("01"))).otherwise(sql.unhex(sql.lit("00"))), None)
        number = column
        if self.type is SchemaType.FLOAT32:
            number = _reflected("java.lang.Float", "floatToIntBits", column)
        if self.type is SchemaType.FLOAT64:
            number = _reflected("java.lang.Double", "doubleToLongBits", column)
        digits = sql.lpad(sql.hex(number.cast("bigint")), 16, "0")
        return Converted(sql.unhex(sql.right(digits, sql.lit(2 * _BYTES[self.type]))), None)


def _reflected(class_name: str, method: str, value: Column) -> Column:
    return sql.try_reflect(sql.lit(class_name), sql.lit(method), value)

"""The types that JsonConverter writes: logical types as numbers and text, and the way there and back.

A timestamp is its milliseconds, a date its days, a time its milliseconds, and a decimal the base64 of its unscaled
value, or a number with ``decimal.format=NUMERIC``. Unscaled values in base64 have at most 64 bits here.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as sql
from pyspark.sql import types as spark

from tidelog_connect.configuration import ConfigException
from tidelog_connect.schemas import DATE, DECIMAL, TIMESTAMP, ConnectSchema, SchemaType, spark_type
from tidelog_connect.transforms import structs

_TOO_LARGE = "Decimals of more than 64 bits need decimal.format=NUMERIC"


def wire_type(schema: ConnectSchema, numeric: bool) -> spark.DataType:
    """Return the Spark type of a schema's values in JSON.

    Raises:
        ConfigException: a map has keys that are no text, or a list or map has decimals in base64.
    """
    if schema.type is SchemaType.STRUCT:
        return spark.StructType(
            [spark.StructField(each.name, wire_type(each.schema, numeric)) for each in schema.fields]
        )
    if schema.value_schema is not None and not numeric and has_decimal(schema.value_schema):
        raise ConfigException("Decimals in lists and maps need decimal.format=NUMERIC")
    if schema.type is SchemaType.ARRAY:
        return spark.ArrayType(wire_type(_part(schema), numeric))
    if schema.type is SchemaType.MAP:
        if schema.key_schema is None or schema.key_schema.type is not SchemaType.STRING:
            raise ConfigException("JSON maps need keys of type string")
        return spark.MapType(spark.StringType(), wire_type(_part(schema), numeric))
    if schema.name == DECIMAL:
        return spark_type(schema) if numeric else spark.StringType()
    if schema.name == TIMESTAMP:
        return spark.LongType()
    return spark.IntegerType() if schema.name == DATE else spark_type(schema)


def from_wire(value: Column, schema: ConnectSchema, numeric: bool, replace_null: bool) -> Column:
    """Return values in JSON as values of the schema's type, with defaults where ``replace_null`` says so."""
    found = _from_wire(value, schema, numeric, replace_null)
    return sql.coalesce(found, structs.default_of(schema)) if replace_null and schema.default is not None else found


def _from_wire(value: Column, schema: ConnectSchema, numeric: bool, replace_null: bool) -> Column:
    if schema.type is SchemaType.STRUCT:
        columns = (
            (each.name, from_wire(value.getField(each.name), each.schema, numeric, replace_null))
            for each in schema.fields
        )
        return sql.when(value.isNotNull(), structs.struct(columns))
    if schema.type is SchemaType.ARRAY:
        return sql.transform(value, lambda each: from_wire(each, _part(schema), numeric, replace_null))
    if schema.type is SchemaType.MAP:
        return sql.transform_values(value, lambda _, each: from_wire(each, _part(schema), numeric, replace_null))
    if schema.name == DECIMAL and not numeric:
        digits = sql.hex(sql.unbase64(value))
        sign = sql.when(digits.rlike("^[89A-F]"), "F").otherwise("0")
        unscaled = sql.conv(sql.lpad(digits, 16, sign), 16, -10).cast(spark.DecimalType(20, 0))
        power = sql.lit(10**schema.scale).cast(spark.DecimalType(schema.scale + 1, 0))
        return (unscaled / power).cast(spark_type(schema))
    if schema.name == TIMESTAMP:
        return sql.timestamp_millis(value)
    return sql.date_from_unix_date(value) if schema.name == DATE else value


def to_wire(value: Column, schema: ConnectSchema, numeric: bool, replace_null: bool) -> Column:
    """Return values as JSON has them, with defaults where ``replace_null`` says so.

    Raises:
        ConfigException: a map has keys that are no text.
    """
    wire_type(schema, numeric)
    if replace_null and schema.default is not None:
        value = sql.coalesce(value, structs.default_of(schema))
    if schema.type is SchemaType.STRUCT:
        columns = (
            (each.name, to_wire(value.getField(each.name), each.schema, numeric, replace_null))
            for each in schema.fields
        )
        return sql.when(value.isNotNull(), structs.struct(columns))
    if schema.type is SchemaType.ARRAY:
        return sql.transform(value, lambda each: to_wire(each, _part(schema), numeric, replace_null))
    if schema.type is SchemaType.MAP:
        return sql.transform_values(value, lambda _, each: to_wire(each, _part(schema), numeric, replace_null))
    if schema.name == DECIMAL and not numeric:
        return sql.base64(sql.unhex(_shortest(sql.hex(_unscaled(value, schema)))))
    if schema.name == TIMESTAMP:
        return sql.unix_millis(value)
    return sql.unix_date(value) if schema.name == DATE else value


def _shortest(digits: Column) -> Column:
    """Return the shortest two's complement of 64 bits in hexadecimal digits, of which leading zeros may be absent."""
    full = sql.lpad(digits, 16, "0")
    return sql.regexp_replace(sql.regexp_replace(full, "^(00)+(?=[0-7].)", ""), "^(FF)+(?=[89A-F].)", "")


def _unscaled(value: Column, schema: ConnectSchema) -> Column:
    """Return a decimal without its point, or null if it has more than 64 bits."""
    power = sql.lit(10**schema.scale).cast(spark.DecimalType(min(38, schema.scale + 1), 0))
    return sql.try_multiply(value, power).try_cast("bigint")


def unreadable(value: Column, schema: ConnectSchema, numeric: bool) -> Column:
    """Return the reason why a value in JSON is not valid, or null: a missing value, or a decimal that is too large."""
    reason = f"Invalid null value for required {schema.type.name} field"
    required = not schema.optional and schema.default is None
    own = sql.when(value.isNull(), reason) if required else sql.lit(None).cast("string")
    if schema.name == DECIMAL and not numeric:
        size = sql.octet_length(sql.unbase64(value))
        return sql.coalesce(own, sql.when(size > 8, _TOO_LARGE))
    if schema.type is not SchemaType.STRUCT or not schema.fields:
        return own
    inner = [unreadable(value.getField(each.name), each.schema, numeric) for each in schema.fields]
    return sql.coalesce(own, sql.when(value.isNotNull(), sql.coalesce(*inner)))


def unwritable(value: Column, schema: ConnectSchema, numeric: bool) -> Column:
    """Return the reason why a value cannot be written, or null: a decimal that is too large."""
    if schema.name == DECIMAL and not numeric:
        return sql.when(value.isNotNull() & _unscaled(value, schema).isNull(), _TOO_LARGE)
    if schema.type is not SchemaType.STRUCT or not schema.fields:
        return sql.lit(None).cast("string")
    return sql.coalesce(*[unwritable(value.getField(each.name), each.schema, numeric) for each in schema.fields])


def has_decimal(schema: ConnectSchema) -> bool:
    """Tell whether a schema is a decimal or has one."""
    parts = [each.schema for each in schema.fields] + ([schema.value_schema] if schema.value_schema else [])
    return schema.name == DECIMAL or any(map(has_decimal, parts))


def _part(schema: ConnectSchema) -> ConnectSchema:
    assert schema.value_schema is not None
    return schema.value_schema

"""Data as Java prints it: the text of a value's ``toString()``, as column expressions."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as sql

from tidelog_connect.schemas import DECIMAL, ConnectSchema, SchemaType
from tidelog_connect.transforms import structs, variants


def printed(value: Column, schema: ConnectSchema | None) -> Column:
    """Return the text of values; null is null.

    Structs are ``Struct{name=value,...}`` without fields that are null, lists ``[1, 2]``, maps ``{key=value, ...}``.
    Unlike Java's, bytes are the text that they have in UTF-8, and objects without a schema are JSON.
    """
    if schema is None:
        return variants.text(value)
    if schema.type is SchemaType.STRUCT:
        fields = [
            sql.concat(sql.lit(f"{each.name}="), printed(value.getField(each.name), each.schema))
            for each in schema.fields
        ]
        inner = sql.array_join(sql.array(*fields), ",") if fields else sql.lit("")
        return sql.when(value.isNotNull(), sql.concat(sql.lit("Struct{"), inner, sql.lit("}")))
    if schema.type is SchemaType.ARRAY:
        texts = sql.transform(value, lambda each: _element(each, schema.value_schema))
        return sql.concat(sql.lit("["), sql.array_join(texts, ", "), sql.lit("]"))
    if schema.type is SchemaType.MAP:
        texts = sql.transform(sql.map_entries(value), lambda each: _entry(each, schema))
        return sql.concat(sql.lit("{"), sql.array_join(texts, ", "), sql.lit("}"))
    if schema.type is SchemaType.BYTES and schema.name != DECIMAL:
        return value.cast("string")
    return structs.text(value, schema)


def _element(value: Column, schema: ConnectSchema | None) -> Column:
    return sql.coalesce(printed(value, schema), sql.lit("null"))


def _entry(entry: Column, schema: ConnectSchema) -> Column:
    key = _element(entry.getField("key"), schema.key_schema)
    return sql.concat(key, sql.lit("="), _element(entry.getField("value"), schema.value_schema))

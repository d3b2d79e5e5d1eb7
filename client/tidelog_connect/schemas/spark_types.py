"""The Spark types that hold values of Connect's schemas, and the schemas of columns.

A timestamp is a TIMESTAMP, a date a DATE, a decimal a DECIMAL(38, scale), and a time of day the INT of its
milliseconds, for which Spark has no type everywhere. Fields are nullable in Spark, whatever Connect's schema says.
"""

from __future__ import annotations

from pyspark.sql import types as spark

from tidelog_connect.schemas.errors import DataException
from tidelog_connect.schemas.schema import DATE, DECIMAL, TIMESTAMP, ConnectSchema, Field, SchemaType

_SCALARS = {
    SchemaType.INT8: spark.ByteType(),
    SchemaType.INT16: spark.ShortType(),
    SchemaType.INT32: spark.IntegerType(),
    SchemaType.INT64: spark.LongType(),
    SchemaType.FLOAT32: spark.FloatType(),
    SchemaType.FLOAT64: spark.DoubleType(),
    SchemaType.BOOLEAN: spark.BooleanType(),
    SchemaType.STRING: spark.StringType(),
    SchemaType.BYTES: spark.BinaryType(),
}
_DATES: dict[tuple[SchemaType, str | None], spark.DataType] = {
    (SchemaType.INT64, TIMESTAMP): spark.TimestampType(),
    (SchemaType.INT32, DATE): spark.DateType(),
}


def spark_type(schema: ConnectSchema) -> spark.DataType:
    """Return the type of a column with such values.

    Raises:
        DataException: a decimal has no scale that Spark can hold.
    """
    if schema.type is SchemaType.STRUCT:
        return spark.StructType([spark.StructField(field.name, spark_type(field.schema)) for field in schema.fields])
    if schema.type is SchemaType.ARRAY:
        return spark.ArrayType(spark_type(_part(schema.value_schema)))
    if schema.type is SchemaType.MAP:
        return spark.MapType(spark_type(_part(schema.key_schema)), spark_type(_part(schema.value_schema)))
    if schema.type is SchemaType.BYTES and schema.name == DECIMAL:
        return spark.DecimalType(38, schema.scale)
    return _DATES.get((schema.type, schema.name)) or _SCALARS[schema.type]


def connect_schema_of_spark(kind: spark.DataType, nullable: bool = True) -> ConnectSchema:
    """Return the schema of a column's values, of which every nullable part is optional.

    Raises:
        DataException: Connect has no type for these values.
    """
    if isinstance(kind, spark.StructType):
        fields = tuple(Field(each.name, connect_schema_of_spark(each.dataType, each.nullable)) for each in kind.fields)
        return ConnectSchema(SchemaType.STRUCT, nullable, fields=fields)
    if isinstance(kind, spark.ArrayType):
        items = connect_schema_of_spark(kind.elementType, kind.containsNull)
        return ConnectSchema(SchemaType.ARRAY, nullable, value_schema=items)
    if isinstance(kind, spark.MapType):
        keys = connect_schema_of_spark(kind.keyType, False)
        values = connect_schema_of_spark(kind.valueType, kind.valueContainsNull)
        return ConnectSchema(SchemaType.MAP, nullable, key_schema=keys, value_schema=values)
    if isinstance(kind, spark.DecimalType):
        scale = {"scale": str(kind.scale)}
        return ConnectSchema(SchemaType.BYTES, nullable, name=DECIMAL, version=1, parameters=scale)
    if isinstance(kind, spark.DateType):
        return ConnectSchema(SchemaType.INT32, nullable, name=DATE, version=1)
    if isinstance(kind, (spark.TimestampType, spark.TimestampNTZType)):
        return ConnectSchema(SchemaType.INT64, nullable, name=TIMESTAMP, version=1)
    for scalar, known in _SCALARS.items():
        if isinstance(kind, type(known)):
            return ConnectSchema(scalar, nullable)
    raise DataException(f"Values of Spark's type {kind.simpleString()} have no type in Connect: cast them")


def _part(schema: ConnectSchema | None) -> ConnectSchema:
    if schema is None:
        raise DataException("The schema of an array or map lacks that of its elements")
    return schema

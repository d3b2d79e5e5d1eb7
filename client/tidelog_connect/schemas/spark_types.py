"""The Spark types that hold values of Connect's schemas.

A timestamp is a TIMESTAMP, a date a DATE, a decimal a DECIMAL(38, scale), and a time of day the INT of its
milliseconds, for which Spark has no type everywhere. Fields are nullable in Spark, whatever Connect's schema says.
"""

from __future__ import annotations

from pyspark.sql import types as spark

from tidelog_connect.schemas.errors import DataException
from tidelog_connect.schemas.schema import DATE, DECIMAL, TIMESTAMP, ConnectSchema, SchemaType

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


def _part(schema: ConnectSchema | None) -> ConnectSchema:
    if schema is None:
        raise DataException("The schema of an array or map lacks that of its elements")
    return schema

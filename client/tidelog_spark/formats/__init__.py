"""Formats of keys and values, decoded and encoded by Spark's own functions."""

from tidelog_spark.formats.avro import Avro
from tidelog_spark.formats.format import Format
from tidelog_spark.formats.json import Json
from tidelog_spark.formats.packages import add_packages, installed_spark, require_formats
from tidelog_spark.formats.protobuf import Protobuf
from tidelog_spark.formats.registered import Registered, SchemaRegistry, schema_id

__all__ = [
    "Avro",
    "Format",
    "Json",
    "Protobuf",
    "Registered",
    "SchemaRegistry",
    "add_packages",
    "installed_spark",
    "require_formats",
    "schema_id",
]

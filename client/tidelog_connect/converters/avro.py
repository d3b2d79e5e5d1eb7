"""`AvroConverter`: single Avro records of a given schema.

A registry can be the source of schemas later: it makes this converter, for the id that a connector's records have.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from pyspark.sql import Column

from tidelog_connect.configuration import ConfigException
from tidelog_connect.converters.converter import Converted
from tidelog_connect.records import DATA_EXCEPTION, Failure
from tidelog_connect.schemas import ConnectSchema, connect_schema_of_avro, spark_type
from tidelog_spark.formats.avro import Avro

_MALFORMED = "Failed to deserialize data to Avro"


@dataclass(frozen=True, slots=True)
class AvroConverter:
    """Avro records without a header, by ``from_avro`` and ``to_avro`` of Spark's package spark-avro."""

    schema: str

    def decode(self, column: Column) -> Converted:
        """Return the data of Avro records.

        Raises:
            DataException: Connect's schemas lack a part of the Avro schema.
        """
        schema = connect_schema_of_avro(json.loads(self.schema))
        # In PERMISSIVE mode, Spark returns nulls in a struct for a malformed record, and cannot tell it from a null.
        wrapped = {
            "type": "record",
            "name": "wrapper",
            "fields": [{"name": "payload", "type": json.loads(self.schema)}],
        }
        found = Avro(json.dumps(wrapped), mode="PERMISSIVE").decode(column).getField("payload")
        malformed = column.isNotNull() & found.isNull()
        failures = [] if schema.optional else [Failure(malformed, DATA_EXCEPTION, _MALFORMED)]
        return Converted(found.cast(spark_type(schema)), schema, failures)

    def encode(self, column: Column, schema: ConnectSchema | None) -> Converted:
        """Return Avro records.

        Raises:
            ConfigException: the data has another schema.
        """
        own = connect_schema_of_avro(json.loads(self.schema))
        if schema is None or spark_type(schema) != spark_type(own):
            found = "none" if schema is None else spark_type(schema).simpleString()
            raise ConfigException(f"The Avro schema does not fit the records: their type is {found}")
        return Converted(Avro(self.schema).encode(column), None)

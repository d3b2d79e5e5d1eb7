"""Connect's schemas: their JSON form, the Spark types that hold their values, and those of Avro schemas (pure)."""

from tidelog_connect.schemas.avro import connect_schema_of_avro
from tidelog_connect.schemas.errors import DataException
from tidelog_connect.schemas.json_form import schema_from_json, schema_to_json
from tidelog_connect.schemas.merging import merged_schema
from tidelog_connect.schemas.schema import (
    DATE,
    DECIMAL,
    TIME,
    TIMESTAMP,
    ConnectSchema,
    Field,
    SchemaType,
)
from tidelog_connect.schemas.spark_types import connect_schema_of_spark, spark_type

"""Tidelog in Spark: the data source ``format("tidelog")``, and sessions that know it.

Requires ``pip install tidelog[spark]``.
"""

from tidelog_spark.data_source import TidelogDataSource
from tidelog_spark.formats import Avro, Format, Json, Protobuf, Registered, SchemaRegistry, schema_id
from tidelog_spark.local_session import register, session
from tidelog_spark.progress import LagListener, QueryLag, lag

__all__ = [
    "Avro",
    "Format",
    "Json",
    "LagListener",
    "Protobuf",
    "QueryLag",
    "Registered",
    "SchemaRegistry",
    "TidelogDataSource",
    "lag",
    "register",
    "schema_id",
    "session",
]

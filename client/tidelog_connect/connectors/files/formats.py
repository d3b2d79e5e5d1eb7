"""Formats of files: their names in ``format.class``, and those of Spark's data sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tidelog_connect.configuration import ConfigException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ICEBERG = "iceberg"
_ICEBERG_CLASS = "org.apache.iceberg.SnapshotAncestryValidator"
_CONFLUENT = ("io.confluent.connect.s3.format", "io.confluent.connect.hdfs3", "io.confluent.connect.hdfs")


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A format: its data source of Spark, the ends of its files' names, and the package that it needs."""

    source: str
    extension: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    package: str = ""
    is_table: bool = False


FORMATS: Mapping[str, FileFormat] = MappingProxyType(
    {
        "ParquetFormat": FileFormat("parquet", ".parquet"),
        "JsonFormat": FileFormat("json", ".json", MappingProxyType({"ignoreNullFields": "false"})),
        "CsvFormat": FileFormat("csv", ".csv", MappingProxyType({"header": "true"})),
        "OrcFormat": FileFormat("orc", ".orc"),
        "AvroFormat": FileFormat("avro", ".avro", package="org.apache.spark:spark-avro_2.13"),
        "StringFormat": FileFormat("text", ".txt"),
        "DeltaFormat": FileFormat("delta", package="io.delta:delta-spark", is_table=True),
        "IcebergFormat": FileFormat(ICEBERG, package="org.apache.iceberg:iceberg-spark-runtime", is_table=True),
    }
)
"""The formats by their names. Files of Delta and Iceberg belong to a table, to which they are committed."""


def format_name(text: str) -> str:
    """Return the name of a format, given as such, as a class of Confluent's connectors, or as Spark's name.

    Raises:
        ConfigException: it is not known.
    """
    simple = text.rpartition(".")[2] if text.startswith(_CONFLUENT) else text
    for name, each in FORMATS.items():
        if simple.lower() in (name.lower(), each.source):
            return name
    raise ConfigException.of("format.class", text, f"String must be one of: {', '.join(FORMATS)}")


def check_installed(spark: SparkSession, found: FileFormat) -> None:
    """Check that Spark has the data source of a format, or the driver's JVM the library of Iceberg.

    Raises:
        ConfigException: it has not.
    """
    from py4j.protocol import Py4JJavaError

    jvm: Any = spark.sparkContext._jvm
    session: Any = spark._jsparkSession
    if found.source == ICEBERG:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        try:
            loader.loadClass(_ICEBERG_CLASS)
        except Py4JJavaError as error:
            raise ConfigException(
                f"The worker has no Iceberg 1.12 or newer: add {found.package}-4.1_2.13 to its setting"
                " spark.jars.packages, whatever the version of Spark"
            ) from error
        return
    try:
        jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(
            found.source, session.sessionState().conf()
        )
    except Py4JJavaError as error:
        raise ConfigException(
            f"Spark has no data source {found.source}: add {found.package}, in the version for this Spark, to the"
            " worker's setting spark.jars.packages"
        ) from error

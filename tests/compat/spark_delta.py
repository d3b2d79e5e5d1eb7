"""Writes batches of FilesSink and SparkSink to Delta tables, each twice, and prints the ids in the tables as JSON.

``python spark_delta.py JARS FOLDER``, with the jars of Delta separated by commas.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from tidelog_connect.connectors.connector import Batch
from tidelog_connect.connectors.files.sink import FilesSinkConnector
from tidelog_connect.connectors.registry import Registry
from tidelog_connect.connectors.spark.sink import SparkSinkConnector


def main(jars: str, folder: str) -> None:
    """Write and read the tables."""
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    spark = builder.config("spark.databricks.delta.snapshotPartitions", "2").getOrCreate()
    registry, shared = Registry.installed("1"), {"name": "s", "topics": "a,b"}
    files = {"connector.class": "FilesSink", "format.class": "DeltaFormat", "path": f"{folder}/files"}
    whole = {"connector.class": "SparkSink", "format": "delta", "path": f"{folder}/spark"}
    divided = {"connector.class": "SparkSink", "format": "delta", "path": f"{folder}/divided/${{topic}}"}
    sinks = {
        "files/a": FilesSinkConnector(registry.settings({**shared, **files})),
        "spark": SparkSinkConnector(registry.settings({**shared, **whole})),
        "divided/a": SparkSinkConnector(registry.settings({**shared, **divided})),
    }
    found = {}
    for place, sink in sinks.items():
        for number in (0, 0, 1, 0, 1):
            rows = spark.range(number * 4, number * 4 + 4).selectExpr(
                "IF(id % 2 = 0, 'a', 'b') AS topic",
                "0 AS partition",
                "id AS offset",
                "named_struct('id', id) AS value",
            )
            sink.put(rows, Batch("query", number))
        found[place] = sorted(row["id"] for row in spark.read.format("delta").load(f"{folder}/{place}").collect())
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

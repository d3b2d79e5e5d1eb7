"""The Spark side: it writes the topic to Parquet and computes the figures per carrier and month from it."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count, from_json
from pyspark.sql.functions import sum as sum_of

import tidelog.spark
from examples.flights.dataset import Figure, Figures

_FIELDS = "row INT, carrier STRING, month INT, dep_delay INT"


def run(bootstrap_servers: str, topic: str, parquet: Path) -> Figures:
    """Read the whole topic, write it to Parquet, and return the figures. A duplicated row counts twice."""
    spark = tidelog.spark.session("flights demo")
    try:
        _store(spark, bootstrap_servers, topic, parquet)
        return _figures(spark, parquet)
    finally:
        spark.stop()


def _store(spark: SparkSession, bootstrap_servers: str, topic: str, parquet: Path) -> None:
    records = (
        spark.read.format("tidelog")
        .option("bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    flight = from_json(col("value").cast("string"), _FIELDS)
    stored = records.select("key", "value", "partition", "offset", "timestamp", flight.alias("flight"))
    stored.select("key", "value", "partition", "offset", "timestamp", "flight.*").write.parquet(str(parquet))


def _figures(spark: SparkSession, parquet: Path) -> Figures:
    flights = spark.read.parquet(str(parquet))
    rows = (
        flights.groupBy("carrier", "month")
        .agg(count("*").alias("flights"), count("dep_delay").alias("delayed"), sum_of("dep_delay").alias("delay_sum"))
        .collect()
    )
    return {(r["carrier"], r["month"]): Figure(r["flights"], r["delayed"], r["delay_sum"] or 0) for r in rows}

"""The figures per carrier and month, which Spark computes from the stream's Parquet files."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import count
from pyspark.sql.functions import sum as sum_of

from examples.flights.dataset import Figure, Figures


def compute_figures(spark: SparkSession, parquet: Path) -> Figures:
    """Return the figures. A duplicated row counts twice."""
    flights = spark.read.parquet(str(parquet))
    rows = (
        flights.groupBy("carrier", "month")
        .agg(count("*").alias("flights"), count("dep_delay").alias("delayed"), sum_of("dep_delay").alias("delay_sum"))
        .collect()
    )
    return {(r["carrier"], r["month"]): Figure(r["flights"], r["delayed"], r["delay_sum"] or 0) for r in rows}

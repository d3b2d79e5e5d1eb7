"""Reprocessing: a second version of an application reads the same topic again from its start, beside the first.

The first version computes the mean delay of each airline and counts cancelled flights as punctual, which is a mistake.
The topic still has all flights, so the second version, with a checkpoint and a result of its own, starts at the first
record. The first one goes on until the second has caught up and its readers have changed over. You see both results.

Run it: python -m examples.streams.reprocessing [host:port]
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import avg, coalesce, col, lit

from examples.streams.stage import FLIGHT, Stage, finish, open_stage, show


def run(stage: Stage) -> list[tuple[str, float, float]]:
    """Return the mean delay of each airline by the first and by the second version."""
    topic = stage.flights_topic()
    first = start(stage, topic, "delays-1", coalesce(col("dep_delay"), lit(0)))
    second = start(stage, topic, "delays-2", col("dep_delay"))
    both = first.withColumnRenamed("delay", "first").join(second.withColumnRenamed("delay", "second"), "carrier")
    return [tuple(row) for row in both.orderBy("carrier").collect()]


def start(stage: Stage, topic: str, version: str, delay: Column) -> DataFrame:
    """Run a version of the application to the end of the topic, and return its last results."""
    flight = stage.read_stream(topic).select(FLIGHT.decode("value").alias("flight")).select("flight.*")
    delays = flight.groupBy("carrier").agg(avg(delay).alias("delay"))
    result = stage.folder / f"{version}-result"

    def replace(frame: DataFrame, batch: int) -> None:
        frame.write.mode("overwrite").parquet(str(result))

    finish(stage.write_stream(delays, version).outputMode("complete").foreachBatch(replace))
    return stage.spark.read.parquet(str(result))


def main() -> None:
    """Run the example."""
    with open_stage() as stage:
        show("Mean delay in minutes", ("airline", "version 1", "version 2"), run(stage))


if __name__ == "__main__":
    main()

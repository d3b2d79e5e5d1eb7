"""A join of a stream with a table: flights have the code of their airline, a table has the names.

The table is read once per micro-batch and needs no state. A left join keeps flights whose airline the table lacks. You
see the airlines by name, with their flights and the miles of these.

Run it: python -m examples.streams.airline_names [host:port]
"""

from __future__ import annotations

from pyspark.sql.functions import broadcast, coalesce, col, lit
from pyspark.sql.functions import count as count_of
from pyspark.sql.functions import sum as sum_of

from examples.flights.dataset import airline_names
from examples.streams.stage import FLIGHT, Stage, open_stage, show

UNKNOWN = "unknown"


def run(stage: Stage) -> list[tuple[str, int, int]]:
    """Return the flights and miles of each airline, the busiest first."""
    names = stage.spark.createDataFrame(list(airline_names().items()), "carrier STRING, name STRING")
    flight = stage.read_stream(stage.flights_topic()).select(FLIGHT.decode("value").alias("flight")).select("flight.*")
    named = flight.join(broadcast(names), "carrier", "left").withColumn("airline", coalesce("name", lit(UNKNOWN)))
    totals = named.groupBy("airline").agg(count_of("*").alias("flights"), sum_of("distance").alias("miles"))
    return [tuple(row) for row in stage.table_of(totals).orderBy(col("flights").desc(), "airline").collect()]


def main() -> None:
    """Run the example."""
    with open_stage() as stage:
        show("Airlines by flights", ("airline", "flights", "miles"), run(stage))


if __name__ == "__main__":
    main()

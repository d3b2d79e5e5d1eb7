"""Exactly once from topic to topic: the stream is started again after a crash, and its rows are not written again.

Each task writes in a transaction, and all transactions of a micro-batch are committed by one record. The crash comes
after that, and before Spark's own mark of the batch: the restarted stream repeats the batch, and the sink recognizes
that it is committed. A consumer of committed records sees each flight once. You see the records that it reads before
and after.

Run it: python -m examples.streams.exactly_once_topics [host:port]
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.functions import struct

from examples.streams.exactly_once_files import counted, forget_last_commit
from examples.streams.stage import FLIGHT, Stage, finish, open_stage, show


def run(stage: Stage) -> list[tuple[str, int, int]]:
    """Return the records and the distinct flights in the second topic before the crash and after the restart."""
    source, target = stage.flights_topic(), stage.create_topic("long-flights")
    copy_long_flights(stage, source, target)
    before = counted(flights_in(stage, target))
    forget_last_commit(stage.folder / "topics-checkpoint")
    copy_long_flights(stage, source, target)
    return [("before the crash", *before), ("after the restart", *counted(flights_in(stage, target)))]


def flights_in(stage: Stage, topic: str) -> DataFrame:
    """Return the numbers of the flights that a consumer of committed records reads."""
    return stage.read(topic).select(FLIGHT.decode("value").alias("flight")).select("flight.row")


def copy_long_flights(stage: Stage, source: str, target: str) -> None:
    """Copy the flights of at least a thousand miles, in several micro-batches."""
    records = stage.read_stream(source, maxOffsetsPerTrigger=str(-(-stage.flights // 3)))
    flight = records.select("key", FLIGHT.decode("value").alias("flight")).where("flight.distance >= 1000")
    values = flight.select("key", FLIGHT.encode(struct("flight.row", "flight.distance")).alias("value"))
    writer = stage.write_stream(values, "topics-checkpoint").format("tidelog")
    finish(writer.option("bootstrap.servers", stage.servers).option("topic", target))


def main() -> None:
    """Run the example."""
    with open_stage() as stage:
        show("Flights of at least 1,000 miles in the second topic", ("", "records", "distinct"), run(stage))


if __name__ == "__main__":
    main()

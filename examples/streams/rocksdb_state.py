"""State in RocksDB: counts per route that do not have to fit into the memory of the JVM.

Spark keeps the state of a stream in memory by default. With one setting, it is in RocksDB on the local disk, and each
micro-batch writes its changes to the checkpoint. The stream stops, more flights arrive, and a second run goes on from
the state in the checkpoint. You see the busiest routes after each run.

Run it: python -m examples.streams.rocksdb_state [host:port]
"""

from __future__ import annotations

import itertools

from pyspark.sql.functions import concat_ws

from examples.flights import dataset
from examples.streams.stage import FLIGHT, Stage, finish, flights, open_stage, show

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def run(stage: Stage) -> list[tuple[str, int, int]]:
    """Return the routes with their flights after the first and after the second run, the busiest first."""
    records = itertools.starmap(dataset.as_record, enumerate(flights(stage.flights)))
    topic = stage.create_topic("flights")
    stage.produce(topic, itertools.islice(records, stage.flights // 2))
    first = count_routes(stage, topic)
    stage.produce(topic, records)
    second = count_routes(stage, topic)
    routes = sorted(second, key=lambda route: (-second[route], route))
    return [(route, first.get(route, 0), second[route]) for route in routes]


def count_routes(stage: Stage, topic: str) -> dict[str, int]:
    """Run the stream to the end of the topic and return its counts of all runs."""
    spark, counts = stage.spark, dict[str, int]()
    flight = stage.read_stream(topic).select(FLIGHT.decode("value").alias("flight")).select("flight.*")
    route = concat_ws(" to ", "origin", "dest").alias("route")
    before = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, ROCKSDB)
    try:
        writer = stage.write_stream(flight.groupBy(route).count(), "routes").outputMode("complete")
        finish(writer.foreachBatch(lambda frame, batch: counts.update(dict(frame.collect()))))
    finally:
        spark.conf.set(PROVIDER, before)
    return counts


def main() -> None:
    """Run the example."""
    with open_stage() as stage:
        show("Routes", ("route", "first run", "second run"), run(stage))


if __name__ == "__main__":
    main()

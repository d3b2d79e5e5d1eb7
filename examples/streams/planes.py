"""A table from a compacted topic: where is every plane now?

Each record says where a plane has landed; its key is the plane. The topic is compacted: the cluster keeps the last
record of each key, and a record without a value deletes the key. The table has one row per plane, and is the same
whether the topic has been compacted already or not. You see some planes, and where most of them are.

Run it: python -m examples.streams.planes [host:port]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pyspark.sql.functions import col, max_by

from examples.streams.stage import Stage, flights, open_stage, show

SOLD = "N14228"
"""A plane that leaves the fleet at the end: its key is deleted."""


def run(stage: Stage) -> list[tuple[str, str]]:
    """Return each plane with the airport where it has landed last."""
    topic = stage.create_topic("planes", cleanup_policy="compact")
    stage.produce(topic, landings(flights(stage.flights)))
    records = stage.read_stream(topic).select(col("key").cast("string"), col("value").cast("string"), "offset")
    # All records of a key are in one partition, so the largest offset is the last record.
    last = records.groupBy("key").agg(max_by("value", "offset").alias("airport"))
    table = stage.table_of(last).where("airport IS NOT NULL")
    return [tuple(row) for row in table.orderBy("key").collect()]


def landings(rows: list[dict[str, str]]) -> Iterator[tuple[str, str | None]]:
    """Yield planes and airports, and at the end the deletion of the plane that has been sold."""
    for row in rows:
        if row["tailnum"] != "NA":
            yield row["tailnum"], row["dest"]
    yield SOLD, None


def main() -> None:
    """Run the example."""
    with open_stage() as stage:
        planes = run(stage)
        show(f"{len(planes):,} planes", ("plane", "airport"), planes, limit=5)
        show("Airports", ("airport", "planes"), Counter(airport for _, airport in planes).most_common(5))


if __name__ == "__main__":
    main()

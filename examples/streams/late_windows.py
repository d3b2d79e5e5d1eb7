"""Windows of event time: flights per hour of their scheduled departure, although delayed flights are recorded late.

A flight is recorded when it has departed, and the hour that it was scheduled for may be long over. The stream keeps an
hour open until it has seen a flight that was scheduled an hour after its end: an hour of grace. Then it writes the
result of the hour once, and drops flights that come still later. You see the flights of each hour, how many of them
were recorded after the hour was over, and how many came too late.

Run it: python -m examples.streams.late_windows [host:port]
"""

from __future__ import annotations

import datetime
import json

from pyspark.sql.functions import col, count_if, date_format, window
from pyspark.sql.functions import count as count_of

from examples.streams.stage import Stage, flights, open_stage, show
from tidelog.spark import Json

FLIGHTS = 900
"""The first day of the year, and a few flights of the second."""

GRACE = datetime.timedelta(hours=1)
BATCHES = 10
"""Spark moves the watermark between micro-batches, so a few are needed to see late flights dropped."""

HOUR = "yyyy-MM-dd HH:mm"
DEPARTURE = Json("scheduled TIMESTAMP, departed TIMESTAMP")


def run(stage: Stage) -> list[tuple[str, int, int]]:
    """Return each hour with its flights and how many of these were recorded after its end."""
    topic = stage.create_topic("departures", partitions=1)
    departures = recorded(flights(FLIGHTS))
    stage.produce(topic, ((None, json.dumps({"scheduled": str(s), "departed": str(d)})) for s, d in departures))
    records = stage.read_stream(topic, maxOffsetsPerTrigger=str(-(-len(departures) // BATCHES)))
    hours = (
        records.select(DEPARTURE.decode("value").alias("flight"))
        .select("flight.*")
        .withWatermark("scheduled", f"{GRACE.total_seconds():.0f} seconds")
        .groupBy(window("scheduled", "1 hour"))
        .agg(count_of("*").alias("flights"), count_if(col("departed") >= col("window.end")).alias("late"))
        .select("window.start", "flights", "late")
    )
    table = stage.table_of(hours, "append").orderBy("start")
    return [tuple(row) for row in table.select(date_format("start", HOUR), "flights", "late").collect()]


def recorded(rows: list[dict[str, str]]) -> list[tuple[datetime.datetime, datetime.datetime]]:
    """Return the scheduled and the actual departures of the flights that departed, in the order of the latter."""
    departures = [(scheduled(row), int(row["dep_delay"])) for row in rows if row["dep_delay"] != "NA"]
    return sorted(((s, s + datetime.timedelta(minutes=d)) for s, d in departures), key=lambda times: times[1])


def scheduled(row: dict[str, str]) -> datetime.datetime:
    """Return the scheduled departure of a flight."""
    hour, minute = divmod(int(row["sched_dep_time"]), 100)
    return datetime.datetime(int(row["year"]), int(row["month"]), int(row["day"]), hour, minute)


def main() -> None:
    """Run the example."""
    with open_stage() as stage:
        hours = run(stage)
        show("Flights by the hour of their schedule", ("hour", "flights", "recorded late"), hours, limit=24)
        dropped = len(recorded(flights(FLIGHTS))) - sum(count for _, count, _ in hours)
        print(f"{dropped:,} flights came more than {GRACE} after their hour, or their hour is still open")


if __name__ == "__main__":
    main()
